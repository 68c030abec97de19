"""Traces made to mislead, each case a run with a manifest and files of its own."""

from __future__ import annotations

import json
from typing import Any

MOST, LEAST = (1 << 63) - 1, -(1 << 63)
LONGEST_US = (1 << 53) / 1000
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SEALED_TWICE = ("tee::encrypt", "tee::sendrecv", "tee::decrypt") * 2


def span(category: str | None, name: str, start: float, length: float = 1, **more: Any) -> dict[str, Any]:
    """A complete event, its times in microseconds; what is none of an event's own keys is an argument."""
    keys: dict[str, Any] = {key: more.pop(key) for key in ("pid", "tid") if key in more}
    event: dict[str, Any] = {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length, **keys}
    answer: dict[str, Any] = {} if category is None else {"cat": category}
    return event | answer | {"args": {key.replace("_", " "): value for key, value in more.items()}}


def note(name: str, start: float, length: float = 1, **more: Any) -> dict[str, Any]:
    """An annotation."""
    return span("user_annotation", name, start, length, **more)


def trace(*events: dict[str, Any], rank: int | None = 0, world_size: int = 2) -> bytes:
    """A trace of these events."""
    answer: dict[str, Any] = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": world_size}}
    return json.dumps({**answer, "traceEvents": events}).encode()


def hook(start: float, *names: str, length: float = 90, **more: Any) -> list[dict[str, Any]]:
    """A hook of a thousand bytes, and what it holds, one after another."""
    inside = [note(name, start + 10 * place, 5, **more) for place, name in enumerate(names, 1)]
    return [note("tee::all_reduce#1000", start, length, **more), *inside]


def collide(*ids: dict[str, Any]) -> bytes:
    """A trace of one collective after another, whose identities are made to look alike."""
    return trace(
        *(
            span("kernel", REDUCE, 1 + 5 * place, Collective_name="allreduce", **named)
            for place, named in enumerate(ids)
        )
    )


NAMES = (
    "",
    "new\nline",
    "quo\"te'd",
    "nul\0inside",
    "x" * 100_000,
    "ünïcödé 🧪 \u202eright to left",
    "half a pair \ud800",
    "'; DROP TABLE spans; --",
    "$1 ? {} %s \\",
    "ProfilerStep#999999999999",
    "ProfilerStep#5\n",
    "ProfilerStep#-1",
    "ProfilerStep#٣",
    "tee::all_reduce#99999999999999999",
    "tee::all_reduce#12\n",
    "tee::all_reduce#",
    "tee::ALL#5",
)
CATEGORIES = ("Überkernel", "kernel\0", " kernel", "KERNEL", "GPU_memcpy", "ﬀ", "ς", "", "'; DROP TABLE spans; --")
SW, CC, OFF = (
    f'regime = "{regime}"\n{more}'
    for regime, more in (("sw_per_hop_aesgcm", ""), ("hopper_spt_cc", 'cc_mode = "on"\n'), ("cc_off", ""))
)
CORRELATIONS = (0, 0, -1, LEAST, MOST, MOST + 1, 1 << 70, 1.5, "7", None)
SIZES = [(0, 5), (-1, 5), (1 << 62, 5), (2, -5), (2, 1 << 62), (1 << 17, 1 << 40), (2, (1 << 40) + 1), ("2", "3")]
CASES: dict[str, tuple[str, dict[str, bytes]]] = {
    "no events, or none that is an interval": (
        OFF,
        {"a.json": trace(), "b.json": trace({"ph": "M", "name": "process_name", "args": {"name": "x"}}, rank=1)},
    ),
    "no files at all": (SW, {}),
    "names that are no names": (OFF, {"a.json": trace(*(note(name, 1 + place) for place, name in enumerate(NAMES)))}),
    "categories that nobody knows": (
        OFF,
        {
            "a.json": trace(
                span(None, "none", 1), *(span(each, "name", 2 + place) for place, each in enumerate(CATEGORIES))
            )
        },
    ),
    "correlations of every size, and twice": (
        OFF,
        {
            "a.json": trace(
                *(span("kernel", "k", 50 + place, correlation=each) for place, each in enumerate(CORRELATIONS)),
                *(
                    span("cuda_runtime", "cudaLaunchKernel", 9 + place, correlation=each)
                    for place, each in enumerate(CORRELATIONS)
                ),
            )
        },
    ),
    "groups and messages that cannot be": (
        SW,
        {
            "a.json": trace(
                *(
                    span("kernel", REDUCE, 1 + place, Group_size=group, In_msg_nelems=count, dtype="ComplexDouble")
                    for place, (group, count) in enumerate(SIZES)
                ),
                note("tee::all_reduce#9999999999999", 100, 5),
                world_size=(1 << 31) - 1,
            )
        },
    ),
    "copies of sizes that cannot be": (
        CC,
        {
            "a.json": trace(
                *(
                    span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1 + place, bytes=count)
                    for place, count in enumerate((0, -1, LEAST, 1 << 62, None, "many", 1.5))
                )
            )
        },
    ),
    "times at the limits, ranks far apart": (
        SW,
        {
            "a.json": trace(
                span("kernel", REDUCE, 0.001, 0),
                span("kernel", "k", 1, LONGEST_US),
                span("kernel", REDUCE, 4.6e15, LONGEST_US),
                span("kernel", "k", 4.6e15, LONGEST_US),
                note("ProfilerStep#999999999", 0.001, LONGEST_US),
                span("kernel", "too late", 9e15, 1),
            ),
            "b.json": trace(span("kernel", REDUCE, 4.6e15, 0), span("kernel", REDUCE, 0.001, 0), rank=70_000),
        },
    ),
    "steps that overlap, on several threads": (
        OFF,
        {
            "a.json": trace(
                note("ProfilerStep#1", 1, 100),
                note("ProfilerStep#2", 50, 100),
                note("ProfilerStep#2", 50, 10, tid=2),
                note("ProfilerStep#1", 1, 100, tid=3),
                note("ProfilerStep#3", 60, 0),
                *(span("kernel", "k", at, 1) for at in (0.5, 1, 55, 60, 60.5, 149.999, 150)),
            )
        },
    ),
    "one rank twice, and worlds that differ": (
        f"{SW}world_size = 3\nwarmup_steps_count = 99\n",
        {
            "a.json": trace(*hook(1, *SEALED_TWICE), note("ProfilerStep#1", 1, 99), world_size=4),
            "b.json": trace(*hook(1, *SEALED_TWICE), note("ProfilerStep#1", 1, 98), world_size=1),
            "c.json": trace(*hook(3, "tee::sendrecv"), rank=None),
        },
    ),
    "hooks within hooks, without a thread, without an end": (
        SW,
        {
            "a.json": trace(
                *hook(1, *SEALED_TWICE), *hook(15, *SEALED_TWICE), *hook(40, "tee::encrypt"), *hook(500, length=0)
            ),
            "b.json": trace(
                *({**event, "tid": None} for event in hook(1, *SEALED_TWICE)), *hook(1, *SEALED_TWICE), rank=1
            ),
        },
    ),
    "events and files that are refused": (
        OFF,
        {
            "a.json": trace(span("kernel", "k", 1, -1), span("kernel", "k", 1, 1)),
            "b.txt": b"no trace",
            "c.txt": b"none either",
            "d.json": b'{"traceEvents": [{"ph": "X", oops}, {"ph": "X", "name": "k", "ts": 1, "dur": 1}]}',
        },
    ),
    # Faults that were found here; the names are sentences that hold now.
    "a sealed copy of the largest size does not overflow on the wire": (
        CC,
        {"a.json": trace(span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1, bytes=MOST))},
    ),
    "a category with a dotted capital i means the same to all engines": (
        OFF,
        {"a.json": trace(span("DR\u0130VER", "cuLaunchKernel", 1))},
    ),
    "a collective with a dotted capital i means the same to all engines": (
        OFF,
        {"a.json": trace(span("kernel", REDUCE, 1, Collective_name="D\u0130SPATCH"))},
    ),
    "two collectives of a rank are never matched as one: a slash": (
        OFF,
        {
            "a.json": collide(
                {"Comms_Id": "a", "Process_Group_Name": "b/c"}, {"Comms_Id": "a/b", "Process_Group_Name": "c"}
            )
        },
    ),
    "two collectives of a rank are never matched as one: a dash": (
        OFF,
        {"a.json": collide({"Process_Group_Name": "-", "Seq": 1}, {"Seq": 1})},
    ),
    "hooks and their seals, each rank another way": (
        SW,
        {
            "after a hook within.json": trace(*hook(1, *SEALED_TWICE), note("tee::all_reduce#8", 2, 1), rank=0),
            "without a thread.json": trace(*({**event, "tid": None} for event in hook(1, *SEALED_TWICE)), rank=1),
            "a kernel on the stream of its number.json": trace(
                *hook(1, *SEALED_TWICE, tid=7), span("kernel", REDUCE, 20, 5, pid=0, tid=7), rank=2
            ),
            "seals that last for ever.json": trace(
                note("tee::all_reduce#1000", 1, 5000),
                *(note("tee::encrypt", 2 + place, LONGEST_US) for place in range(1025)),
                rank=3,
            ),
        },
    ),
}
# Collectives of other runs would be matched with theirs, were they conformed with them; names are all that there is
# of texts. Each of them is conformed alone, as a run is.
ALONE = (
    "names that are no names",
    "groups and messages that cannot be",
    "times at the limits, ranks far apart",
    "one rank twice, and worlds that differ",
    "hooks within hooks, without a thread, without an end",
    "hooks and their seals, each rank another way",
)
TOGETHER = tuple(name for name in CASES if name not in ALONE)
