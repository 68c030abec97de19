from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import critical_path
from gold.critical_path import PARTS
from gold.time_breakdown import CLASSES
from lake.engines import engine as lake_engine
from silver import spans, steps
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

US = 1000
POLARS = lake_engine("polars")
# What gold.waiting finds where no rank waited.
NO_WAITS = pa.table(
    {
        **{name: pa.array([], pa.string()) for name in ("run_id", "source_sha256")},
        "rank": pa.array([], pa.int32()),
        **{name: pa.array([], pa.int64()) for name in ("ordinal", "wait_ns")},
        "is_inner": pa.array([], pa.bool_()),
    }
)


def work(kind: str, at: int, length: int, launch: int | None = None, stream: int = 7, call: int = 1) -> dict[str, Any]:
    """GPU work, with the start and the duration of the call that launched it."""
    known = {"is_gpu": True, "device_id": 0, "stream_id": stream, "launch_ts_ns": launch}
    called = {"launch_duration_ns": None if launch is None else call}
    return {"kind": kind, "ts_ns": at, "duration_ns": length, **known, **called}


def on_host(kind: str, at: int, length: int) -> dict[str, Any]:
    return {"kind": kind, "ts_ns": at, "duration_ns": length}


def follow(bench: Bench, *rows: dict[str, Any], first: int = 100, last: int = 200) -> dict[str, Any]:
    """The row of one step of one rank."""
    known = [
        {"run_id": RUN, "rank": 0, "source_sha256": "s", "ordinal": place, "pattern": "operator", **row}
        for place, row in enumerate(rows)
    ]
    spanned, waits = bench.wrap(rows_of(spans.TABLE, known)), bench.wrap(NO_WAITS)
    gpu, host = (
        bench.rows(select(spanned, waits)) for select in (critical_path.select_gpu_work, critical_path.select_host_work)
    )
    return measure_step(gpu, host, first, last)


def measure_step(gpu: pa.Table, host: pa.Table, first: int, last: int) -> dict[str, Any]:
    step = {"run_id": RUN, "rank": 0, "step_number": 3, "ts_ns": first, "duration_ns": last - first}
    window = critical_path.Window(1 << 62, gpu, host)
    (row,) = critical_path.measure(rows_of(steps.TABLE, [step]), lambda _: [window]).to_pylist()
    return dict(row)


def list_parts(row: dict[str, Any]) -> dict[str, int]:
    """The parts that took time."""
    return {part: row[f"{part}_ns"] for part in PARTS if row[f"{part}_ns"]}


def test_a_sync_leads_to_the_kernel_and_the_kernel_to_its_launch(engine: Bench) -> None:
    row = follow(
        engine,
        on_host("host", 100, 20),
        on_host("launch", 110, 4),
        work("compute", 120, 50, launch=110, call=4),
        on_host("sync", 130, 45),
        on_host("host", 180, 15),
    )
    assert list_parts(row) == {"compute": 50, "launch": 4, "sync": 5, "host": 25, "delay": 6, "idle": 10}
    assert (row["bound"], row["work_count"], row["evidence"], row["reason"]) == ("compute", 1, "modelled", None)


def test_work_that_was_launched_in_time_follows_its_stream() -> None:
    row = follow(
        POLARS,
        work("copy", 110, 30, launch=100),
        work("compute", 142, 50, launch=105),
        work("memset", 100, 80, launch=101, stream=9),
        on_host("sync", 115, 80),
    )
    assert list_parts(row) == {"copy": 30, "compute": 50, "launch": 1, "sync": 3, "delay": 11, "idle": 5}


def test_a_step_that_ends_while_the_gpu_works_is_the_gpus() -> None:
    row = follow(
        POLARS, work("compute", 50, 90, launch=10), work("compute", 140, 90, launch=20), on_host("host", 0, 300)
    )
    assert list_parts(row) == {"compute": 100}
    assert row["work_count"] == 2


def test_a_step_without_waiting_is_the_hosts() -> None:
    row = follow(
        POLARS,
        work("compute", 110, 20, launch=105),
        on_host("host", 100, 90),
        on_host("crypto", 140, 10),
        on_host("transport", 145, 10),
        on_host("sync", 160, 10),
    )
    assert list_parts(row) == {"crypto": 10, "transport": 5, "sync": 10, "host": 65, "idle": 10}
    assert (row["bound"], row["work_count"]) == ("host", 0)


def test_another_stream_is_asked_where_neither_stream_nor_launch_explains_the_wait() -> None:
    held, close = (
        follow(
            POLARS,
            work("collective", 10 * US, 50 * US, launch=5 * US, stream=20, call=1 * US),
            work("compute", 61 * US, 30 * US, launch=at, call=1 * US),
            on_host("sync", 50 * US, 45 * US),
            first=0,
            last=100 * US,
        )
        for at in (8 * US, 59 * US)
    )
    expected = {"compute": 30, "collective": 50, "launch": 1, "sync": 4, "delay": 5, "idle": 10}
    assert list_parts(held) == {part: length * US for part, length in expected.items()}
    assert (close["collective_ns"], close["launch_ns"], close["delay_ns"]) == (0, 1 * US, 1 * US)


def test_thirty_microseconds_are_already_more_than_stream_and_launch_explain() -> None:
    asked, left = (
        follow(
            POLARS,
            work("collective", 10 * US, 20 * US, launch=5 * US, stream=20),
            work("compute", 40 * US, 30 * US, launch=at),
            on_host("sync", 60 * US, 15 * US),
            first=0,
            last=100 * US,
        )
        for at in (10 * US, 10 * US + 1)
    )
    assert (asked["collective_ns"], left["collective_ns"]) == (20 * US, 0)


def test_work_launched_at_the_very_end_of_the_work_before_follows_that() -> None:
    followed, launched = (
        follow(POLARS, work("copy", 110, 30, launch=100), work("compute", 150, 70, launch=at, call=2))
        for at in (140, 141)
    )
    assert (followed["copy_ns"], followed["delay_ns"], followed["launch_ns"]) == (30, 10 + 9, 1)
    assert (launched["copy_ns"], launched["delay_ns"], launched["launch_ns"]) == (0, 7, 2)


def test_a_blocking_copy_is_its_copy_and_the_rest_of_the_call() -> None:
    row = follow(POLARS, on_host("blocking_copy", 120, 60), work("copy", 140, 30, launch=120, call=60))
    assert list_parts(row) == {"copy": 30, "blocking_copy": 10, "launch": 20, "idle": 40}


def test_a_rank_without_gpu_rows_has_no_chain_and_a_reason() -> None:
    row = follow(POLARS, on_host("host", 100, 100))
    assert (row["duration_ns"], row["host_ns"], row["bound"], row["evidence"]) == (100, None, None, "unobservable")
    assert row["reason"] == "no GPU rows were recorded, so what the host waited for is unknown"


Row = dict[str, Any]
Spells = list[tuple[str, int]]


def walk_moments(rows: list[Row], first: int, last: int, delay: int) -> dict[str, int]:
    """The same moment by moment: who holds the step up now, since when, and who did before."""
    timed = [{**row, "end": row["ts_ns"] + row["duration_ns"]} for row in rows]
    host, gpu = ([row for row in timed if row["is_gpu"] == is_gpu] for is_gpu in (False, True))
    order = ("crypto", "transport", "wait", "blocking_copy", "launch", "sync", "host")
    parts = dict.fromkeys(PARTS, 0)
    holder = find_last([row for row in gpu if row["ts_ns"] < last < row["end"]])
    now = last
    while now > first:
        if holder is None:
            spells, holder = explain_host(host, gpu, now, first)
        else:
            spells, holder = explain_work(holder, gpu, delay)
        for part, since in spells:
            while now > max(since, first):
                now -= 1
                running = [row["kind"] for row in host if row["ts_ns"] <= now < row["end"]]
                parts[part or next((kind for kind in order if kind in running), "idle")] += 1
    return parts


def explain_work(holder: Row, gpu: list[Row], delay: int) -> tuple[Spells, Row | None]:
    """GPU work holds since its start; before, its stream's last, or its launch, or another stream's last did."""
    begun, launch = holder["ts_ns"], holder["launch_ts_ns"]
    earlier = [row for row in gpu if row["end"] <= begun]
    own = find_last([row for row in earlier if row["stream_id"] == holder["stream_id"]])
    if launch is not None and launch > begun:
        launch = None
    ready = max(-1 if own is None else own["end"], -1 if launch is None else launch)
    other = find_last([row for row in earlier if row["end"] > ready])
    if 0 <= ready <= begun - delay and other is not None:
        return [(holder["kind"], begun), ("delay", other["end"])], other
    if own is not None and own["end"] == ready:
        return [(holder["kind"], begun), ("delay", own["end"])], own
    called = [] if launch is None else [("delay", launch + holder["launch_duration_ns"]), ("launch", launch)]
    return [(holder["kind"], begun), *called], None


def explain_host(host: list[Row], gpu: list[Row], now: int, first: int) -> tuple[Spells, Row | None]:
    """The host holds since the last call that waited for GPU work; before, that work did."""
    found = []
    for call in host:
        freed = find_last([row for row in gpu if call["ts_ns"] < row["end"] <= call["end"]])
        if call["kind"] in {"sync", "blocking_copy"} and first < call["end"] <= now and freed is not None:
            found.append((call["end"], *rank_by_end(freed), call["kind"], freed))
    if not found:
        return [("", first)], None
    *_, kind, freed = max(found, key=lambda one: one[:-1])
    return [("", max(one[0] for one in found)), (kind, freed["end"])], freed


def find_last(found: list[Row]) -> Row | None:
    return max(found, key=rank_by_end, default=None)


def rank_by_end(row: Row) -> tuple[int, int, int]:
    return row["end"], row["ts_ns"], row["ordinal"]


WORK = st.builds(
    work,
    st.sampled_from(["compute", "collective", "copy"]),
    st.integers(1, 60),
    st.integers(0, 15),
    st.none() | st.integers(1, 60),
    st.sampled_from([7, 20]),
    st.integers(0, 5),
)
HOST = st.builds(
    on_host,
    st.sampled_from(["sync", "blocking_copy", "launch", "host", "crypto", "transport", "wait"]),
    st.integers(1, 60),
    st.integers(0, 25),
)


TIMES = ("ts_ns", "duration_ns", "launch_ts_ns", "launch_duration_ns")
EMPTY = {"is_gpu": False, "device_id": -1, "stream_id": -1, "launch_ts_ns": None, "launch_duration_ns": None}


def tabulate(rows: list[Row], moment_ns: int) -> tuple[pa.Table, pa.Table]:
    """Work of the GPU and of the host, as it is chosen for the chain."""
    table = pa.table(
        {
            **{name: [row[name] for row in rows] for name in ("is_gpu", "device_id", "stream_id", "ordinal")},
            **{name: [-1 if row[name] is None else row[name] * moment_ns for row in rows] for name in TIMES},
            "_class": [CLASSES.index(row["kind"]) for row in rows],
        }
    )
    on_gpu, off_gpu = (table.filter(pc.field("is_gpu") == is_gpu) for is_gpu in (True, False))
    return on_gpu, off_gpu


@given(st.lists(WORK, min_size=1, max_size=8), st.lists(HOST, max_size=6), st.integers(1, 40), st.sampled_from([1, US]))
@settings(max_examples=200)
def test_the_chain_equals_a_walk_from_moment_to_moment(
    gpu: list[dict[str, Any]], host: list[dict[str, Any]], first: int, moment_ns: int
) -> None:
    rows = [{**EMPTY, **row, "ordinal": nth} for nth, row in enumerate([*gpu, *host]) if row["duration_ns"]]
    if not any(row["is_gpu"] for row in rows):
        return
    on_gpu, off_gpu = tabulate(rows, moment_ns)
    row = measure_step(on_gpu, off_gpu, first * moment_ns, (first + 30) * moment_ns)
    expected = walk_moments(rows, first, first + 30, 30 * US // moment_ns)
    assert {part: row[f"{part}_ns"] for part in PARTS} == {part: count * moment_ns for part, count in expected.items()}


@given(
    st.lists(WORK, max_size=10),
    st.lists(HOST, max_size=8),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 20)), min_size=1, max_size=5),
    st.data(),
)
@settings(max_examples=300)
def test_windows_of_whole_steps_give_the_chains_of_the_whole_rank(
    gpu: list[Row], host: list[Row], lengths: list[tuple[int, int]], data: st.DataObject
) -> None:
    rows = [{**EMPTY, **row, "ordinal": nth} for nth, row in enumerate([*gpu, *host]) if row["duration_ns"]]
    known, at = [], 1
    for number, (pause, length) in enumerate(lengths):
        known.append(
            {"run_id": RUN, "rank": 0, "step_number": number, "ts_ns": (at + pause) * US, "duration_ns": length * US}
        )
        at += pause + length
    table = rows_of(steps.TABLE, known)
    cuts = critical_path.find_cuts(table).tolist()
    assert cuts == [step["ts_ns"] for step in known[1:]]
    bounds = [cut for cut in cuts if data.draw(st.booleans())]
    windows = []
    for low, high in pairwise([0, *bounds, 1 << 62]):
        reaching = [row for row in rows if row["ts_ns"] * US < high and (row["ts_ns"] + row["duration_ns"]) * US >= low]
        windows.append(critical_path.Window(high, *tabulate(reaching, US)))
    whole = [critical_path.Window(1 << 62, *tabulate(rows, US))]
    assert critical_path.measure(table, lambda _: windows).equals(critical_path.measure(table, lambda _: whole))


def test_time_is_not_cut_where_a_step_still_runs() -> None:
    times = [(10, 50), (20, 10), (60, 5), (70, 5), (72, 9)]
    known = [{"run_id": RUN, "rank": 0, "ts_ns": start, "duration_ns": length} for start, length in times]
    assert critical_path.find_cuts(rows_of(steps.TABLE, known)).tolist() == [60, 70]
