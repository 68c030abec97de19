"""How `teetotal watch` shows a run: a table that is drawn anew on a terminal, lines in a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pipelines.cli import session, watching
from report.terminal_text import make_printable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Protocol

    from rich.console import Console

    from pipelines.cli.watching import Standing

    class View(Protocol):
        """What is told of a watch, and shows it."""

        def show(self, found: Standing) -> None:
            """Show where the run stands now."""

        def note_launch(self, is_begun: bool) -> None:
            """A launch reads what has come; or it has ended, and more files are waited for."""


_MOST_ROWS = 50
# From the second width on only how far the run has come is wrapped; from the third on columns stand apart.
_LEAST_WIDTH, _ENOUGH_WIDTH, _AMPLE_WIDTH = 5, 80, 100


def open_view(run_id: str, *, is_json: bool) -> AbstractContextManager[View]:
    """The view that what reads our output takes."""
    if is_json:
        return nullcontext(JsonView())
    return LiveView(run_id, session.console()) if sys.stdout.isatty() else nullcontext(LineView())


class LineView:
    """One line per standing, and the warnings below it."""

    def show(self, found: Standing) -> None:
        """Write it."""
        session.print_lines(watching.format_line(found))
        for warning in watching.list_warnings(found):
            session.print_lines(f"  {warning}")
        sys.stdout.flush()

    def note_launch(self, is_begun: bool) -> None:
        """Say nothing: a log is for what was found."""


class JsonView(LineView):
    """One JSON object per line."""

    def show(self, found: Standing) -> None:
        """Write it."""
        click.echo(json.dumps(found.describe()))


class LiveView:
    """A table of as many of the last standings as the terminal shows, drawn anew each second; it stays."""

    def __init__(self, run_id: str, console: Console) -> None:
        self._run_id = run_id
        self._console = console
        self._rows: deque[tuple[str, Standing]] = deque(maxlen=_MOST_ROWS)
        self._doing: tuple[str, float] | None = None
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=1)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._doing = None
        self._live.stop()

    def show(self, found: Standing) -> None:
        """Add a row."""
        self._rows.append((time.strftime("%H:%M:%S"), found))
        self._live.refresh()

    def note_launch(self, is_begun: bool) -> None:
        """Say below the table what is done now, and since when."""
        self._doing = ("reading what has come" if is_begun else "waiting for more files", time.monotonic())
        self._live.refresh()

    def _draw(self) -> Group:
        """The table without its oldest rows where the terminal is too low: what is said below it must be seen."""
        below = [*self._list_notes(), *self._list_doing()]
        rows = list(self._rows)
        while True:
            drawn = Group(*([self._draw_table(rows)] if rows else []), *below)
            lines_count = len(self._console.render_lines(drawn, pad=False))
            if len(rows) <= 1 or lines_count < self._console.height:
                return drawn
            rows = rows[1:]

    def _draw_table(self, rows: list[tuple[str, Standing]]) -> Table:
        table = Table(
            title=Text(make_printable(f"{self._run_id}, as its files come"), style="bold"),
            title_justify="left",
            box=SIMPLE_HEAD,
            show_edge=False,
            padding=(0, 1, 0, 0) if self._console.width >= _AMPLE_WIDTH else 0,
        )
        for name in ("at", *watching.list_cells(rows[0][1])):
            is_text = name in {"at", "so far"}
            is_kept = name != "so far" and self._console.width >= _ENOUGH_WIDTH
            table.add_column(name, justify="left" if is_text else "right", no_wrap=is_kept, min_width=_LEAST_WIDTH)
        for at, found in rows:
            style = "red" if found.violations_count or found.fault is not None else ""
            cells = [make_printable(cell) for cell in watching.list_cells(found).values()]
            table.add_row(at, *map(Text, cells), style=style)
        return table

    def _list_notes(self) -> list[Text]:
        """The verdict of the last standing, and what a person should know beside it."""
        if not self._rows:
            return []
        _, last = self._rows[-1]
        verdict = [] if last.verdict is None else [Text(make_printable(last.verdict))]
        return [*verdict, *(Text(make_printable(each), style="bold") for each in watching.list_warnings(last))]

    def _list_doing(self) -> list[Text]:
        if self._doing is None:
            return []
        what, since = self._doing
        how_long = timedelta(seconds=int(time.monotonic() - since))
        return [Text(f"{what}, {how_long}; Ctrl-C ends the watch, not the run", style="dim")]
