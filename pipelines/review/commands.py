"""The commands `teetotal snapshots review` and `teetotal snapshots gate`; what they need is imported when they run."""

from __future__ import annotations

from pathlib import Path

import click

from pipelines.cli import session

_BASE = click.option(
    "--base", metavar="REV", help="Compare with where HEAD left this revision (default: the main branch, or HEAD~1)."
)
_FULL = click.option("--full", is_flag=True, help="Everything, however long; else what fits into a comment.")


@click.group()
def snapshots() -> None:
    """What a change did to the snapshots, for whoever reviews it."""


@snapshots.command("review")
@_BASE
@_FULL
def review_snapshots(base: str | None, full: bool) -> None:
    """Print, as Markdown, which snapshots changed: rows, columns, old and new, verdicts, and the reasons given."""
    from pipelines.review.page import page
    from pipelines.review.snapshots import review_snapshots

    _print(page(review_snapshots(Path.cwd(), base), is_full=full))


@snapshots.command("gate")
@_BASE
@_FULL
def gate_snapshots(base: str | None, full: bool) -> None:
    """Print the review; exit with 1 if a changed snapshot has no `Snapshot-Reason:` in a commit, or lost its test."""
    from pipelines.review.page import page
    from pipelines.review.snapshots import review_snapshots

    found = review_snapshots(Path.cwd(), base)
    _print(page(found, is_full=full))
    for fault in found.faults:
        session.print_lines(f"teetotal: {fault}", err=True)
    if found.faults:
        raise SystemExit(1)


def _print(text: str) -> None:
    for line in text.removesuffix("\n").split("\n"):
        session.print_lines(line)
