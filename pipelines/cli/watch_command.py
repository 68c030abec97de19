"""The command `teetotal watch`; what it needs is imported when it runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from pipelines.settings import Settings

_MOST_SLOWDOWN = 1000.0


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
    from pipelines.cli.watch_view import open_view

    limit = None if max_slowdown is None else watching.Limit(max_slowdown, against)
    launch = watching.make_launch(chosen, run_id, partial(session.print_lines, err=True))
    keys = load_keys(chosen.attestation_keys)
    with open_view(run_id, is_json=is_json) as view:
        following = watching.Watch(chosen, run_id, keys, launch, interval, limit, view.note_launch)
        for last in following.follow():
            view.show(last)
    raise SystemExit(watching.find_exit(last, limit))  # there is always one
