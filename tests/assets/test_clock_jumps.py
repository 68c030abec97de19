"""A machine whose clock jumps by years, back and forth: it builds what any other builds, and nothing is stale."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from lake.landing_zone import LandingZone
from lake.locations import Location
from tests.support.killed_launches import Launcher, digests, is_up_to_date, land, launch, open_lake
from tests.support.small_runs import OFF, TEE

if TYPE_CHECKING:
    from pathlib import Path

LONG_AGO, LATER = "-400d", "+2000d"


def test_launches_and_upkeep_under_clocks_that_jump_leave_what_a_steady_clock_leaves(tmp_path: Path) -> None:
    zone, jumping = LandingZone(Location.of(tmp_path / "landing")), open_lake(tmp_path, "jumping")
    faketime = str(shutil.which("faketime"))
    # No machine's monotonic clock jumps; where it seemed to, a wait with a time limit would last 2,000 days. With the
    # "fix" that faketime takes for needed under some versions of glibc, such a wait ends at once instead, and Python's
    # threads, which wait for their lock like that, spin.
    under = ("env", "FAKETIME_FORCE_MONOTONIC_FIX=0", faketime, "--exclude-monotonic", "-f")
    clocks = {clock: Launcher(*under, clock) for clock in (LONG_AGO, LATER)}
    try:
        land(tmp_path, "off", 100, OFF)
        assert clocks[LATER].launch(tmp_path, "jumping") == 0
        # In a lake whose newest commit is of years to come: a changed run and a new one, by a clock of the past.
        land(tmp_path, "off", 60, OFF)
        land(tmp_path, "tee", 120, TEE)
        assert clocks[LONG_AGO].launch(tmp_path, "jumping") == 0
        assert is_up_to_date(jumping, zone)
        steady = open_lake(tmp_path, "steady")
        launch(steady, zone)
        held = digests(steady)
        assert digests(jumping) == held
        for launcher in clocks.values():
            assert launcher.tidy(tmp_path, "jumping") == 0
            assert digests(open_lake(tmp_path, "jumping")) == held
        assert is_up_to_date(open_lake(tmp_path, "jumping"), zone)
    finally:
        for launcher in clocks.values():
            launcher.end()
