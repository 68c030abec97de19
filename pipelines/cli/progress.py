"""What a person sees while work goes on: a line per tier and check; on a terminal also a bar per file with its rows."""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
import weakref
from collections import defaultdict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from assets.build.context import BuildListener
from lake import locks
from report.terminal_text import make_printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assets.build.tiers import TierResult
    from bronze.read_file import Progress as Report
    from lake.errors import LakeError
    from lake.landed_files import LandedFile
    from lake.snapshot import Written
    from pipelines.cli.run import Outcome

_NOUNS = {
    "bronze.trace_events": "events",
    "bronze.nsys_events": "Nsight rows",
    "bronze.training_log": "training records",
    "bronze.collective_records": "collective records",
    "bronze.device_samples": "readings",
    "bronze.attestations": "tokens",
    "bronze.copy_rates": "copy rates",
    "bronze.recording_statements": "signed files",
    "silver.spans": "spans",
    "silver.crossings": "crossings",
    "gold.time_breakdown": "steps",
}

# Counted only where there are any.
_UNCOMMON = {
    "bronze.nsys_events",
    "bronze.training_log",
    "bronze.collective_records",
    "bronze.device_samples",
    "bronze.attestations",
    "bronze.copy_rates",
    "bronze.recording_statements",
}


class ProgressListener(BuildListener):
    """Remembers what became of each run, and tells what begins and ends; bars are drawn on a terminal alone."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._screen = None if is_quiet else _find_screen()
        if self._screen is not None:
            weakref.finalize(self, os.close, self._screen)
        self._drawing = threading.Lock()
        self._numbers = itertools.count(1)
        self.total = 0
        self.written: defaultdict[str, list[Written]] = defaultdict(list)
        self.faults: dict[str, LakeError] = {}

    def on_begun(self, what: str) -> None:
        """Say what begins."""
        self._tell(f"{what} …")

    def on_built(self, made: TierResult) -> None:
        """Remember what was written, and say so; a try that succeeds forgets the one that failed."""
        self.written[made.run_id] += made.written
        if made.fault is None and not made.is_fresh:
            rows = sum(written.rows for written in made.written)
            self._tell(f"  {made.run_id}: {made.tier}, {rows:,} rows, {made.seconds:.1f} s")
        if made.fault is None:
            self.faults.pop(made.run_id, None)

    def on_failed(self, run_id: str, fault: LakeError) -> None:
        """Remember why a run goes no further."""
        self.faults[run_id] = fault

    @contextmanager
    def track_files(self, run_id: str, files: Sequence[LandedFile]) -> Iterator[Report]:
        """A teller for the readers of these files; of runs that are read side by side, one is drawn at a time."""
        self._tell(f"{run_id} {next(self._numbers)} of {self.total}")
        if self._screen is None or not os.isatty(self._screen) or not self._drawing.acquire(blocking=False):
            yield lambda _name, _bytes, _rows: None
            return
        try:
            with os.fdopen(self._screen, "w", closefd=False) as screen, _bars(screen, run_id, files) as report:
                yield report
        finally:
            self._drawing.release()

    def _tell(self, text: str) -> None:
        if self._screen is not None:
            with suppress(OSError):  # nobody reads any more: the work goes on
                os.write(self._screen, f"{make_printable(text)}\n".encode())


def _find_screen() -> int | None:
    """Standard error, kept apart, because Dagster turns that of a step into a file; none where it is no file itself."""
    try:
        return os.dup(sys.stderr.fileno())
    except (OSError, ValueError):
        return None


@contextmanager
def show_warnings() -> Iterator[None]:
    """Print the lake's warnings where a person sees them: Dagster turns a step's standard error into a file."""
    number = _find_screen()
    if number is None:
        yield
        return
    with os.fdopen(number, "w") as screen:
        handler = logging.StreamHandler(screen)
        logging.getLogger(locks.__package__).addHandler(handler)
        try:
            yield
        finally:
            logging.getLogger(locks.__package__).removeHandler(handler)


@contextmanager
def _bars(screen: TextIO, run_id: str, files: Sequence[LandedFile]) -> Iterator[Report]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("  {task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TextColumn("{task.fields[rows]:,} rows"),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(file=screen), transient=True) as bars:
        tasks = {
            file.name: bars.add_task(make_printable(f"{run_id}/{file.name}"), total=file.size_bytes, rows=0)
            for file in files
            if file.problem is None
        }
        yield lambda name, source_bytes, rows: bars.update(tasks[name], completed=source_bytes, rows=rows)


def format_outcome(outcome: Outcome) -> str:
    """One line on what became of a run."""
    if outcome.fault is not None:
        return f"{outcome.run_id}: failed: {outcome.fault}"
    if outcome.is_skipped:
        return f"{outcome.run_id}: up to date, nothing to do"
    rows = {written.table: written.rows for written in outcome.written}
    counts = ", ".join(
        f"{rows[table]:,} {name}"
        for table, name in _NOUNS.items()
        if rows.get(table) or (table in rows and table not in _UNCOMMON)
    )
    changed = sum(written.is_changed for written in outcome.written)
    # Until silver is made, nothing but bytes can have been refused.
    rejected = rows.get("silver.rejects", rows.get("bronze.unreadable", 0))
    why = f"; {rejected:,} rejected or unreadable: `teetotal status {outcome.run_id}` says why" if rejected else ""
    return f"{outcome.run_id}: {counts} ({changed} of {len(rows)} tables changed){why}"
