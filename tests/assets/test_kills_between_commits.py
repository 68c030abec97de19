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
from tests.support.killed_launches import ANY, Launcher, digests, is_up_to_date, land, launch, open_lake
from tests.support.small_runs import OFF, TEE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The kinds of boundaries, in the order in which a launch meets them: run tables are the first.
KINDS = ("gold", "pairs", "checks", "comparisons")


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    """A process that launches and survives its launches."""
    found = Launcher()
    yield found
    found.end()


@pytest.fixture(scope="module")
def calm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair, and a lake of one launch that nobody disturbed; to be copied."""
    home = tmp_path_factory.mktemp("calm")
    land(home, "off", 100, OFF)
    land(home, "tee", 120, TEE)
    launch(open_lake(home, "calm"), open_zone(home))
    return home


@pytest.fixture
def home(calm_folder: Path, tmp_path: Path) -> Path:
    """A copy of these."""
    return shutil.copytree(calm_folder, tmp_path / "home")


def open_zone(home: Path) -> LandingZone:
    return LandingZone(Location.of(home / "landing"))


def test_a_launch_that_is_killed_between_commits_is_completed_by_the_next(home: Path, launcher: Launcher) -> None:
    """A new lake and, in the soak, one whose baseline changed: each launch is killed, and the next one goes on."""
    zone, killed, calm = open_zone(home), open_lake(home, "killed"), open_lake(home, "calm")
    # In the soak a launch is killed after each commit that changed a table, else after the first of each kind.
    most = pick_size(len(KINDS), 200)
    kills = 0
    early = 0
    for changed_us in (None, 60)[: pick_size(1, 2)]:
        if changed_us is not None:
            land(home, "off", changed_us, OFF)
            launch(calm, zone)
        for number in range(most):
            ended = launcher.launch(home, "killed", ANY if is_soak() else KINDS[number])
            if ended == 0:
                break
            assert ended == -signal.SIGKILL
            kills += 1
            if is_up_to_date(killed, zone):  # the last commit of all was made, and nothing else
                early += 1
                assert digests(killed) == digests(calm)
        assert launcher.launch(home, "killed") == 0
        assert is_up_to_date(killed, zone)
        assert digests(killed) == digests(calm)
    assert kills - early >= len(KINDS)


@pytest.mark.timeout(pick_size(300, 14_400))
def test_upkeep_that_is_killed_at_any_moment_takes_nothing_away_and_is_finished_by_the_next(
    home: Path, launcher: Launcher
) -> None:
    calm, last_week, zone = open_lake(home, "calm"), time.time() - 8 * 24 * 3600, open_zone(home)
    for _ in range(2):  # versions that are no longer read; the last launch records the checks of new pairs
        land(home, "off", 60, OFF)
        launch(calm, zone)
    assert is_up_to_date(calm, zone)
    held, orphans = digests(calm), []
    for name, table in TABLES.items():
        for number in range(3 if (calm.place.directory / table.path).is_dir() else 0):
            orphan = calm.place.directory / table.path / "run_id=off" / f"left-by-a-killed-writer-{number}.parquet"
            orphan.parent.mkdir(exist_ok=True)
            orphan.write_bytes(name.encode())
            os.utime(orphan, (last_week, last_week))
            orphans.append(orphan.relative_to(calm.place.directory))
    shutil.copytree(home / "calm", home / "timed")
    begun = time.monotonic()
    assert launcher.tidy(home, "timed") == 0
    lasts, chance, kills, halfway = time.monotonic() - begun, random.Random(4), 0, 0
    for number in range(pick_size(2, 300)):
        name = f"killed-{number}"
        shutil.copytree(home / "calm", home / name)
        kills += launcher.tidy(home, name, chance.uniform(0.1, 0.9) * lasts) == -signal.SIGKILL
        left = sum((home / name / orphan).exists() for orphan in orphans)
        halfway += 0 < left < len(orphans)
        killed = open_lake(home, name)
        assert digests(killed) == held
        assert is_up_to_date(killed, zone)
        assert launcher.tidy(home, name) == 0
        assert not any((home / name / orphan).exists() for orphan in orphans)
        assert digests(open_lake(home, name)) == held
        shutil.rmtree(home / name)
    assert kills > 0
    assert halfway > 0
