"""What a person sees while work goes on: a bar per file with bytes and rows, on a terminal; silence elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bronze.read_file import Progress as Told
    from lake.landing_zone import LandedFile


class Watcher:
    """Names each run as it starts and shows a bar for each of its files."""

    def __init__(self) -> None:
        self._is_watched = sys.stderr.isatty()  # the drawing library is loaded only where someone looks

    def runs(self, run_ids: Sequence[str]) -> Iterator[str]:
        """The same ids, one by one, each announced."""
        for number, run_id in enumerate(run_ids, 1):
            if self._is_watched:
                sys.stderr.write(f"{run_id} {number} of {len(run_ids)}\n")
            yield run_id

    @contextmanager
    def files(self, files: Sequence[LandedFile]) -> Iterator[Told]:
        """A teller for the readers of these files."""
        if not self._is_watched:
            yield lambda _name, _bytes, _rows: None
            return
        from rich import progress
        from rich.console import Console

        columns = (
            progress.TextColumn("  {task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TextColumn("{task.fields[rows]:,} rows"),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
        )
        with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            tasks = {
                file.name: bars.add_task(file.name, total=file.size_bytes, rows=0)
                for file in files
                if file.problem is None
            }
            yield lambda name, source_bytes, rows: bars.update(tasks[name], completed=source_bytes, rows=rows)
