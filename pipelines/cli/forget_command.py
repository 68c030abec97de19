"""The command `teetotal forget`; what it needs is imported when it runs."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from lake.errors import EvidenceRejected
from pipelines.cli import session

if TYPE_CHECKING:
    from pipelines.cli.forget import Forgotten
    from pipelines.settings import Settings

_FAILED = 1


@click.command()
@click.argument("run_ids", nargs=-1, required=True, metavar="RUN…")
@click.option("--yes", "is_confirmed", is_flag=True, help="Do not ask; needed where there is no terminal to ask on.")
@click.pass_obj
def forget(chosen: Settings, run_ids: tuple[str, ...], is_confirmed: bool) -> None:
    """Remove runs for good: landed files, rows in every version of every table, and Dagster's records of them.

    Pairs and comparisons are computed again without them. There is no way back but to land the files again. Repeat the
    command if it was stopped: it goes on where it was.
    """
    from pipelines.cli.forget import find_runs, forget_runs, list_mentions

    for one in find_runs(chosen, run_ids):
        session.print_lines(
            f"{one.run_id}: {one.landed_files:,} files in {chosen.landing}, {one.rows:,} rows in {one.tables:,} tables "
            f"of {chosen.lake}"
        )
    if not is_confirmed:
        if not sys.stdin.isatty():
            raise EvidenceRejected(
                "nothing was removed: this cannot be undone, and there is no terminal to ask on",
                f"teetotal forget {' '.join(run_ids)} --yes",
            )
        click.confirm("Remove all of it? This cannot be undone", abort=True)
    done = forget_runs(chosen, run_ids, partial(session.print_lines, err=True))
    _print_removed(done)
    for line in list_mentions(session.open_lake(chosen), run_ids):
        session.print_lines(line)
    if done.fault is not None:
        session.print_lines(f"teetotal: pairs or comparisons could not be computed without it: {done.fault}", err=True)
        raise SystemExit(_FAILED)


def _print_removed(done: Forgotten) -> None:
    for one in done.tables:
        if one.rows or one.files:
            session.print_lines(
                f"  {one.table}: {one.rows:,} rows removed, {one.files:,} data files ({one.bytes:,} bytes) deleted"
            )
    session.print_lines(
        f"forgotten: {done.landed_files:,} landed files ({done.landed_bytes:,} bytes); "
        f"{sum(one.rows for one in done.tables):,} rows, {sum(one.files for one in done.tables):,} data files "
        f"({sum(one.bytes for one in done.tables):,} bytes, of all versions); the history of {len(done.tables)} tables"
    )
    session.print_lines(
        f"Dagster: {done.launches:,} launches and {done.events:,} events; {done.pages:,} pages of checks; "
        f"baselines: {', '.join(done.baselines) or 'none named it'}"
    )
    session.print_lines("not removed: pages, exports and backups that you made of it yourself")
