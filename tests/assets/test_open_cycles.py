"""An open run that counts its last cycles alone: its answers are those of these cycles until it is closed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from assets.build import chunking, silver
from assets.build.catalogue import TABLES, list_required
from assets.build.tiers import select_tables
from bronze import trace_events
from lake.engines import engine
from lake.identity import MANIFEST, OPEN
from silver import recordings
from silver import runs as silver_runs
from tests.assets.test_open_runs import ALL, NCCL_LOG, RUN, build, count_parsed, open_run
from tests.support.campaigns import pick_engines, pick_size
from tests.support.sample_tables import digests, trace

if TYPE_CHECKING:
    from tests.conftest import LandFiles

CYCLE_NS = 10_000_000_000
# With a warm-up that lies in the first cycle.
LAST_TWO = 'regime = "cc_off"\nwarmup_steps_count = 3\nopen_cycles_count = 2\n'
# What of silver is made of events themselves, and what the row of a run takes.
OF_EVENTS, OF_RUN = (select_tables(list_required([name])) for name in ("silver.rule_counts", "silver.runs"))
# What tells of the run and of its files, whichever of them count.
OF_ALL_FILES = ("silver.runs", "silver.recordings")


def make_cycle(rank: int, cycle: int) -> bytes:
    """A trace of one cycle: three steps, an event that is refused, and a byte range that nobody can read."""
    base = 1_700_000_000_000_000_000
    data = trace(rank, 60, seed=cycle, world_size=2).replace(b"%d" % base, b"%d" % (base + cycle * CYCLE_NS))
    steps = (
        f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{3 * cycle + step}", "pid": 1, "tid": 1, '
        f'"ts": {5000 + 3000 * step}, "dur": {2900 + 10 * step + 7 * cycle}}}'
        for step in range(3)
    )
    refused = '{"ph": "X", "cat": "cpu_op", "name": "backwards", "pid": 1, "tid": 1, "ts": 9000, "dur": -5}'
    unreadable = f'{{"ph": "X", "name": nonsense {cycle}}}'
    more = ", ".join([*steps, refused, unreadable])
    return data.replace(b'"traceEvents": [', b'"traceEvents": [\n' + more.encode() + b",")


def make_cycles(first: int, last: int) -> dict[str, bytes]:
    """The traces of two ranks, and a log that is as long as ever."""
    traces = {f"cycle{cycle}-r{rank}.json": make_cycle(rank, cycle) for cycle in range(first, last) for rank in (0, 1)}
    return {**traces, "nccl.log": NCCL_LOG, "NOTES.md": b"# nothing to measure\n"}


def write_files(directory: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (directory / name).write_bytes(data)


def list_answers(land_files: LandFiles) -> dict[str, str]:
    """What silver and gold hold of the run, by the digests of their tables."""
    found = digests(land_files.lake, RUN, [table for table in ALL if table.tier != "bronze"])
    return {name: digest for name, digest in found.items() if name not in OF_ALL_FILES}


@pytest.mark.parametrize(
    ("engine_name", "chunk_events", "is_sealed"),
    [("polars", pick_size(100, 50), True), *((name, 62_500, False) for name in pick_engines())],
)
def test_an_open_run_that_counts_its_last_cycles_has_the_answers_of_these_alone(
    land_files: LandFiles, monkeypatch: pytest.MonkeyPatch, engine_name: str, chunk_events: int, is_sealed: bool
) -> None:
    monkeypatch.setattr(chunking, "CHUNK_EVENTS", chunk_events)
    if is_sealed:
        land_files = replace(land_files, lake=land_files.lake.sealing_bronze())
    files = make_cycles(0, 4)
    copied = {"again.json": files["cycle0-r1.json"]}  # of a file that does not count
    directory = open_run(land_files)
    write_files(directory, make_cycles(2, 4))
    land_files.materialise(RUN)
    build(land_files, RUN, engine_name)
    alone = list_answers(land_files)
    assert len(set(alone.values())) > 10
    write_files(directory, {MANIFEST: LAST_TWO.encode(), **files, **copied})
    land_files.materialise(RUN)
    build(land_files, RUN, engine_name)
    assert list_answers(land_files) == alone
    counted = land_files.read(RUN).files.filter(pl.col("outcome") == "kept", pl.col("is_counted"))
    assert counted["file_name"].to_list() == [*sorted(name for name in make_cycles(2, 4) if name != "NOTES.md")]
    (run,) = land_files.lake.scan(silver_runs.TABLE, [RUN]).collect().to_dicts()
    assert (run["so_far"], run["found_steps_count"], run["cycles_count"]) == ("so far, the last 2 of 4 cycles", 12, 4)
    (recording,) = land_files.lake.scan(recordings.TABLE, [RUN]).collect().to_dicts()
    assert recording["files_count"] == len(files) + len(copied)  # whoever signs, signs all


def test_duckdb_reads_the_cycles_that_polars_reads(land_files: LandFiles) -> None:
    """Of what asks which files count, and of what holds that no event is lost; in the soak it makes all tables."""
    directory = open_run(land_files, LAST_TWO)
    write_files(directory, make_cycles(0, 4))
    land_files.materialise(RUN)
    build(land_files, tables=OF_EVENTS)
    told = [TABLES[f"silver.{name}"] for name in ("rejects", "steps", "spans", "rule_counts")]
    assert all(land_files.lake.snapshot(table).partition(RUN).rows for table in told)
    again = silver.materialise(land_files.lake, RUN, engine("duckdb"), told)
    assert not any(written.is_changed for written in again)


def test_a_closed_run_counts_all_of_its_cycles_and_an_open_one_that_has_no_more_than_asked_for_too(
    land_files: LandFiles,
) -> None:
    directory = open_run(land_files, LAST_TWO)
    write_files(directory, make_cycles(0, 2))
    land_files.materialise(RUN)
    build(land_files, tables=OF_RUN)
    assert land_files.read(RUN).files["is_counted"].all()
    (run,) = land_files.lake.scan(silver_runs.TABLE, [RUN]).collect().to_dicts()
    # Three of each rank are claimed, and nothing runs in its last one.
    assert (run["so_far"], run["found_steps_count"], run["found_warmup_steps_count"]) == ("so far, 2 cycles", 12, 8)
    write_files(directory, make_cycles(2, 4))
    land_files.materialise(RUN)
    build(land_files)
    so_far = list_answers(land_files)
    (directory / MANIFEST).write_text(LAST_TWO.replace("= 2", "= 1"), "utf-8")
    assert count_parsed(land_files) == {}
    assert land_files.read(RUN).files.filter(~pl.col("is_counted"))["file_name"].len() == 6
    (directory / MANIFEST).write_text(LAST_TWO, "utf-8")
    (directory / OPEN).unlink()
    land_files.materialise(RUN)
    build(land_files)
    closed = digests(land_files.lake, RUN, ALL)
    assert list_answers(land_files) != so_far
    shutil.rmtree(land_files.lake.place.directory)
    land_files.materialise(RUN)
    build(land_files)
    assert digests(land_files.lake, RUN, ALL) == closed


def test_cycles_that_do_not_count_are_not_read_again(land_files: LandFiles) -> None:
    directory = open_run(land_files, LAST_TWO)
    write_files(directory, make_cycles(0, 4))
    land_files.materialise(RUN)
    files = land_files.read(RUN).files.filter(~pl.col("is_counted"))
    assert sorted(files["file_name"].to_list()) == sorted(
        name for name in make_cycles(0, 2) if name.startswith("cycle")
    )
    stored = [Path(one) for one in land_files.lake.files(trace_events.TABLE, [RUN])]
    earlier = [path for path in stored if any(sha256 in str(path) for sha256 in files["source_sha256"])]
    assert len(earlier) == 4
    for path in earlier:  # as long as before: what opens one of them fails
        path.write_bytes(bytes(path.stat().st_size))
    build(land_files)
    (run,) = land_files.lake.scan(silver_runs.TABLE, [RUN]).collect().to_dicts()
    assert run["found_steps_count"] == 12
