"""Laws over generated runs: engines agree, the order of rows means nothing, chunks add up, and nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from assets.build.chunking import part_of, plan_chunks
from assets.build.silver import TABLES
from lake.engines import DuckDBEngine, PolarsEngine
from lake.spark import SparkEngine
from tests.support.silver_rows import Bronze, Row, apart, byte_range, conform_chain, event, run, source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from lake.frames import Frame
    from tests.support.silver_rows import Bench, Silver

POLARS, DUCKDB = PolarsEngine(), DuckDBEngine()
CASES, BATCHES, SPARK_BATCHES = 96, 3, 1

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
    torn = draw(st.lists(st.builds(_stretch, st.sampled_from(places), st.integers(0, 3)), max_size=3, unique_by=str))
    return [*rows, *files, *draw(st.sampled_from([[], [refused]])), run(**draw(_CLAIMS)), *torn]


_PARTS = st.sampled_from(["a", "a", "ab"])


def _stretch(place: tuple[int, str], offset: int) -> Row:
    return byte_range(source_sha256=place[1], offset_bytes=offset, length_bytes=1, reason="it is torn", beginning="x")


@cache
def _generate_runs() -> tuple[list[Row], ...]:
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
def _batch(number: int, batches: int) -> Bronze:
    """Some of them side by side: planning takes DuckDB seconds and Spark half a minute, however few the rows."""
    cases = list(enumerate(_generate_runs()))[number::batches]
    return Bronze.joined(Bronze.of(*rows, adapt=apart(place)) for place, rows in cases)


@cache
def _on_polars(number: int, batches: int) -> Silver:
    return conform_chain(POLARS, _batch(number, batches))


def _shuffle(bronze: Bronze, seed: int) -> Bronze:
    """The same rows in another order; which ordinal an event has does not change."""

    def shuffle(rows: pa.Table) -> pa.Table:
        order = list(range(rows.num_rows))
        random.Random(seed).shuffle(order)
        return rows.take(pa.array(order, pa.int64()))

    return Bronze(*(shuffle(getattr(bronze, column.name)) for column in fields(Bronze)))


# -- laws --------------------------------------------------------------------------------------------------


def _same(one: Silver, other: Silver) -> None:
    assert list(one.tables) == list(other.tables)
    for name, frame in one.tables.items():
        assert_frame_equal(frame, other.tables[name], check_exact=True)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_landed_events_are_kept_merged_or_rejected(batch: int) -> None:
    bronze, silver = _batch(batch, BATCHES), _on_polars(batch, BATCHES)
    landed = Counter(bronze.events.column("source_sha256").to_pylist())
    settled: Counter[str] = Counter()
    for sha256, effect, count in silver.rows("rule_counts", "source_sha256", "effect", "events_count"):
        settled[sha256] += count if effect != "flagged" else 0
    assert settled == landed
    merged = sum(count for effect, count in silver.rows("rule_counts", "effect", "events_count") if effect == "merged")
    rejected = sum(level == "event" for (level,) in silver.rows("rejects", "level"))
    assert len(silver.tables["spans"]) + merged + rejected == bronze.events.num_rows


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_row_keeps_to_its_declaration(batch: int) -> None:
    for table in TABLES:
        frame = _on_polars(batch, BATCHES).tables[table.name]
        assert not frame.select({"run_id", *table.key}).is_duplicated().any(), table.full_name
        for column in table.columns:
            values = frame[column.name]
            where = f"{table.full_name}.{column.name}"
            assert column.nullable or not values.null_count(), where
            assert not column.one_of or set(values.drop_nulls()) <= set(column.one_of), where
            assert column.minimum is None or all(value >= column.minimum for value in values.drop_nulls()), where


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_order_of_rows_means_nothing(batch: int) -> None:
    _same(_on_polars(batch, BATCHES), conform_chain(POLARS, _shuffle(_batch(batch, BATCHES), batch)))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_polars_and_duckdb_agree(batch: int) -> None:
    _same(_on_polars(batch, BATCHES), conform_chain(DUCKDB, _shuffle(_batch(batch, BATCHES), batch + 100)))


@pytest.mark.parametrize("batch", range(SPARK_BATCHES))
def test_polars_and_spark_agree(batch: int, spark: SparkSession) -> None:
    bronze = _shuffle(_batch(batch, SPARK_BATCHES), batch + 200)
    _same(_on_polars(batch, SPARK_BATCHES), conform_chain(SparkEngine(spark), bronze))


def _shares(events: Frame, counts: dict[int, int], most: int) -> Iterator[Frame]:
    for chunk in plan_chunks(counts, most):
        rows = chunk.of(events)
        yield rows if chunk.parts == 1 else rows.filter(part_of(chunk.parts) == chunk.part)


@pytest.mark.parametrize(("batch", "most"), [(0, 4), (1, 9), (2, 1000)])
def test_spans_made_in_chunks_are_those_made_at_once(batch: int, most: int) -> None:
    bronze = _batch(batch, BATCHES)
    counts = Counter(bronze.events.column("rank").to_pylist())

    def shares(events: Frame) -> Iterator[Frame]:
        return _shares(events, dict(counts), most)

    _same(_on_polars(batch, BATCHES), conform_chain(POLARS, bronze, shares))


def test_every_event_falls_into_one_chunk(engine: Bench) -> None:
    ids = [None, 0, 1, -1, 7, -7, (1 << 63) - 1, -(1 << 63)]
    rows = [
        event("x", "cpu_op", ts_ns, 1, correlation_id=number, rank=rank)
        for number in ids
        for ts_ns in ids
        for rank in (0, 1, 2)
    ]
    events = Bronze.of(*rows).events
    shares = _shares(engine.wrap(events), {0: len(ids) ** 2, 1: 5, 2: 5}, 20)
    taken = [(row["rank"], row["ordinal"]) for share in shares for row in engine.rows(share).to_pylist()]
    assert sorted(taken) == sorted((row["rank"], row["ordinal"]) for row in events.to_pylist())
