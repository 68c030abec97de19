"""`python -m benchmarks.fleet FOLDER RUNS…`: what commands take in a lake of ever more runs.

One small run is built as any other; the rest are its partitions under other names, committed in bulk by Delta itself:
a run's name is a partition value and no part of a data file. What grows is what grows in a real lake: log, marks,
listings, files. Every copy has a landing directory of its own and bears its mark, so all runs are up to date.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from assets.build.freshness import mark_landing
from benchmarks.measuring import table as format_table
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.snapshot import mark_of, seen_id

_FIRST = "small-00000"
_SUFFIXES = ("", "@seen", "@bytes", "@stated")
_BATCH = 1_000
_TRACE = """{"traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": %d, "dur": 100},
{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": %d, "dur": 50, "args": {"stream": 7}}
]}"""
_TIDY = """import sys
from assets.build.catalogue import TABLES
from lake.locations import Location
from lake.store import Lake
for table in TABLES.values():
    Lake(Location(sys.argv[1])).tidy(table, 168)
"""
_COMMANDS = {
    "status, first": ("status",),
    "status": ("status",),
    "query of one run": ("query", "SELECT * FROM gold.step_times WHERE run_id = $run", "--param", f"run={_FIRST}"),
    "query of all": ("query", "SELECT count(*) FROM gold.step_times"),
    "report of one": ("report", "--run", _FIRST, "--out", "report.html"),
}
# What the nightly maintenance makes quicker.
_AFTER_MAINTENANCE = ("query of one run", "query of all")


def main(folder: str, *counts: str) -> None:
    """Fill the lake to each size, and time commands and one more run at it."""
    root, rows, there = Path(folder), [], 1
    land(root, _FIRST)
    run_command(root, "run", _FIRST)
    for count in map(int, counts):
        clone(root, there, count)
        there = count
        costs = [run_command(root, *words) for words in _COMMANDS.values()]
        costs.append(tidy(root))
        costs += [run_command(root, *_COMMANDS[name]) for name in _AFTER_MAINTENANCE]
        land(root, f"one-more-{count}")
        costs.append(run_command(root, "run", f"one-more-{count}"))
        costs.append(run_command(root, "status"))
        rows.append([f"{count:,}", *costs])
        print(rows[-1], flush=True)
    print("\nWall and CPU seconds:\n")
    after = [f"{name}, after maintenance" for name in _AFTER_MAINTENANCE]
    print(
        format_table(("runs in the lake", *_COMMANDS, "maintenance", *after, "one more run", "status after it"), rows)
    )


def land(root: Path, run_id: str) -> None:
    """A landing directory with a trace of one step."""
    directory = root / "landing" / run_id
    directory.mkdir(parents=True)
    at = 1000 + sum(run_id.encode())
    (directory / "rank0.json").write_text(_TRACE % (at, at + 10))
    (directory / "run.toml").write_text('regime = "cc_off"\n')


def run_command(root: Path, *words: str) -> str:
    """The seconds that a command takes, its start included, by the clock and of processors."""
    places = ("--lake", str(root / "lake"), "--landing", str(root / "landing"))
    return run_program(root, "-m", "teetotal", *places, *words)


def tidy(root: Path) -> str:
    """The same for what the nightly maintenance does with every table."""
    return run_program(root, "-c", _TIDY, str(root / "lake"))


def run_program(root: Path, *words: str) -> str:
    start, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, *words], cwd=root, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return f"{wall:.1f} / {cpu:.1f}"


def clone(root: Path, first: int, last: int) -> None:
    """Give the lake copies of its first run, up to a number of runs."""
    names = [f"small-{number:05d}" for number in range(first, last)]
    for name in names:
        land(root, name)
    zone = LandingZone(Location(str(root / "landing")))
    seen = {seen_id(name): mark_of(mark_landing(zone, name)) for name in names}
    for log in sorted((root / "lake").glob("*/*/_delta_log")):
        for start in range(0, len(names), _BATCH):
            _clone_table(log.parent, names[start : start + _BATCH], seen)
        DeltaTable(str(log.parent)).create_checkpoint()  # which a lake that is filled run by run has every 20 commits


def _clone_table(place: Path, names: list[str], seen: dict[str, int]) -> None:
    handle = DeltaTable(str(place))
    parts = handle.metadata().partition_columns
    if parts[0] != "run_id":
        return
    files = pl.DataFrame(handle.get_add_actions(flatten=True)).filter(pl.col("partition.run_id") == _FIRST).to_dicts()
    adds = []
    for name in names:
        for file in files:
            path = file["path"].replace(f"run_id={_FIRST}", f"run_id={name}")
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            _link(place / file["path"], place / path)
            values = {part: name if part == "run_id" else str(file[f"partition.{part}"]) for part in parts}
            lows = {key[4:]: value for key, value in file.items() if key.startswith("min.") and value is not None}
            highs = {key[4:]: value for key, value in file.items() if key.startswith("max.") and value is not None}
            stats = {"numRecords": file["num_records"], "minValues": lows, "maxValues": highs, "nullCount": {}}
            adds.append(AddAction(path, file["size_bytes"], values, 0, True, json.dumps(stats, default=str)))
    known = {suffix: handle.transaction_version(f"{_FIRST}{suffix}") for suffix in _SUFFIXES}
    apps = {f"{name}{end}": mark for name in names for end, mark in known.items() if mark is not None}
    marks = [Transaction(app, seen.get(app, mark)) for app, mark in apps.items()]
    handle.create_write_transaction(
        list(adds), "append", handle.schema(), parts, commit_properties=CommitProperties(app_transactions=marks)
    )


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file has only so many names
        shutil.copyfile(source, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
