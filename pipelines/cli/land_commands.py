"""The commands `teetotal land` and `teetotal close`; what they need is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from pipelines.settings import Settings


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--run-id", metavar="ID", help="Name of the run; else taken from the files' names.")
@click.option("--regime", metavar="R", help="How links are secured: cc_off, hopper_spt_cc, sw_per_hop_aesgcm, …")
@click.option("--baseline", metavar="ID", help="The run that this one is compared with.")
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="Any field of run.toml (docs/manifest.md).")
@click.option(
    "--open", "is_open", is_flag=True, help="More files will come, by --append or written there (docs/live.md)."
)
@click.option("--append", metavar="RUN", help="Add the files to this open run.")
@click.option("--seal", is_flag=True, help="Encrypt each file for this lake's own key (docs/sealed-landing.md).")
@click.option("--seal-for", metavar="FILE", type=click.Path(path_type=Path), help="The same, for this public key.")
@click.pass_obj
def land(
    chosen: Settings,
    paths: tuple[Path, ...],
    run_id: str | None,
    regime: str | None,
    baseline: str | None,
    given: tuple[str, ...],
    is_open: bool,
    append: str | None,
    seal: bool,
    seal_for: Path | None,
) -> None:
    """Put the files of one run (or a directory of them) into the landing zone."""
    from lake.landing_zone import LandingZone
    from pipelines.cli import land

    if not paths and not (is_open and run_id):
        raise click.UsageError("name files, or a directory of them; with --open, at least the run: --run-id ID")
    zone = LandingZone(chosen.landing, chosen.seals)
    if append is not None:
        if run_id or regime or baseline or given or is_open:
            raise click.UsageError("--append takes files alone: what the run claims stands in its run.toml")
        recipient = land.choose_recipient(chosen, seal=seal, seal_for=seal_for)
        added = land.append_files(zone, append, paths, recipient)
        for names, what in ((added.new, "added to"), (added.replaced, "replaced in")):
            if names:
                session.print_lines(f"{what} {append}: {', '.join(names)}")
        session.print_lines(
            f"next: teetotal watch {append}, or teetotal run {append}; at the end teetotal close {append}"
        )
        return
    fields = dict(_pair(text) for text in given)
    fields |= {name: value for name, value in (("regime", regime), ("baseline", baseline)) if value}
    recipient = land.choose_recipient(chosen, seal=seal, seal_for=seal_for)
    landed = land.land_files(
        zone, paths, chosen.limits, run_id=run_id, given=fields, is_open=is_open, recipient=recipient
    )
    how = ", open" if is_open else ""
    how += "" if landed.sealed_for is None else f", sealed for {landed.sealed_for}"
    session.print_lines(f"landed {landed.run_id}: {landed.files} files in {chosen.landing}{how}")
    for key, value in landed.manifest.claims.items():
        session.print_lines(f"  {key} = {value}")
    for note in (*landed.notes, *land.warn_of_unknown(session.open_lake(chosen), zone, landed)):
        session.print_lines(f"note: {note}", err=True)
    if is_open:
        session.print_lines(
            f"to add files: teetotal land --append {landed.run_id} PATH…, or write them to its directory there"
        )
        session.print_lines(f"next: teetotal watch {landed.run_id}; when all are there: teetotal close {landed.run_id}")
    else:
        session.print_lines("next: teetotal run")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.pass_obj
def close(chosen: Settings, run_id: str) -> None:
    """Say that no further file of an open run will come."""
    from lake.landing_zone import LandingZone
    from lake.open_runs import close_run

    close_run(LandingZone(chosen.landing), run_id)
    session.print_lines(f"closed {run_id}; next: teetotal run {run_id}")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    return key, value
