"""A launch or the upkeep of a lake is killed, again and again: nothing is called up to date early, nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest

from assets.build.catalogue import TABLES
from lake.landing_zone import LandingZone
from lake.locations import Location
from tests.support.campaigns import is_soak, pick_size
from tests.support.killed_launches import ANY, Launcher, digests, is_up_to_date, land, open_lake
from tests.support.small_runs import OFF, TEE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The kinds of boundaries, in the order in which a launch meets them: run tables are the first.
KINDS = ("gold", "pairs", "checks", "comparisons")


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    """A process that launches and survives its launches."""
    found = Launcher()
    yield found
    found.end()


def test_a_launch_that_is_killed_between_commits_is_completed_by_the_next(tmp_path: Path, launcher: Launcher) -> None:
    """A new lake and, in the soak, one whose baseline changed: each launch is killed, and the next one goes on."""
    zone = LandingZone(Location.of(tmp_path / "landing"))
    killed, calm = open_lake(tmp_path, "killed"), open_lake(tmp_path, "calm")
    land(tmp_path, "tee", 120, TEE)
    # In the soak a launch is killed after each commit that changed a table, else after the first of each kind.
    most = pick_size(len(KINDS), 200)
    kills = 0
    early = 0
    for step_us in (100, 60)[: pick_size(1, 2)]:
        land(tmp_path, "off", step_us, OFF)
        assert launcher.launch(tmp_path, "calm") == 0
        for number in range(most):
            ended = launcher.launch(tmp_path, "killed", ANY if is_soak() else KINDS[number])
            if ended == 0:
                break
            assert ended == -signal.SIGKILL
            kills += 1
            if is_up_to_date(killed, zone):  # the last commit of all was made, and nothing else
                early += 1
                assert digests(killed) == digests(calm)
        assert launcher.launch(tmp_path, "killed") == 0
        assert is_up_to_date(killed, zone)
        assert digests(killed) == digests(calm)
    assert kills - early >= len(KINDS)


@pytest.mark.timeout(pick_size(300, 14_400))
def test_upkeep_that_is_killed_at_any_moment_takes_nothing_away_and_is_finished_by_the_next(
    tmp_path: Path, launcher: Launcher
) -> None:
    land(tmp_path, "tee", 120, TEE)
    for step_us in (100, 60, 60):  # versions that are no longer read; the last launch records the checks of new pairs
        land(tmp_path, "off", step_us, OFF)
        assert launcher.launch(tmp_path, "calm") == 0
    calm, last_week = open_lake(tmp_path, "calm"), time.time() - 8 * 24 * 3600
    zone = LandingZone(Location.of(tmp_path / "landing"))
    assert is_up_to_date(calm, zone)
    held, orphans = digests(calm), []
    for name, table in TABLES.items():
        for number in range(3 if (calm.place.directory / table.path).is_dir() else 0):
            orphan = calm.place.directory / table.path / "run_id=off" / f"left-by-a-killed-writer-{number}.parquet"
            orphan.parent.mkdir(exist_ok=True)
            orphan.write_bytes(name.encode())
            os.utime(orphan, (last_week, last_week))
            orphans.append(orphan.relative_to(calm.place.directory))
    shutil.copytree(tmp_path / "calm", tmp_path / "timed")
    begun = time.monotonic()
    assert launcher.tidy(tmp_path, "timed") == 0
    lasts, chance, kills, halfway = time.monotonic() - begun, random.Random(4), 0, 0
    for number in range(pick_size(2, 300)):
        name = f"killed-{number}"
        shutil.copytree(tmp_path / "calm", tmp_path / name)
        kills += launcher.tidy(tmp_path, name, chance.uniform(0.1, 0.9) * lasts) == -signal.SIGKILL
        left = sum((tmp_path / name / orphan).exists() for orphan in orphans)
        halfway += 0 < left < len(orphans)
        killed = open_lake(tmp_path, name)
        assert digests(killed) == held
        assert is_up_to_date(killed, zone)
        assert launcher.tidy(tmp_path, name) == 0
        assert not any((tmp_path / name / orphan).exists() for orphan in orphans)
        assert digests(open_lake(tmp_path, name)) == held
        shutil.rmtree(tmp_path / name)
    assert kills > 0
    assert halfway > 0
