"""The command `teetotal verify`; what it needs is imported when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from pipelines.settings import Settings


@click.command()
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="Only this run; may be given again.")
@click.pass_obj
def verify(chosen: Settings, run_ids: tuple[str, ...]) -> None:
    """Read every data file, and list those that are missing or not what was written.

    Exit status 1 where there is one. `teetotal run --full RUN_ID` builds it again.
    """
    from pipelines.cli.verification import advise, format_damage, verify_lake

    found = verify_lake(session.open_built_lake(chosen), run_ids)
    for damage in found.damages:
        click.echo(format_damage(damage), err=True)
    for line in advise(found.damages):
        click.echo(line, err=True)
    click.echo(f"{found.files:,} files ({found.bytes / 1e6:,.1f} MB) verified, {len(found.damages):,} damaged")
    if found.damages:
        raise SystemExit(1)
