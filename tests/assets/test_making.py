"""Many runs at once: in the order asked, each with its own fate."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from assets.making import TIERS, Made, make, up_to_date
from assets.workplace import Onlooker, Workplace
from bronze.limits import Limits
from lake.engines import engine
from lake.errors import EvidenceRejected
from tests.small_runs import OFF, trace

if TYPE_CHECKING:
    import pytest

    from lake.landing_zone import LandingZone
    from lake.store import Lake
    from tests.conftest import LandFiles

POLARS = partial(engine, "polars")


class Noting(Onlooker):
    """Notes what it is told, and in which thread."""

    def __init__(self) -> None:
        self.told: list[Made] = []
        self.threads: dict[tuple[str, str], str] = {}

    def made(self, made: Made) -> None:
        self.told.append(made)
        self.threads[made.tier, made.run_id] = threading.current_thread().name.partition("_")[0]


def test_runs_come_back_in_the_order_asked_and_a_faulty_one_with_its_reason(
    lake: Lake, zone: LandingZone, land_files: LandFiles
) -> None:
    land_files.write({"rank0.json": trace(100)}, "b", OFF)
    land_files.write({"rank0.json": trace(100)}, "a", OFF)
    onlooker = Noting()
    made = make(Workplace(lake, zone, Limits(), onlooker=onlooker), "bronze", ["b", "gone", "a"], POLARS)
    assert [one.run_id for one in made] == ["b", "gone", "a"]
    assert [type(one.fault) for one in made] == [type(None), EvidenceRejected, type(None)]
    assert {one.run_id for one in onlooker.told} == {"a", "b", "gone"}


def test_what_is_fresh_is_looked_at_and_told_as_it_is(lake: Lake, zone: LandingZone, land_files: LandFiles) -> None:
    land_files.write({"rank0.json": trace(100)}, "a", OFF)
    place = Workplace(lake, zone, Limits())
    first = {tier: make(place, tier, ["a"], POLARS)[0] for tier in TIERS}
    assert up_to_date(lake, zone, ["a"]) == {"a"}
    for tier, before in first.items():
        (again,) = make(place, tier, ["a"], POLARS)
        assert again.is_fresh
        assert not before.is_fresh
        told = {
            one.table: (one.rows, one.bytes, one.files, one.content_sha256, one.is_changed) for one in again.written
        }
        assert told == {
            one.table: (one.rows, one.bytes, one.files, one.content_sha256, False) for one in before.written
        }


def test_large_runs_go_alone(
    lake: Lake, zone: LandingZone, land_files: LandFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("a", "b", "c"):
        land_files.write({"rank0.json": trace(100)}, run_id, OFF)
    onlooker = Noting()
    place = Workplace(lake, zone, Limits(), onlooker=onlooker)
    make(place, "bronze", ["a", "b", "c"], POLARS)
    monkeypatch.setattr("assets.silver.CHUNK_EVENTS", 5)
    make(place, "silver", ["a", "b", "c"], POLARS)
    assert all(one.fault is None for one in onlooker.told)
    assert {onlooker.threads["bronze", run_id] for run_id in "abc"} == {"bronze"}, "side by side"
    assert {onlooker.threads["silver", run_id] for run_id in "abc"} == {"MainThread"}, "one after another"
