from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, cast

import obstore
import pytest

from assets.build.bronze import materialise
from assets.build.catalogue import TABLES
from bronze.limits import Limits
from lake.errors import SourceUnavailable
from lake.executors import Executors, Site
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from tests.support.sample_tables import CELLS, FIRST, READINGS, digests, readings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lake.executor_stage import ExecutorStage

BRONZE = [table for table in TABLES.values() if table.tier == "bronze"]
RUN = "run-1"


class Beside:
    """Executors without a cluster: what they are told and what they answer goes through bytes, as it would."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.count = 0

    def each(self, work: Callable[[Site, Any], Any], orders: Sequence[Any]) -> list[Any]:
        self.count += len(orders)
        return [pickle.loads(pickle.dumps(work(self._site, pickle.loads(pickle.dumps(order))))) for order in orders]  # noqa: S301


def keys(lake: Lake) -> list[str]:
    return [item["path"] for page in obstore.list(lake.place.store) for item in page]


@pytest.mark.parametrize("is_remote", [False, True])
def test_files_that_executors_read_become_what_this_process_would_have_written(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    lake: Lake,
    zone: LandingZone,
    files: dict[str, Path],
    is_remote: bool,
) -> None:
    zone.land(RUN, files, 'regime = "cc_off"\n')
    materialise(lake, zone, RUN, Limits())
    theirs = request.getfixturevalue("remote_lake") if is_remote else Lake(Location.of(tmp_path / "theirs"))
    landing = request.getfixturevalue("remote_zone") if is_remote else zone
    if is_remote:
        landing.land(RUN, files, 'regime = "cc_off"\n')
    beside = Beside(Site(theirs, landing))
    materialise(theirs, landing, RUN, Limits(), executors=cast("Executors", beside))
    written = materialise(theirs, landing, RUN, Limits(), executors=cast("Executors", beside))
    assert beside.count == 2 * len(files)
    assert [one.is_changed for one in written] == [False] * len(written)
    assert digests(theirs, RUN, BRONZE) == digests(lake, RUN, BRONZE)
    if not is_remote:
        assert list((tmp_path / "theirs" / "_staging").rglob("*.parquet")) == []


def test_a_remote_file_is_settled_under_its_name_and_one_that_is_not_is_no_part_of_the_table(remote_lake: Lake) -> None:
    with remote_lake.stage(READINGS, RUN) as stage:
        for is_taken in (True, False):
            with remote_lake.executor_stage(READINGS, RUN, str(stage.spool)) as executor_stage:
                remote_lake.add(executor_stage, readings(RUN, (1.5, None, 0.0) if is_taken else (2.5,)))
            stage.keep(*(executor_stage.units if is_taken else ()))
        written = remote_lake.commit(stage, FIRST)
    assert written.rows == 3
    held = [key for key in keys(remote_lake) if key.endswith(".parquet") and "unsettled" not in key]
    left = [key for key in keys(remote_lake) if "unsettled" in key]
    assert (len(held), len(left)) == (1, 1)
    assert remote_lake.scan(READINGS).collect().height == 3


def test_an_executor_stage_that_fails_leaves_nothing_behind(lake: Lake) -> None:
    def half(executor_stage: ExecutorStage) -> None:
        with executor_stage:
            lake.add(executor_stage, readings(RUN))
            assert list(executor_stage.spool.iterdir()) != []
            raise ValueError("halfway")

    with lake.stage(READINGS, RUN) as stage:
        with pytest.raises(ValueError, match="halfway"):
            half(lake.executor_stage(READINGS, RUN, str(stage.spool)))
        assert list(stage.spool.iterdir()) == []


def test_an_executor_stage_of_a_stage_that_has_ended_says_so_as_something_to_try_again(lake: Lake) -> None:
    with lake.stage(CELLS, RUN) as stage:
        spool = str(stage.spool)
    with pytest.raises(SourceUnavailable, match="from an executor"), lake.executor_stage(CELLS, RUN, spool):
        pytest.fail("it opened")
