"""What commands open before they do anything: the lake, and the terminal that they write to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lake.errors import EvidenceRejected, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rich.console import Console

    from lake.locations import Location
    from lake.store import Lake
    from lake.tables import Table
    from pipelines.settings import Settings

TIERS = ("bronze", "silver", "gold")
_DEFAULT_LAKE = "data/lake"
_MAKE_LAKE = "`teetotal run` makes it from what has landed; --lake or TEETOTAL_LAKE names another"


def open_lake(chosen: Settings) -> Lake:
    """The lake that was chosen, to be read."""
    from lake.store import Lake

    return Lake(chosen.lake, chosen.keyring, seals_bronze=chosen.seals.seals_bronze)


def open_signed_lake(chosen: Settings) -> Lake:
    """The lake that was chosen, to be written: every commit carries a signed statement."""
    from assets.build.provenance import make_lineage
    from lake.store import Lake

    lineage = make_lineage(chosen.lake, chosen.signing, {"margin": f"{chosen.margin:g}"})
    return Lake(chosen.lake, chosen.keyring, lineage, seals_bronze=chosen.seals.seals_bronze)


def open_built_lake(chosen: Settings) -> Lake:
    """The lake that was chosen, which must hold a table: where a name is mistyped, no rows would be a wrong answer."""
    lake = open_lake(chosen)
    if not lake.list_stored(TIERS):
        raise EvidenceRejected(f"there is no lake in {chosen.lake}", _find_lake_nearby(chosen.lake) or _MAKE_LAKE)
    return lake


def open_named_lake(chosen: Settings) -> Lake:
    """The lake that was chosen, which may be empty before its first run, unless its name looks mistyped."""
    meant = find_meant_lake(chosen)
    if meant is not None:
        raise EvidenceRejected(f"there is no lake in {chosen.lake}", f"`teetotal run` makes a new one; {meant}")
    return open_lake(chosen)


def find_meant_lake(chosen: Settings) -> str | None:
    """The hint that names another lake, where somebody named one that is not there and another lies beside it."""
    from lake.locations import Location

    is_named = str(chosen.lake) != str(Location.of(_DEFAULT_LAKE))
    if not is_named or not chosen.lake.is_local or open_lake(chosen).list_stored(TIERS):
        return None
    return _find_lake_nearby(chosen.lake)


def _find_lake_nearby(place: Location) -> str | None:
    """The hint that names the lake that was probably meant; none where no lake is near."""
    around: list[Path] = []
    if place.is_local and place.directory.parent.is_dir():
        above = place.directory.parent
        around = [above, *above.iterdir(), *(place.directory.iterdir() if place.directory.is_dir() else ())]
    lakes = [str(one) for one in around if any((one / tier).is_dir() for tier in TIERS)]
    return nearest(str(place), lakes) if lakes else None


def require_runs(lake: Lake, run_ids: Sequence[str], tables: Iterable[Table]) -> None:
    """Refuse the name of a run that none of these tables holds."""
    known = {run_id for table in tables for run_id in lake.snapshot(table).run_ids} if run_ids else set()
    for run_id in run_ids:
        if run_id not in known:
            raise EvidenceRejected(f"no run {run_id[:160]!r} in {lake.place}", nearest(run_id[:160], known))


def print_lines(text: str, *, err: bool = False) -> None:
    """Write one line to the terminal; what would steer it (in a name, a path, a reason) is shown as its escape."""
    from report.terminal_text import make_printable

    click.echo(make_printable(text), err=err)


def announce_work(text: str) -> None:
    """Say on a terminal what begins, before what takes seconds to import; a pipe or a file gets nothing."""
    if sys.stderr.isatty():
        print_lines(f"{text} …", err=True)


def console() -> Console:
    """The terminal; a pipe or a file has no edge to cut at."""
    from rich.console import Console

    found = Console()
    if not found.is_terminal:
        found.width = 200
    return found
