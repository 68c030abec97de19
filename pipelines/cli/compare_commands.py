"""The commands `teetotal compare` and `teetotal export`; what they need is imported when they run."""

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
    session.announce_work(f"reading {chosen.lake}")
    from assets.build.run_comparison import compare_runs_of
    from pipelines.cli import comparing

    found = compare_runs_of(session.open_built_lake(chosen), baseline, candidate, chosen.margin)
    answer = comparing.describe_comparison(found)
    if form == "json":
        click.echo(comparing.format_json(answer))
    else:
        comparing.print_comparison(answer, session.console())
    if html is not None:
        size = comparing.write_html(found, html)
        session.print_lines(f"{html}: {size / 1e6:.1f} MB", err=True)


@click.command()
@click.argument("run_id")
@click.option(
    "--perfetto",
    "out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The trace to write; compressed where its name ends in .gz.",
)
@click.option("--steps", "steps", metavar="FIRST:LAST", help="Only what these steps did or launched.")
@click.option("--limit", type=click.IntRange(min=1), help="Most events to write (1,000,000).")
@click.pass_obj
def export(chosen: Settings, run_id: str, out: Path, steps: str | None, limit: int | None) -> None:
    """Write a run as a trace for Perfetto's UI, with steps, crossings, seals, exposed time and waits as tracks.

    All ranks are on one clock where their offsets are known. Open it at ui.perfetto.dev or in chrome://tracing.
    """
    session.announce_work(f"reading {chosen.lake}")
    from pipelines.cli import export as exporting

    wanted = exporting.read_steps(steps)
    written = exporting.export_trace(
        session.open_built_lake(chosen), run_id, out, wanted, limit or exporting.MOST_EVENTS
    )
    counts = ", ".join(f"{count:,} {kind}" for kind, count in written.counts.items())
    session.print_lines(f"{out}: {counts}; {written.size_bytes / 1e6:.1f} MB")
    for note in written.notes:
        session.print_lines(f"note: {note}")
