"""`python -m pipelines.review`: what a change did to the snapshots; `--gate` fails where no commit says why."""

from __future__ import annotations

from pathlib import Path

import click

from lake.errors import LakeError
from pipelines.cli import session
from pipelines.cli.failures import FAILED, tell_failure
from pipelines.review.page import page
from pipelines.review.snapshots import review_snapshots


@click.command("python -m pipelines.review")
@click.option("--base", metavar="REV", help="Compare with where HEAD left REV (default: the main branch, or HEAD~1).")
@click.option("--full", is_flag=True, help="Print everything, however long; else what fits into a comment.")
@click.option(
    "--gate", is_flag=True, help="Exit with 1 where a snapshot changed without a `Snapshot-Reason:` or lost its test."
)
def main(base: str | None, full: bool, gate: bool) -> None:
    """Print as Markdown which snapshots changed: rows, columns, old and new values, verdicts, and the reasons given."""
    try:
        found = review_snapshots(Path.cwd(), base)
    except LakeError as error:
        raise SystemExit(tell_failure(error)) from None
    for line in page(found, is_full=full).removesuffix("\n").split("\n"):
        session.print_lines(line)
    if gate and found.faults:
        for fault in found.faults:
            session.print_lines(f"teetotal: {fault}", err=True)
        raise SystemExit(FAILED)


if __name__ == "__main__":
    main()
