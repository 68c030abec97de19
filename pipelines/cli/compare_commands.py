"""The command `teetotal compare`; what it needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from pipelines.settings import Settings


@click.command()
@click.argument("baseline", metavar="A")
@click.argument("candidate", metavar="B")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write it as a page too.")
@click.pass_obj
def compare(chosen: Settings, baseline: str, candidate: str, form: str, html: Path | None) -> None:
    """Compare any two runs of the lake: is B slower than A, where, and what changed.

    A and B are runs, each with its repeats (repeat_of), or run ids with commas between them. What differs in their
    manifests comes first. The verdict needs 3 runs per side; with fewer, it says how many would settle it.
    """
    from assets.build.run_comparison import compare_runs_of
    from pipelines.cli import comparing

    found = compare_runs_of(session.open_lake(chosen), baseline, candidate, chosen.margin)
    told = comparing.describe_comparison(found)
    if form == "json":
        click.echo(comparing.format_json(told))
    else:
        comparing.print_comparison(told, session.console())
    if html is not None:
        size = comparing.write_html(found, html)
        session.print_lines(f"{html}: {size / 1e6:.1f} MB", err=True)
