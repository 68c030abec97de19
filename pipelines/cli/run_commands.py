"""The commands `teetotal run` and `teetotal demo`; what they need is imported when they run."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from pipelines.cli import session
from pipelines.cli.failures import FAILED
from pipelines.process_costs import keep_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.cli.run import Outcome
    from pipelines.settings import Settings

# Written out: asking `lake.engines` would import every engine for `--help`. A test holds the two equal.
_ENGINES = ("polars", "duckdb", "spark")


@click.command()
@click.argument("run_ids", nargs=-1, metavar="[RUN_ID]…")
@click.option(
    "--engine",
    type=click.Choice(_ENGINES),
    default=_ENGINES[0],
    show_default=True,
    help="Engine that computes the tables.",
)
@click.option("--full", is_flag=True, help="Rebuild tables that are already up to date, pairs and comparisons too.")
@click.option(
    "--check/--no-check", default=True, show_default=True, help="Check what was built against its declarations."
)
@click.option("--to", multiple=True, metavar="TABLE", help="Only this table and what it needs; may be given again.")
@click.option("--quiet", "is_quiet", is_flag=True, help="No lines on progress; only what became of each run.")
@click.pass_obj
def run(
    chosen: Settings,
    run_ids: tuple[str, ...],
    engine: str,
    full: bool,
    check: bool,
    to: tuple[str, ...],
    is_quiet: bool,
) -> None:
    """Bring into the lake what is new or has changed (all runs by default)."""
    outcomes = _run(chosen, run_ids, engine=engine, full=full, check=check, to=to, is_quiet=is_quiet)
    if not outcomes:
        session.print_lines(f"no runs in {chosen.landing}: land one with `teetotal land`, or try `teetotal demo`")
    built = [outcome.run_id for outcome in outcomes if outcome.written and not outcome.is_skipped and not outcome.fault]
    if built and not to and not is_quiet:
        from pipelines.cli import verdicts

        for line in verdicts.summarise_run(session.open_lake(chosen), built):
            session.print_lines(line)
    if any(outcome.fault for outcome in outcomes):
        raise SystemExit(FAILED)


@click.command()
@click.option("--all", "is_all", is_flag=True, help="Take all forty bundled runs, not two pairs with their repeats.")
@click.pass_obj
def demo(chosen: Settings, is_all: bool) -> None:
    """Land bundled recordings, run the pipeline on them, and print what the sealing cost and where."""
    session.print_lines(f"landing the bundled recordings in {chosen.landing} …", err=True)
    from lake.landing_zone import LandingZone
    from pipelines.cli import demo as bundled
    from pipelines.cli import verdicts

    run_ids = bundled.land_samples(LandingZone(chosen.landing, chosen.seals), ("",) if is_all else bundled.FIRST_LOOK)
    outcomes = _run(chosen, run_ids)
    if any(outcome.fault for outcome in outcomes):
        raise SystemExit(FAILED)
    for line in verdicts.format_verdicts(session.open_lake(chosen), run_ids):
        session.print_lines(line)
    closing = f"""
Recorded on one NVIDIA H200 with confidential computing off; the `sealed` runs seal every ring hop in software
(regime sw_per_hop_aesgcm), the `plain` runs take the same path without crypto. samples/README.md says more.

The tables are a Delta lake in {chosen.lake}. Look around:
  {sys.argv[0]} status
  {sys.argv[0]} report
  {sys.argv[0]} show gold.step_overhead --plot
  {sys.argv[0]} show gold.time_breakdown --run bert-base-sealed-w2
  {sys.argv[0]} show silver.crossings --run bert-base-sealed-w2"""
    for line in closing.split("\n"):
        session.print_lines(line)


def _run(
    chosen: Settings,
    run_ids: Sequence[str],
    *,
    engine: str = _ENGINES[0],
    full: bool = False,
    check: bool = True,
    to: Sequence[str] = (),
    is_quiet: bool = False,
) -> list[Outcome]:
    """Run, and say in a line what became of each run; the first line comes before what takes seconds to import."""
    if not is_quiet:
        session.print_lines(f"looking at the runs in {chosen.landing} …", err=True)
    with keep_objects():
        from pipelines.cli.progress import ProgressListener, format_outcome, show_warnings
        from pipelines.cli.run import run as run_all

    tell = partial(session.print_lines, err=True)
    meant = None if is_quiet else session.find_meant_lake(chosen)
    if meant is not None:
        tell(f"note: there is no lake in {chosen.lake} yet, and this run makes it ({meant})")
    with show_warnings():
        outcomes = run_all(
            chosen,
            ProgressListener(is_quiet=is_quiet),
            run_ids,
            engine=engine,
            full=full,
            check=check,
            to=to,
            tell=tell,
        )
    for outcome in outcomes:
        session.print_lines(format_outcome(outcome), err=outcome.fault is not None)
    return outcomes
