"""What a kill campaign runs: launches and upkeep, each a fork of `python -m tests.support.killed_launches serve`.

A launch does what `teetotal run` does, without Dagster and its records: it assesses, makes what is stale, and records
the checks. The checks themselves are not held: their rows are right, and what is killed here are commits. Upkeep is
what the nightly `maintenance` does to the tables.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.build import comparisons, forecasts, gold, histories
from assets.build.catalogue import TABLES, list_required
from assets.build.context import BuildContext
from assets.build.freshness import Look
from assets.build.state import add_comparisons, assess_comparisons, assess_runs
from assets.build.tiers import TIERS, build_tier, select_tables
from bronze.limits import Limits
from lake.engines import engine
from lake.identity import MANIFEST
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from pipelines.process_costs import start_without_pandas
from tests.support.build_runs import build_pairs, record_passed
from tests.support.campaigns import is_soak
from tests.support.forks import Forks, serve_jobs
from tests.support.small_runs import trace

if TYPE_CHECKING:
    from lake.snapshot import Written
    from lake.staging import Stage
    from lake.tables import Table

ANY = "any"
_RETENTION_HOURS = 168
# Every table in the soak, else what pairs and comparisons are made from: each is one more commit of the same kind.
_COMPARED = [table.full_name for table in (*gold.PAIR_TABLES, *comparisons.COMPARISON_TABLES)]
MADE = TIERS if is_soak() else select_tables(list_required(_COMPARED))
_CHECKED = [*(table for some in MADE.values() for table in some), *gold.PAIR_TABLES]


class Doomed(Lake):
    """A lake whose process is killed right after its first commit of some kind that changed a table."""

    kill_after: str | None = None

    def commit(self, stage: Stage, *rest: Any, **named: Any) -> Written:
        """Commit, and be killed."""
        before = self.snapshot(stage.table).version
        written = super().commit(stage, *rest, **named)
        if written.version != before and self.kill_after in {kind_of(stage.table), ANY}:
            os.kill(os.getpid(), signal.SIGKILL)
        return written


def kind_of(table: Table) -> str:
    """The kind of boundary that follows a commit to this table."""
    if table in gold.PAIR_TABLES:
        return "pairs"
    return "comparisons" if table in comparisons.COMPARISON_TABLES else table.tier


def open_lake(home: Path, name: str) -> Doomed:
    """One of the lakes of a campaign; all share a keyring, so that equal rows have equal digests."""
    return Doomed(Location.of(home / name), KeyringFile(home / "keyring.json", is_made_on_first_use=True))


def launch(lake: Lake, zone: LandingZone) -> None:
    """Bring everything up to date."""
    run_ids, _ = zone.run_ids()
    states = assess_runs(lake, zone, run_ids, tables=MADE)
    stale = [run_id for run_id, state in states.items() if state.needs_launch()]
    context = BuildContext(lake, zone, Limits(workers=1))
    for tier in MADE if stale else ():
        made = build_tier(context, tier, stale, partial(engine, "polars"), tables=MADE)
        assert [one.fault for one in made if one.fault] == []
    if stale:
        build_pairs(lake)
        record_passed(lake, stale, _CHECKED)
    if stale or any(state.needs_launch() for state in assess_comparisons(lake).values()):
        comparisons.build_families(lake)
        comparisons.build_published(lake)
        forecasts.build_forecasts(lake)
        histories.build_histories(lake)
        for table in comparisons.COMPARISON_TABLES:
            record_passed(lake, lake.snapshot(table).run_ids, [table])


def land(home: Path, run_id: str, step_us: int, manifest: str) -> None:
    """Put a small run into the landing zone of a campaign, or change it."""
    directory = home / "landing" / run_id
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "rank0.json").write_bytes(trace(step_us))
    (directory / MANIFEST).write_text(manifest, "utf-8")


def is_up_to_date(lake: Lake, zone: LandingZone) -> bool:
    """Whether `status` would say so of everything."""
    run_ids, _ = zone.run_ids()
    states = [
        *add_comparisons(Look(lake), assess_runs(lake, zone, run_ids, tables=MADE)).values(),
        *assess_comparisons(lake).values(),
    ]
    return all(state.word == "up-to-date" for state in states)


def digests(lake: Lake) -> dict[tuple[str, str], str]:
    """The content of every partition of every table."""
    return {
        (name, run_id): lake.snapshot(table).content_sha256(run_id)
        for name, table in TABLES.items()
        for run_id in lake.snapshot(table).run_ids
    }


def tidy(lake: Lake) -> None:
    """Checkpoint the log of every table, and delete what no version of the last week holds."""
    for table in TABLES.values():
        lake.tidy(table, _RETENTION_HOURS)


class Launcher:
    """Launches and upkeep, each a fork of one process that stands ready."""

    def __init__(self, *before: str) -> None:
        """`before` are words before the command, such as a program that gives it another clock."""
        self._forks = Forks("tests.support.killed_launches", *before)

    def launch(self, home: Path, name: str, kill_after: str | None = None) -> int:
        """Launch on a lake, and be killed after a commit of a kind; gives how the launch ended."""
        return self._forks.run(_launch_there.__name__, home, name, kill_after)

    def tidy(self, home: Path, name: str, seconds: float | None = None) -> int:
        """Tidy a lake, and be killed after some time; gives how that ended."""
        return self._forks.run(_tidy_there.__name__, home, name, kill_after_s=seconds)

    def end(self) -> None:
        """Let the process end."""
        self._forks.end()


def _launch_there(home: str, name: str, kill_after: str | None) -> None:
    lake = open_lake(Path(home), name)
    lake.kill_after = kill_after
    launch(lake, LandingZone(Location.of(Path(home) / "landing")))


def _tidy_there(home: str, name: str) -> None:
    tidy(open_lake(Path(home), name))


if __name__ == "__main__":
    start_without_pandas()
    import pyarrow.dataset  # noqa: F401 - else every job would import it for itself

    serve_jobs({job.__name__: job for job in (_launch_there, _tidy_there)})
