"""What a person sees while work goes on: a bar per file with bytes and rows, on a terminal; silence elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from bronze.land import Progress as Told
    from lake.landing_zone import LandedFile


class Watcher:
    """Names each run as it starts and shows a bar for each of its files."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def runs(self, run_ids: Sequence[str]) -> Iterator[str]:
        """The same ids, one by one, each announced."""
        for number, run_id in enumerate(run_ids, 1):
            if self._console.is_terminal:
                self._console.print(f"[bold]{run_id}[/] [dim]{number} of {len(run_ids)}[/]", highlight=False)
            yield run_id

    @contextmanager
    def files(self, files: Sequence[LandedFile]) -> Iterator[Told]:
        """A teller for the readers of these files."""
        if not self._console.is_terminal:
            yield lambda _name, _bytes, _rows: None
            return
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(),
            DownloadColumn(),
            TextColumn("{task.fields[rows]:,} rows"),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as bars:
            tasks = {
                file.name: bars.add_task(file.name, total=file.size_bytes, rows=0)
                for file in files
                if file.problem is None
            }
            yield lambda name, source_bytes, rows: bars.update(tasks[name], completed=source_bytes, rows=rows)
