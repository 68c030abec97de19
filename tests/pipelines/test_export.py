"""`teetotal export` as a person types it: a trace whose slices are those of silver, ranks on one clock."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from pipelines.cli.main import main
from silver import clock_offsets, crossings, spans, steps
from tests.support.silver_rows import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from lake.store import Lake

BASE = 1_700_000_000_000_000_000
SKEW = 5_000
PRIVATE = "my own phase"


def span(rank: int, ordinal: int, at: int, lasts: int, **fields: Any) -> dict[str, Any]:
    """An interval of a rank whose clock is fast by the skew."""
    known = {"run_id": "r", "rank": rank, "source_sha256": "s", "ordinal": ordinal, "duration_ns": lasts}
    times = {"ts_ns": BASE + at + rank * SKEW, "aligned_ts_ns": BASE + at, "category": "cpu_op", "kind": "host"}
    return {**known, **times, "thread_id": "7", "step_number": at // 1000, **fields}


def kernel(rank: int, ordinal: int, at: int, lasts: int, **fields: Any) -> dict[str, Any]:
    answer = {"is_gpu": True, "category": "kernel", "kind": "compute", "name": "gemm", "device_id": 0, "stream_id": 7}
    return span(rank, ordinal, at, lasts, **answer, launch_step_number=at // 1000, **fields)


def crossing(rank: int, ordinal: int, at: int, lasts: int | None, exposed: int | None, **fields: Any) -> dict[str, Any]:
    known = {"run_id": "r", "rank": rank, "source_sha256": "s", "ordinal": ordinal, "duration_ns": lasts}
    times = {"ts_ns": BASE + at + rank * SKEW, "aligned_ts_ns": BASE + at, "step_number": at // 1000}
    return {**known, **times, "exposed_ns": exposed, "boundary": "gpu_to_gpu", "path": "hook", **fields}


SPANS = [
    *(span(rank, 0, 10, 900, name=None, label=PRIVATE, kind="annotation") for rank in (0, 1)),
    *(span(rank, 1, 20, 50, name="cudaStreamSynchronize", kind="sync") for rank in (0, 1)),
    *(kernel(rank, 2, 100, 200) for rank in (0, 1)),
    *(kernel(rank, 3, 250, 200) for rank in (0, 1)),  # crosses the one before it, on the same stream
    *(kernel(rank, 4, 1100, 300) for rank in (0, 1)),
]
CROSSINGS = [
    crossing(0, 5, 400, 200, 150, sealed_by="software_hook", must_seal=True, collective="all_reduce"),
    crossing(1, 5, 1350, 100, 50, violation="it was not sealed"),
    crossing(1, 6, 1360, None, None),
]


@pytest.fixture
def traced_lake(lake: Lake) -> Lake:
    """A run of two ranks and two steps, as silver has it."""
    stepped = [
        {
            "run_id": "r",
            "rank": rank,
            "step_number": number,
            "ts_ns": BASE + number * 1000 + rank * SKEW,
            "aligned_ts_ns": BASE + number * 1000,
            "duration_ns": 1000,
        }
        for rank in (0, 1)
        for number in (0, 1)
    ]
    clocks = [{"run_id": "r", "rank": rank, "offset_ns": rank * SKEW} for rank in (0, 1)]
    tables = {spans: SPANS, steps: stepped, crossings: CROSSINGS, clock_offsets: clocks}
    for module, rows in tables.items():
        # Of a closed set that a test does not care about, any word will do.
        words = {
            column.name: column.one_of[0] for column in module.TABLE.columns if column.one_of and not column.nullable
        }
        whole = rows_of(module.TABLE, [{**words, **row} for row in rows])
        lake.replace(module.TABLE, "r", whole, "f" * 64)
    return lake


def ask(lake: Lake, *words: str) -> Result:
    return CliRunner().invoke(main, ["--lake", str(lake.place), "export", *words], catch_exceptions=False)


def read(lake: Lake, out: Path, *words: str) -> list[dict[str, Any]]:
    done = ask(lake, "r", "--perfetto", str(out), *words)
    assert done.exit_code == 0, done.stderr
    data = gzip.decompress(out.read_bytes()) if out.suffix == ".gz" else out.read_bytes()
    events: list[dict[str, Any]] = json.loads(data)["traceEvents"]
    return events


def list_slices(events: list[dict[str, Any]], *categories: str) -> list[tuple[int, int, int | None]]:
    """Rank, start and duration of slices in ns, as silver counts."""
    return sorted(
        (event["pid"] - 1, round(event["ts"] * 1000), round(event["dur"] * 1000) if "dur" in event else -1)
        for event in events
        if event.get("cat") in categories
    )


def find_expected(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return sorted(
        (row["rank"], row["aligned_ts_ns"] - BASE, -1 if row["duration_ns"] is None else row["duration_ns"])
        for row in rows
    )


def test_every_span_step_and_crossing_of_silver_is_one_slice_to_the_nanosecond(
    traced_lake: Lake, tmp_path: Path
) -> None:
    events = read(traced_lake, tmp_path / "r.json.gz")
    assert list_slices(events, "cpu_op", "kernel") == find_expected(SPANS)
    assert list_slices(events, "crossing") == find_expected(CROSSINGS)
    assert list_slices(events, "step") == [(rank, at, 1000) for rank in (0, 1) for at in (0, 1000)]
    assert list_slices(events, "waiting") == [(0, 20, 50), (1, 20, 50)]
    assert list_slices(events, "sealed") == [(0, 400, 200)]


def test_exposed_slices_sum_to_what_silver_says(traced_lake: Lake, tmp_path: Path) -> None:
    found = list_slices(read(traced_lake, tmp_path / "r.json"), "exposed")
    assert found == [(0, 450, 150), (1, 1400, 50)]
    assert sum(lasts or 0 for _, _, lasts in found) == sum(row["exposed_ns"] or 0 for row in CROSSINGS)


def test_ranks_are_on_one_clock(traced_lake: Lake, tmp_path: Path) -> None:
    events = read(traced_lake, tmp_path / "r.json")
    by_rank = [[slice_[1:] for slice_ in list_slices(events, "kernel") if slice_[0] == rank] for rank in (0, 1)]
    assert by_rank[0] == by_rank[1]
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {"rank 0", "rank 1"}


def test_work_that_crosses_on_one_stream_gets_a_lane_of_its_own(traced_lake: Lake, tmp_path: Path) -> None:
    events = read(traced_lake, tmp_path / "r.json")
    named = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"GPU 0 stream 7", "GPU 0 stream 7 (2)", "host thread 1", "step", "crossing", "exposed"} <= named


def test_some_steps_are_what_they_did_or_launched(traced_lake: Lake, tmp_path: Path) -> None:
    events = read(traced_lake, tmp_path / "r.json", "--steps", "1")
    assert len(list_slices(events, "kernel")) == 2
    assert len(list_slices(events, "step")) == 2
    assert len(list_slices(events, "crossing")) == 2
    # A kernel of step 1 still hides what it hid.
    assert [lasts for _, _, lasts in list_slices(events, "exposed")] == [50]
    assert len(read(traced_lake, tmp_path / "both.json", "--steps", "0:1")) > len(events)


def test_a_persons_own_text_stays_sealed(traced_lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    read(traced_lake, out)
    assert PRIVATE not in out.read_text("utf-8")
    assert "sealed:1:" not in out.read_text("utf-8")


def test_the_same_run_gives_the_same_bytes(traced_lake: Lake, tmp_path: Path) -> None:
    one, other = tmp_path / "one.json.gz", tmp_path / "other.json.gz"
    read(traced_lake, one)
    read(traced_lake, other)
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["r", "--limit", "5"],
            "r has 13 events there, and at most 5 are written (choose steps, for example --steps 0",
        ),
        (["r", "--steps", "9"], "r has no events there (it has steps 0 to 1)"),
        (["r", "--steps", "2:1"], "expected FIRST:LAST, for example 10:12"),
        (["r", "--steps", "x"], "expected FIRST:LAST, for example 10:12"),
        (["q"], "no run 'q' with a trace"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_written_is_told_and_leaves_no_file(
    traced_lake: Lake, tmp_path: Path, words: list[str], answer: str
) -> None:
    out = tmp_path / "out" / "r.json"
    out.parent.mkdir()
    done = ask(traced_lake, *words, "--perfetto", str(out))
    assert done.exit_code == 2
    assert answer in done.stderr
    assert list(out.parent.iterdir()) == []
