"""The `teetotal` command: one verb a sub-command, one line an error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lake.errors import EvidenceRejected, LakeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pipelines.run import Outcome
    from pipelines.settings import Settings

_FAILED = 1
_WRONG_USAGE = 2


class _Group(click.Group):
    """Turns every error that we can explain into one line and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a known error is told, not traced."""
        try:
            return super().invoke(ctx)
        except LakeError as error:
            click.echo(f"teetotal: {error}", err=True)
            ctx.exit(_WRONG_USAGE if isinstance(error, EvidenceRejected) else _FAILED)
        except BrokenPipeError:
            sys.stderr.close()  # the reader of our output has seen enough
            ctx.exit(0)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--lake",
    metavar="PLACE",
    help="Where the tables are (TEETOTAL_LAKE, default data/lake): a path or s3://…",
)
@click.option("--landing", metavar="PLACE", help="Where runs arrive (TEETOTAL_LANDING, default data/landing).")
@click.version_option(package_name="teetotal")
@click.pass_context
def main(ctx: click.Context, lake: str | None, landing: str | None) -> None:
    """What does confidential computing cost this training run, and where is it paid?"""
    from pipelines.settings import settings

    ctx.obj = settings(lake, landing)


@main.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--run-id", metavar="ID", help="Name of the run; else taken from the files' names.")
@click.option("--regime", metavar="R", help="How links are secured: cc_off, hopper_spt_cc, sw_per_hop_aesgcm, …")
@click.option("--baseline", metavar="ID", help="The twin without a TEE.")
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="Any field of run.toml (docs/manifest.md).")
@click.pass_obj
def land(
    chosen: Settings,
    paths: tuple[Path, ...],
    run_id: str | None,
    regime: str | None,
    baseline: str | None,
    given: tuple[str, ...],
) -> None:
    """Put the files of one run (or a directory of them) into the landing zone."""
    from lake.landing_zone import LandingZone
    from pipelines import landing

    fields = dict(_pair(text) for text in given)
    fields |= {name: value for name, value in (("regime", regime), ("baseline", baseline)) if value}
    name, manifest, count = landing.land(LandingZone(chosen.landing), paths, chosen.limits, run_id=run_id, given=fields)
    click.echo(f"landed {name}: {count} files in {chosen.landing}")
    for key, value in manifest.claims.items():
        click.echo(f"  {key} = {value}")
    click.echo("next: teetotal run")


@main.command()
@click.argument("run_ids", nargs=-1, metavar="[RUN_ID]…")
@click.option("--full", is_flag=True, help="Also what is fresh already.")
@click.pass_obj
def run(chosen: Settings, run_ids: tuple[str, ...], full: bool) -> None:
    """Bring into the lake what is new or has changed (all runs by default)."""
    outcomes = _run(chosen, run_ids, full=full)
    if not outcomes:
        click.echo(f"no runs in {chosen.landing}: land one with `teetotal land`, or try `teetotal demo`")
    if any(outcome.fault for outcome in outcomes):
        raise SystemExit(_FAILED)


@main.command()
@click.pass_obj
def status(chosen: Settings) -> None:
    """Show which runs are fresh, stale or new, and what was kept, merged or rejected, and why."""
    from lake.landing_zone import LandingZone
    from lake.store import Lake
    from pipelines import show
    from pipelines import status as states

    found = states.status(Lake(chosen.lake), LandingZone(chosen.landing))
    if not found.lines and not found.notes:
        click.echo(f"nothing in {chosen.landing} yet: land a run with `teetotal land`, or try `teetotal demo`")
        return
    console = _console()
    if found.lines:
        names = list(found.lines[0])
        show.grid(console, names, found.lines, names[3:])
    for note in found.notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    if found.has_faults:
        raise SystemExit(_FAILED)


@main.command("show")
@click.argument("table")
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="Only this run; may be given again.")
@click.option("--columns", metavar="A,B,…", help="Only these columns.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    default="table",
    show_default=True,
)
@click.option("--limit", type=click.IntRange(min=0), help="At most so many rows (20 for a table; 0: all).")
@click.pass_obj
def show_table(
    chosen: Settings, table: str, run_ids: tuple[str, ...], columns: str | None, form: str, limit: int | None
) -> None:
    """Print a table, for example `teetotal show bronze.runs`."""
    from assets import catalogue
    from lake.store import Lake
    from pipelines import show

    declared = catalogue.table(table)
    lake = Lake(chosen.lake)
    wanted = [name.strip() for name in columns.split(",")] if columns else []
    most = (20 if form == "table" else None) if limit is None else limit or None
    rows = show.relation(lake, declared, run_ids, wanted, most)
    if form != "table":
        show.write(rows, form, sys.stdout.buffer)
        return
    total = show.count(lake, declared, run_ids)
    show.draw(rows, total, _console())


@main.command()
@click.pass_obj
def demo(chosen: Settings) -> None:
    """Land the bundled recordings, bring them into the lake and take a first look."""
    from lake.landing_zone import LandingZone
    from lake.store import Lake
    from pipelines import demo as bundled
    from pipelines import show

    run_ids = bundled.land_samples(LandingZone(chosen.landing))
    outcomes = _run(chosen, run_ids)
    if any(outcome.fault for outcome in outcomes):
        raise SystemExit(_FAILED)
    console = _console()
    lines = bundled.first_look(Lake(chosen.lake), run_ids)
    console.print()
    show.grid(console, list(lines[0]), lines, list(lines[0])[1:])
    click.echo(
        f"""
Recorded on one NVIDIA H200 with confidential computing off; the `tee` runs seal every ring hop in software
(regime sw_per_hop_aesgcm), the `plain` runs take the same path without crypto. samples/README.md says more.

The tables are a Delta lake in {chosen.lake}. Look around:
  {sys.argv[0]} status
  {sys.argv[0]} show bronze.runs
  {sys.argv[0]} show bronze.trace_events --run {run_ids[-1]} --columns ts_ns,duration_ns,category,name"""
    )


def _run(chosen: Settings, run_ids: Sequence[str], *, full: bool = False) -> list[Outcome]:
    """Run, and say in a line what became of each run."""
    from lake.landing_zone import LandingZone
    from lake.store import Lake
    from pipelines.progress import Watcher
    from pipelines.run import run as run_all

    watcher = Watcher()
    outcomes = run_all(Lake(chosen.lake), LandingZone(chosen.landing), chosen.limits, watcher, run_ids, full=full)
    for outcome in outcomes:
        click.echo(_told(outcome), err=outcome.fault is not None)
    return outcomes


def _told(outcome: Outcome) -> str:
    if outcome.fault is not None:
        return f"{outcome.run_id}: failed: {outcome.fault}"
    if outcome.is_skipped:
        return f"{outcome.run_id}: fresh, nothing to do"
    rows = ", ".join(f"{written.rows:,} {written.table.partition('.')[2]}" for written in outcome.written)
    return f"{outcome.run_id}: {rows}{'' if any(w.is_changed for w in outcome.written) else ' (unchanged)'}"


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    return key, value


def _console() -> Console:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = 200  # a pipe or a file has no edge to cut at
    return console
