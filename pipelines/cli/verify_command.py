"""The command `teetotal verify`; what it needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from pipelines.settings import Settings


@click.command()
@click.argument("named", nargs=-1, metavar="[RUN_ID]…")
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="Only this run; may be given again.")
@click.option(
    "--since",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="A checkpoint that you kept (`teetotal anchor`): the log must still begin with it.",
)
@click.option(
    "--witnesses",
    "least_witnesses",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Fail where fewer witnesses than this, of those that are believed, countersigned the checkpoint of --since.",
)
@click.option(
    "--trust",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="The public keys to believe (TEETOTAL_TRUST, default signing-trust.txt beside the keyring).",
)
@click.option("--require-signed", is_flag=True, help="Fail where a partition has no signed statement.")
@click.option("--recompute", is_flag=True, help="Make the tables again from the landing zone, aside, and compare them.")
@click.pass_obj
def verify(
    chosen: Settings,
    named: tuple[str, ...],
    run_ids: tuple[str, ...],
    since: Path | None,
    least_witnesses: int,
    trust: Path | None,
    require_signed: bool,
    recompute: bool,
) -> None:
    """Read every data file, and list what is missing or not what was written and signed.

    Statements are compared with the tables and their log, and followed to the source files. Exit status 1 where
    anything is wrong; `teetotal run --full RUN_ID` builds it again.
    """
    session.announce_work(f"reading every data file of {chosen.lake}")
    from lake.landing_zone import LandingZone
    from lake.lineage.keys import load_trust
    from pipelines.cli.recomputation import recompute_tables
    from pipelines.cli.verification import advise, audit_lake, find_cosigners, format_audit, format_damage

    lake, zone, asked = session.open_built_lake(chosen), LandingZone(chosen.landing, chosen.seals), (*named, *run_ids)
    kept = None if since is None else (since.read_text("utf-8"), str(since))
    believed = load_trust(trust or chosen.trust)
    found = audit_lake(lake, zone, believed, asked, kept)
    cosigners, too_few = find_cosigners(kept, believed, least_witnesses)
    damages = [*found.damages, *(recompute_tables(chosen, lake, zone, asked, session.print_lines) if recompute else ())]
    for fault in (*found.history.faults, *too_few):
        session.print_lines(fault, err=True)
    for damage in damages:
        session.print_lines(format_damage(damage), err=True)
    for line in advise(damages):
        session.print_lines(line, err=True)
    for line in (*format_audit(found), *cosigners):
        session.print_lines(line)
    files, size = found.verified.files, found.verified.bytes / 1e6
    session.print_lines(f"{files:,} files ({size:,.1f} MB) verified, {len(damages):,} damaged")
    if damages or found.history.faults or too_few or (require_signed and found.audit.unsigned):
        raise SystemExit(1)
