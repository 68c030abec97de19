"""The commands `teetotal what-if` and `teetotal validate`; what they need is imported when they run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from pipelines.settings import Settings

_FORMAT = click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True
)


@click.command("what-if")
@click.argument("run_id", required=False)
@click.option("--regime", metavar="R", help="Predict the run under this regime.")
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change this too: chains, bucket_cap_mib, accumulate, batch_size, …; may be given again.",
)
@click.option("--reveal", is_flag=True, help="Open sealed names: the lines of the run's own code.")
@_FORMAT
@click.pass_obj
def what_if(
    chosen: Settings, run_id: str | None, regime: str | None, given: tuple[str, ...], form: str, *, reveal: bool
) -> None:
    """Predict the step of a run under a regime, or with other settings.

    Without --regime and --set, the usual remedies of the run are ranked by what they save. Without RUN_ID, the best
    remedy of each run in the lake. Every answer is modelled, with the interval that errors on other models support, or
    refused with the reason. Where a trace has Python frames, the lines that copy, wait and launch are named.
    """
    session.announce_work(f"reading {chosen.lake}")
    from pipelines.cli import forecasts, show, source_lines

    lake = session.open_built_lake(chosen)
    change = forecasts.read_change(regime, given)
    rows = forecasts.answer_question(lake, run_id, change)
    if form == "table":
        console = session.console()
        forecasts.print_answers(rows, console)
        if run_id is not None:
            source_lines.print_source_lines(source_lines.read_lines(lake, run_id, reveal=reveal), console)
    else:
        show.write_rows(forecasts.make_reader(rows), form, sys.stdout.buffer)


@click.command()
@click.option(
    "--landing", metavar="PLACE", help="Build what has landed there into a lake that is thrown away, and validate that."
)
@_FORMAT
@click.pass_obj
def validate(chosen: Settings, landing: str | None, form: str) -> None:
    """Compare predictions with what was measured: each run predicted without its model, batch size, world or cap.

    Exit status 1 where a goal is missed or a naive guess does better.
    """
    session.announce_work(f"reading {chosen.lake}")
    from pipelines.cli import show, validation

    with validation.open_checks(chosen, landing) as checks:
        if form == "table":
            lines, is_met = validation.judge(checks)
            for line in lines:
                session.print_lines(line)
        else:
            _, is_met = validation.judge(checks)
            show.write_rows(checks.to_arrow().to_reader(), form, sys.stdout.buffer)
    if not is_met:
        raise SystemExit(1)
