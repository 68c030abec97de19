"""Runs that hypothesis draws, the same in every test run: what the engines have to agree on."""

from __future__ import annotations

import random
from dataclasses import fields
from functools import cache
from typing import Any

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.silver_rows import Bronze, Row, apart, byte_range, event, run, source

CASES, BATCHES = 96, 3
# Where these runs stand among those that go through a chain with them: the literal cases of tests come first.
FIRST_PLACE = 1000

# -- runs to be conformed ----------------------------------------------------------------------------------

_EDGES = (1 << 53, (1 << 53) + 1, (1 << 62) - (1 << 53), (1 << 62) - (1 << 53) + 1, (1 << 63) - 1, -(1 << 63))
# Few moments, so that spans begin and end together; a base at 5, so that some are at or before it.
_STARTS = st.one_of(st.integers(1, 60), st.integers(1, 60), st.sampled_from([None, 0, 5, -1, *_EDGES]))
_LENGTHS = st.one_of(st.integers(0, 30), st.integers(0, 30), st.sampled_from([None, 0, -1, -(1 << 63), *_EDGES[:2]]))
_IDS = st.one_of(st.none(), st.integers(1, 3))
_THREADS = st.sampled_from(["1", "1", "2", None])
_ODD_NAMES: list[str | None] = [
    "",
    "Ünïcode\n🙂",
    "nccl\nkernel",
    "tee::all_reduce#5\n",
    "ProfilerStep#1\n",
    "a\x00b",
    "'; --",
    None,
]
_NAMES: dict[str, list[str | None]] = {
    "user_annotation": [
        *("ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#10", "Optimizer.step#A.step", "Optimizer.step#B.step"),
        *("tee::all_reduce#4096", "tee::all_gather#12", "tee::encrypt", "tee::decrypt", "tee::sendrecv", "tee::recv"),
        *("gloo:all_reduce", "gloo:broadcast", "nccl:all_reduce", "my own words", *_ODD_NAMES),
    ],
    "cuda_runtime": ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaGraphLaunch", "cudaStreamSynchronize", "x"],
    "cuda_driver": ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuLaunchKernel"],
    "gpu_memcpy": [
        *("Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)", "Memcpy PtoP (Device -> Device)"),
        *("Memcpy DtoD (Managed -> Device)", "Memcpy DtoD (Managed -> Managed)", "Memcpy DtoD (Device -> Device)"),
    ],
    "kernel": [
        "gemm",
        "ncclDevKernel_AllReduce",
        "ncclKernel_Broadcast",
        "Memset (Device)",
        "aes_256_gcm",
        *_ODD_NAMES,
    ],
    "Kernel": ["gemm", "ncclDevKernel_AllGather"],
    "gpu_memset": ["Memset (Device)"],
    "cpu_op": ["aten::mm", "record_param_comms", *_ODD_NAMES],
    "python_function": ["/home/ada/train.py(12): f"],
    "Ünknown\n": _ODD_NAMES,
}
_KINDS_OF_EVENT = st.sampled_from([(category, name) for category, names in _NAMES.items() for name in names])
_COLLECTIVES = [
    "allreduce",
    "_allgather_base",
    "reduce_scatter",
    "broadcast",
    "wait",
    "barrier",
    "send",
    "Ünknown",
    None,
]
_ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "collective_name": st.sampled_from(_COLLECTIVES),
        "dtype": st.sampled_from(["Float", "BFloat16", "Quaternion", None]),
        "in_elements_count": st.sampled_from([0, 7, 1000, 1 << 40, (1 << 40) + 1, -1, (1 << 63) - 1, None]),
        "out_elements_count": st.sampled_from([0, 7, 1000, None]),
        "group_size": st.sampled_from([1, 2, 3, 8, 1 << 17, 0, -5, (1 << 63) - 1, None]),
        "process_group_name": st.sampled_from(["0", "dp", None]),
        "collective_sequence": _IDS,
        "communicator_id": st.sampled_from(["c", "d/e", None]),
    },
)
_REST = st.fixed_dictionaries(
    {
        "phase": st.sampled_from([*"XXXXXXXXXXXXXXX", "M", "s", "f", "i", "C", "?", "", None]),
        "thread_id": _THREADS,
        "correlation_id": st.one_of(_IDS, st.sampled_from([-1, (1 << 63) - 1])),
    },
    optional={
        "payload_bytes": st.sampled_from([0, 64, -1, (1 << 62), None]),
        "stream_id": _IDS,
        "external_id": _IDS,
        "device_id": _IDS,
        "process_id": st.sampled_from(["0", "GPU 1", None]),
    },
)
_MODES = ["cc_off", "hopper_spt_cc", "hopper_ppcie", "blackwell_mpt_nvle", "tee_io_tdisp", "sw_per_hop_aesgcm", None]
_CLAIMS = st.fixed_dictionaries(
    {
        "regime": st.sampled_from(_MODES),
        "cc_mode": st.sampled_from(["on", "off", "devtools", None]),
        "nodes_count": st.sampled_from([1, 2, None]),
        "world_size": st.sampled_from([1, 2, 4, None]),
        "found_world_size": st.sampled_from([2, None]),
        "warmup_steps_count": st.sampled_from([0, 1, None]),
    }
)


@st.composite
def _events(draw: st.DrawFn, places: list[tuple[int, str]]) -> Row:
    category, name = draw(_KINDS_OF_EVENT)
    rank, sha256 = draw(st.sampled_from(places))
    arguments = draw(_ARGUMENTS) if draw(st.booleans()) else {}
    rest = draw(_REST)
    return event(name, category, draw(_STARTS), draw(_LENGTHS), rank=rank, source_sha256=sha256, **rest, **arguments)


@st.composite
def _hooks(draw: st.DrawFn, places: list[tuple[int, str]]) -> list[Row]:
    """A hook's collective with what it holds, and something beside it."""
    rank, sha256 = draw(st.sampled_from(places))
    start, hops = draw(st.integers(6, 40)), draw(st.integers(0, 3))
    where: dict[str, Any] = {"rank": rank, "source_sha256": sha256, "thread_id": draw(_THREADS)}
    inside = ["tee::encrypt", "tee::sendrecv", "tee::decrypt", "gloo:send"]
    parts = [(name, start + hop * 3, 2) for hop in range(hops) for name in inside[: draw(st.integers(1, 4))]]
    return [
        event(name, "user_annotation", ts, length, **where)
        for name, ts, length in [(f"tee::all_reduce#{draw(st.integers(0, 99))}", start, 12), *parts]
    ]


@st.composite
def _launches(draw: st.DrawFn, places: list[tuple[int, str]]) -> list[Row]:
    """A call and the GPU work of its correlation, which may begin before it."""
    rank, sha256 = draw(st.sampled_from(places))
    start, number = draw(st.integers(6, 50)), draw(st.integers(10, 12))
    where: dict[str, Any] = {"rank": rank, "source_sha256": sha256, "correlation_id": number}
    works = draw(st.lists(st.tuples(_KINDS_OF_EVENT, st.integers(-2, 9)), min_size=1, max_size=3))
    calls = [event("cudaLaunchKernel", "cuda_runtime", start, 3, **where)]
    return calls + [event(name, "kernel", start + later, 4, **where) for (_, name), later in works]


@st.composite
def _runs(draw: st.DrawFn) -> list[Row]:
    """One to three ranks, one or two sources each, some files refused, some byte ranges torn."""
    places = [(rank, f"s{rank}{part}") for rank in range(draw(st.integers(1, 3))) for part in draw(_PARTS)]
    rows = draw(st.lists(_events(places), min_size=3, max_size=14))
    for more in (*draw(st.lists(_hooks(places), max_size=2)), *draw(st.lists(_launches(places), max_size=2))):
        rows += more
    if draw(st.booleans()):
        # The same recording once more, written by another program: a rank may have two traces.
        rows += [Row(row.table, {**row.fields, "source_sha256": f"{row.fields['source_sha256']}c"}) for row in rows]
        places += [(rank, f"{sha256}c") for rank, sha256 in places]
    # Equal events, as profilers write them at times.
    rows += draw(st.lists(st.sampled_from(rows), max_size=4))
    bases = {sha256: draw(st.sampled_from([None, 5, 1])) for _, sha256 in places}
    files = [source(rank=rank, source_sha256=sha256, base_ns=bases[sha256]) for rank, sha256 in places]
    refused = source(file_name="notes.txt", source_sha256="n", outcome="rejected", rank=None, events_count=0)
    torn = draw(st.lists(st.builds(_tear, st.sampled_from(places), st.integers(0, 3)), max_size=3, unique_by=str))
    return [*rows, *files, *draw(st.sampled_from([[], [refused]])), run(**draw(_CLAIMS)), *torn]


_PARTS = st.sampled_from(["a", "a", "ab"])


def _tear(place: tuple[int, str], offset: int) -> Row:
    return byte_range(source_sha256=place[1], offset_bytes=offset, length_bytes=1, reason="it is torn", beginning="x")


@cache
def generate_runs() -> tuple[list[Row], ...]:
    """The runs that all laws are held against, the same in every test run."""
    found: list[list[Row]] = []

    @settings(max_examples=CASES, phases=[Phase.generate], database=None)
    @given(_runs())
    def collect(rows: list[Row]) -> None:
        found.append(rows)

    collect()
    assert len(found) == CASES
    return tuple(found)


@cache
def join_batch(number: int, runs: int = CASES // BATCHES) -> Bronze:
    """A third of them, or fewer, side by side: planning takes DuckDB seconds and Spark a minute, whatever the rows."""
    cases = list(enumerate(generate_runs(), FIRST_PLACE))[number::BATCHES][:runs]
    return Bronze.joined(Bronze.of(*rows, adapt=apart(place)) for place, rows in cases)


def shuffle(bronze: Bronze, seed: int) -> Bronze:
    """The same rows in another order; which ordinal an event has does not change."""

    def shuffle_rows(rows: pa.Table) -> pa.Table:
        order = list(range(rows.num_rows))
        random.Random(seed).shuffle(order)
        return rows.take(pa.array(order, pa.int64()))

    return Bronze(*(shuffle_rows(getattr(bronze, column.name)) for column in fields(Bronze)))
