"""All tables verified, for the command and for maintenance: which files are damaged, and what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assets.build.catalogue import TABLES
from lake.datafiles import Damage
from lake.verification import Verified, verify_table
from pipelines.cli.session import require_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from lake.store import Lake

_HEX_DIGITS = 16
_ACROSS_RUNS = {name for name, table in TABLES.items() if table.partition_key != "run_id"}


def verify_lake(lake: Lake, run_ids: Sequence[str] = (), day: date | None = None) -> Verified:
    """Verify the data files of all tables, or of some runs; `day`: only a sixteenth of them, another one each day."""
    require_runs(lake, run_ids, TABLES.values())
    found = [verify_table(lake, table, run_ids or None, pick_due(day)) for table in TABLES.values()]
    damages = [damage for one in found for damage in one.damages]
    return Verified(sum(one.files for one in found), sum(one.bytes for one in found), damages)


def pick_due(day: date | None) -> Callable[[str], bool]:
    """Whether a partition is verified that day, by its content digest; without a day every one is."""
    first = "" if day is None else f"{day.toordinal() % _HEX_DIGITS:x}"
    return lambda digest: digest.startswith(first)


def find_damages(lake: Lake) -> list[Damage]:
    """The data files of all tables that are missing or truncated; none of them is opened."""
    snapshots = [lake.snapshot(table) for table in TABLES.values()]
    return [
        Damage(snapshot.table.full_name, run_id, path, reason)
        for snapshot in snapshots
        for run_id in snapshot.run_ids
        for path, reason in snapshot.damages(run_id).items()
    ]


def format_damage(damage: Damage) -> str:
    """One damaged file in a line."""
    where = damage.table if damage.run_id is None else f"{damage.table}, run {damage.run_id}"
    return f"{where}: {damage.path} {damage.reason}"


def advise(damages: Sequence[Damage]) -> list[str]:
    """What to type next."""
    logs = sorted({damage.table for damage in damages if damage.run_id is None})
    # What is measured across runs has no run of its own: it is built again with any of them.
    is_across = any(damage.table in _ACROSS_RUNS and damage.run_id is not None for damage in damages)
    mine = (damage.run_id for damage in damages if damage.table not in _ACROSS_RUNS)
    run_ids = sorted({run_id for run_id in mine if run_id is not None})
    lines = [f"next: teetotal run --full {' '.join(run_ids)}".rstrip()] if run_ids or is_across else []
    return lines + [
        f"next: restore the log of {table} from a backup, or move the table's directory away and run "
        "`teetotal run --full`: what still lies in the landing zone is built again"
        for table in logs
    ]
