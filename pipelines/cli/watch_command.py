"""The command `teetotal watch`; what it needs is imported when it runs."""

from __future__ import annotations

import json
import sys
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from rich.console import Group

    from pipelines.cli.watching import Standing
    from pipelines.settings import Settings

_MOST_SLOWDOWN = 1000.0
_MOST_ROWS = 12


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--max-slowdown", type=float, metavar="RATIO", help="End by the gate's rules; at once where exceeded.")
@click.option("--against", metavar="RUN", help="The gate's baseline; else the one that the lake pairs the run with.")
@click.option("--interval", type=click.FloatRange(0.05), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object per line.")
@click.pass_obj
def watch(
    chosen: Settings, run_id: str, max_slowdown: float | None, against: str | None, interval: float, is_json: bool
) -> None:
    """Show a run while it grows: step time, slowdown and violations, whenever files have come.

    Ends when the run is closed. Exit status 0, or 1 where it could not be read; with --max-slowdown that of
    `teetotal gate`: 0 within, 1 exceeded (at once, also while it is open), 3 undecided.
    """
    if max_slowdown is not None and not 0 < max_slowdown <= _MOST_SLOWDOWN:
        raise click.BadParameter(f"{max_slowdown}: expected a ratio such as 1.05", param_hint="--max-slowdown")
    if against is not None and max_slowdown is None:
        raise click.UsageError("--against names the baseline of --max-slowdown")
    from lake.attestation_keys import load_keys
    from pipelines.cli import watching

    limit = None if max_slowdown is None else watching.Limit(max_slowdown, against)
    launch = watching.make_launch(chosen, run_id, partial(session.print_lines, err=True))
    following = watching.Watch(chosen, run_id, load_keys(chosen.attestation_keys), launch, interval, limit)
    with _open_view(run_id, is_json=is_json) as show:
        last = _show_all(following.follow(), show)
    raise SystemExit(watching.find_exit(last, limit))


def _show_all(standings: Iterable[Standing], show: Callable[[Standing], None]) -> Standing:
    """Show each standing as it comes; gives the last one, of which there is always one."""
    last: deque[Standing] = deque(maxlen=1)
    for found in standings:
        show(found)
        last.append(found)
    return last[0]


def _open_view(run_id: str, *, is_json: bool) -> AbstractContextManager[Callable[[Standing], None]]:
    """What shows a standing: JSON, a table that is drawn anew on a terminal, else lines."""
    from contextlib import nullcontext

    if is_json:
        return nullcontext(lambda found: click.echo(json.dumps(found.describe())))
    return _LiveView(run_id) if sys.stdout.isatty() else nullcontext(_print_standing)


def _print_standing(found: Standing) -> None:
    from pipelines.cli import watching

    session.print_lines(watching.format_line(found))
    for warning in watching.list_warnings(found):
        session.print_lines(f"  {warning}")
    sys.stdout.flush()


class _LiveView:
    """A table of the last standings on a terminal, drawn anew with each; the last one stays."""

    def __init__(self, run_id: str) -> None:
        from rich.live import Live

        self._run_id = run_id
        self._rows: deque[Standing] = deque(maxlen=_MOST_ROWS)
        self._live = Live(self._draw(), console=session.console(), refresh_per_second=4)

    def __enter__(self) -> Callable[[Standing], None]:
        self._live.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _show(self, found: Standing) -> None:
        self._rows.append(found)
        self._live.update(self._draw(), refresh=True)

    def _draw(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        from pipelines.cli import watching
        from report.terminal_text import make_printable

        table = Table(title=Text(f"{self._run_id}, as its files come (Ctrl-C ends the watch, not the run)"))
        for name in ("state", "files", "step", "slowdown", "violations", "took"):
            table.add_column(name, justify="left" if name == "state" else "right")
        for found in self._rows:
            table.add_row(*(Text(make_printable(cell)) for cell in watching.list_cells(found).values()))
        last = list(self._rows)[-1:]
        lines = [line for found in last for line in (found.verdict, *watching.list_warnings(found)) if line]
        return Group(table, *(Text(make_printable(line)) for line in lines))
