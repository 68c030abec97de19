"""The commands `teetotal gate` and `teetotal baseline`; what they need is imported when they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from pipelines.settings import Settings

_MOST_SLOWDOWN = 1000.0


@click.command()
@click.option("--run", "run_id", metavar="RUN", help="The run to judge, with its repeats; else the last one recorded.")
@click.option("--against", metavar="RUN", help="Its baseline; else the one that the lake pairs it with.")
@click.option("--baseline-tag", metavar="NAME", help="Its baseline by name (`teetotal baseline set`).")
@click.option(
    "--max-slowdown", type=float, metavar="RATIO", default=1.05, show_default=True, help="Largest slowdown allowed."
)
@click.option(
    "--max-overhead",
    "given",
    multiple=True,
    metavar="PART=MS",
    help="Most that a part of the step may add, in ms; may be given again.",
)
@click.option("--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True)
@click.pass_obj
def gate(
    chosen: Settings,
    run_id: str | None,
    against: str | None,
    baseline_tag: str | None,
    max_slowdown: float,
    given: tuple[str, ...],
    form: str,
) -> None:
    """Decide whether a run stays within its limits against a baseline.

    Exit status 0: the whole 95 % interval lies within; 1: all of it lies beyond a limit; 3: undecided, and it says how
    many more runs would decide it; 2: wrong usage, or runs that cannot be compared.
    """
    session.announce_work(f"reading {chosen.lake}")
    from pipelines.cli import baselines, gating
    from pipelines.cli.comparing import format_json

    if against is not None and baseline_tag is not None:
        raise click.UsageError("name the baseline once: --against RUN or --baseline-tag NAME")
    if not 0 < max_slowdown <= _MOST_SLOWDOWN:
        raise click.BadParameter(f"{max_slowdown}: expected a ratio such as 1.05", param_hint="--max-slowdown")
    limits = gating.read_limits(given)
    lake = session.open_built_lake(chosen)
    if baseline_tag is not None:
        against = baselines.find_baseline(lake.place, baseline_tag)
    sides = gating.choose_sides(lake, run_id, against)
    found = gating.decide_gate(lake, *sides, max_slowdown, limits, chosen.margin)
    if form == "json":
        click.echo(format_json(gating.describe_decision(found)))
    else:
        for line in gating.format_text(found) if form == "text" else gating.format_markdown(found):
            session.print_lines(line)
    raise SystemExit(gating.EXITS[found.outcome])


@click.group()
def baseline() -> None:
    """Name runs that others are compared with: `teetotal gate --baseline-tag NAME`."""


@baseline.command("set")
@click.argument("name")
@click.argument("run")
@click.pass_obj
def set_name(chosen: Settings, name: str, run: str) -> None:
    """Let NAME stand for RUN and its repeats, or for run ids with commas."""
    from pipelines.cli import baselines

    before = baselines.set_baseline(session.open_built_lake(chosen), name, run)
    session.print_lines(f"{name} is {run}" + (f", and was {before}" if before and before != run else ""))


@baseline.command("list")
@click.pass_obj
def list_names(chosen: Settings) -> None:
    """All names with their runs."""
    from pipelines.cli import baselines

    known = baselines.read_baselines(chosen.lake)
    for name, run in sorted(known.items()):
        session.print_lines(f"{name}  {run}")
    if not known:
        session.print_lines("no baseline has a name yet: teetotal baseline set NAME RUN", err=True)


@baseline.command("remove")
@click.argument("name")
@click.pass_obj
def remove_name(chosen: Settings, name: str) -> None:
    """Forget a name; its run stays."""
    from pipelines.cli import baselines

    run = baselines.remove_baseline(chosen.lake, name)
    session.print_lines(f"{name} was {run}")
