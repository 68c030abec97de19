"""`python -m benchmarks.deliberate_faults`: break one law at a time in a copy of the project, and see which test fails.

Each fault is one that a change might bring in unnoticed. A fault that its tests do not catch is an error here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import table as format_table

_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Fault:
    """A line that is put in the place of another, and the tests that have to notice."""

    what: str
    path: str
    before: str
    after: str
    tests: str


FAULTS = (
    Fault(
        "an event is lost",
        "bronze/event_rows.py",
        "        count = decoded.num_rows\n",
        "        decoded, offsets = decoded.slice(0, decoded.num_rows - 1), offsets[:-1]\n"
        "        residue = None if residue is None else residue[:-1]\n"
        "        count = decoded.num_rows\n",
        "tests/bronze/test_recordings.py",
    ),
    Fault(
        "a part is counted twice",
        "gold/time_breakdown.py",
        """_ns", upto - before\n""",
        """_ns", upto\n""",
        "tests/gold/test_time_breakdown.py",
    ),
    Fault(
        "a column stays in plain text",
        "lake/sealing.py",
        "        rows = _replace_column(rows, column, tokens)\n",
        "        rows = rows if column.is_free_text else _replace_column(rows, column, tokens)\n",
        "tests/lake/test_sealing.py",
    ),
    Fault(
        "a query is put together from values",
        "lake/reader.py",
        '"SELECT * FROM read_parquet(?, hive_partitioning = true, hive_types = ?)"',
        'f"SELECT * FROM read_parquet(?, hive_partitioning = true, hive_types = ?) -- {table.name}"',
        "tests/house/test_queries.py",
    ),
    Fault(
        "a stale partition is served",
        "assets/build/freshness.py",
        "    if snapshot.is_made_from(partition, made_from):\n",
        "    if snapshot.mark(partition) is not None:\n",
        "tests/assets/test_up_to_date.py",
    ),
    Fault(
        "engines disagree",
        "lake/frames.py",
        "    return nw.when(rest < 0).then(near - one).otherwise(",
        "    return near if near is not None else nw.when(rest < 0).then(near - one).otherwise(",
        "tests/gold/test_kernel_breakdown.py",
    ),
    Fault(
        "a kill between data and commit loses rows",
        "lake/store.py",
        "            stage.settle([*added, *repaired], self._disk)\n",
        "            stage.settle([*added, *repaired], self._disk)\n"
        "        for path in before.keys() - units.keys():\n"
        "            (self.root(stage.table).directory / path).unlink()\n",
        "tests/lake/test_durability.py",
    ),
    Fault(
        "a unit is wrong",
        "bronze/trace_events.sql",
        "floor(e.dur)::BIGINT * 1000 +",
        "floor(e.dur)::BIGINT * 1024 +",
        "tests/bronze/test_recordings.py",
    ),
    Fault(
        "a refused file is swallowed",
        "silver/rejects.py",
        "        _files(sources),\n",
        "",
        "tests/silver/test_rejects.py",
    ),
    Fault(
        "an edge of the lineage is missing",
        "lake/lineage/recorder.py",
        "            for table in inputs\n",
        "            for table in list(inputs)[1:]\n",
        "tests/lake/test_statements.py",
    ),
    Fault(
        "a verdict is false",
        "gold/inference.py",
        "    if p_value < LEVEL:\n",
        "    if p_value < 0.5:\n",
        "tests/gold/test_inference.py",
    ),
    Fault(
        "a snapshot changes without a reason",
        "pipelines/review/snapshots.py",
        '    """Why this change is not explained; None where it is."""\n',
        '    """Why this change is not explained; None where it is."""\n    return None\n',
        "tests/pipelines/test_snapshot_gate.py",
    ),
)


def main(*words: str) -> None:
    """Try all faults, or those whose names hold one of these words."""
    chosen = [fault for fault in FAULTS if not words or any(word in fault.what for word in words)]
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copy = Path(folder) / "project"
        subprocess.run(["git", "clone", "--quiet", str(_ROOT), str(copy)], check=True)  # noqa: S607
        rows = [try_fault(copy, fault) for fault in chosen]
    print(format_table(("fault", "where", "the first test that fails", "s"), rows))
    if any(not test for _, _, test, _ in rows):
        raise SystemExit("not every fault was noticed")


def try_fault(copy: Path, fault: Fault) -> list[str]:
    """Put the fault in, ask the tests until one fails, and take it out again."""
    path = copy / fault.path
    sound = path.read_text()
    if sound.count(fault.before) != 1:
        raise SystemExit(f"{fault.path} has not once {fault.before!r}: say where the fault goes now")
    path.write_text(sound.replace(fault.before, fault.after))
    begun = time.perf_counter()
    words = ["-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "-rfE", fault.tests]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(
        [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    path.write_text(sound)
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    row = [fault.what, f"`{fault.path}`", f"`{named[1]}`" if named else "", f"{time.perf_counter() - begun:.0f}"]
    print(row, flush=True)
    return row


if __name__ == "__main__":
    main(*sys.argv[1:])
