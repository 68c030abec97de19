from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import polars as pl
import pytest

from assets.build.bronze import materialise
from assets.build.catalogue import TABLES
from bronze import runs, source_files, trace_events
from bronze.limits import Limits
from lake.locations import Location
from lake.store import Lake
from tests.support.campaigns import pick_size
from tests.support.forks import Forks
from tests.support.sample_tables import digests, trace
from tests.support.up_to_date import find_landed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lake.landing_zone import LandingZone
    from tests.conftest import LandFiles

EVENTS = 8_000
RUN = "run-1"
BRONZE = [table for table in TABLES.values() if table.tier == "bronze"]
# Kills all over a run, and at the commit of each of its tables.
ANYWHERE, AT_COMMITS = pick_size(3, 120), pick_size(len(BRONZE), 20 * len(BRONZE))
KILLS = ANYWHERE + AT_COMMITS


@pytest.fixture
def forks() -> Iterator[Forks]:
    """Landings to be killed."""
    found = Forks("tests.support.processes")
    yield found
    found.end()


def seconds_of_a_whole_run(forks: Forks, lake: Lake, zone: LandingZone) -> float:
    began = time.monotonic()
    assert forks.run("land", {}, lake.place, zone.place, RUN) == 0
    return time.monotonic() - began


@dataclass(frozen=True)
class Moment:
    """So many seconds after the start, or after that commit was about to be made."""

    seconds: float
    commit: int = 0


def moments(duration: float, chance: random.Random) -> list[Moment]:
    """Moments all over a run, and at least one at the commit of each of its tables."""
    anywhere = [Moment(duration * (place + chance.random()) / ANYWHERE) for place in range(ANYWHERE)]
    commits = [Moment(chance.uniform(0, 0.03), 1 + place % len(BRONZE)) for place in range(AT_COMMITS)]
    return chance.sample(anywhere + commits, KILLS)


@pytest.mark.timeout(pick_size(300, 14_400))
def test_killed_at_any_moment_a_run_leaves_the_old_content_or_the_new_and_a_clean_run_mends_it(
    land_files: LandFiles, tmp_path: Path, forks: Forks
) -> None:
    lake, zone = land_files.lake, land_files.zone
    last = [trace(2, EVENTS, seed=seed) for seed in (0, 1)]
    files = {"rank0.json": trace(0, EVENTS), "rank1.json": trace(1, EVENTS), "rank2.json": last[0]}
    directory = land_files.write({**files, "again.json": files["rank0.json"], "notes.txt": b"no trace\n"})
    elsewhere = Lake(Location.of(tmp_path / "elsewhere"))
    whole = []
    for content in last:
        (directory / "rank2.json").write_bytes(content)
        materialise(elsewhere, zone, RUN, Limits())
        whole.append(digests(elsewhere, RUN, BRONZE))
    empty = digests(lake, RUN, BRONZE)
    duration = seconds_of_a_whole_run(forks, Lake(Location.of(tmp_path / "timed")), zone)

    killed, states = 0, set()
    for place, moment in enumerate(moments(duration, random.Random(20))):
        # Two contents in turn, so that every run has something to replace.
        (directory / "rank2.json").write_bytes(last[place % 2])
        run_killed = partial(forks.run, kill_after_s=moment.seconds, line="commit", times=moment.commit)
        killed += run_killed("land", {}, lake.place, zone.place, RUN) != 0
        found = digests(lake, RUN, BRONZE)
        assert all(found[name] in {empty[name], whole[0][name], whole[1][name]} for name in found)
        assert not any(lake.snapshot(table).damages(RUN) for table in BRONZE), "rows that nobody can read"
        assert found == whole[place % 2] or RUN not in find_landed(lake, zone, [RUN])
        states.add(tuple(found.values()))
    assert len(states - {tuple(each.values()) for each in (empty, *whole)}) > 0, "no kill fell between two commits"
    assert killed >= KILLS // 2

    (directory / "rank2.json").write_bytes(last[1])
    assert RUN not in find_landed(lake, zone, [RUN])
    landed = land_files.read(RUN, land_files.materialise(RUN))
    assert RUN in find_landed(lake, zone, [RUN])
    assert digests(lake, RUN, BRONZE) == whole[1]
    assert landed.events.height == 3 * EVENTS
    for table in (trace_events.TABLE, source_files.TABLE, runs.TABLE):
        assert lake.scan(table).collect().height == elsewhere.scan(table).collect().height
    (run,) = landed.runs.to_dicts()
    assert (run["kept_files_count"], run["merged_files_count"], run["rejected_files_count"]) == (3, 1, 1)
    assert run["files_count"] == 5
    assert run["events_count"] == landed.files.select(pl.sum("events_count")).item() == 3 * EVENTS
    staged = list((lake.place.directory / "_staging").rglob("*"))
    assert [
        path for path in staged if (path.name == RUN and path.is_dir()) or (path.is_file() and path.stat().st_size)
    ] == []
    assert not land_files.materialise(RUN)[0].is_changed
