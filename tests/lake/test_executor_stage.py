from __future__ import annotations

import pickle
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import obstore
import pytest

from assets.build.bronze import materialise
from assets.build.catalogue import TABLES
from bronze import runs
from bronze.limits import Limits
from lake.errors import EvidenceRejected, SourceUnavailable
from lake.executors import Executors, Site
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.open_runs import add_files, close_run, open_run
from lake.regular_files import open_named
from lake.store import Lake
from tests.support.sample_tables import CELLS, FIRST, READINGS, digests, readings, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lake.executor_stage import ExecutorStage

BRONZE = [table for table in TABLES.values() if table.tier == "bronze"]
RUN = "run-1"
MANIFEST = 'regime = "cc_off"\n'


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


def test_an_open_run_in_a_store_is_read_once_and_closed_it_is_what_a_complete_landing_is(
    remote_lake: Lake, remote_zone: LandingZone, tmp_path: Path
) -> None:
    keyring = KeyringFile(tmp_path / "keyring.json", is_made_on_first_use=True)
    lake = Lake(remote_lake.place, keyring)
    beside = Beside(Site(lake, remote_zone))
    ways = {"c.json": cast("Executors", beside), "a.json": None, "b.json": cast("Executors", beside)}
    # They do not say their rank: it is given when all are there, so that data files get other names on the way.
    files = {}
    for name, seed in (("c.json", 0), ("a.json", 1), ("b.json", 2)):
        (tmp_path / name).write_bytes(trace(None, 20, seed=seed))
        files[name] = open_named(tmp_path / name)
    remote_zone.land("whole", files, MANIFEST)
    materialise(lake, remote_zone, "whole", Limits())
    open_run(remote_zone, RUN, {}, MANIFEST)
    read: list[str] = []
    for name, file in files.items():
        added = add_files(remote_zone, RUN, {name: file})
        assert (added.new, added.replaced) == ((name,), ())
        materialise(
            lake,
            remote_zone,
            RUN,
            Limits(),
            lambda name, _bytes, _rows: read.append(name),
            executors=ways[name],
        )
        assert lake.scan(runs.TABLE, [RUN]).collect()["is_open"].to_list() == [True]
    close_run(remote_zone, RUN)
    materialise(lake, remote_zone, RUN, Limits(), lambda name, _bytes, _rows: read.append(name))
    assert [name for name, _ in groupby(read)] == list(files)
    assert beside.count == 2
    assert digests(lake, RUN, BRONZE) == digests(lake, "whole", BRONZE)
    assert not [key for key in keys(lake) if key.endswith(".note")]
    with pytest.raises(EvidenceRejected, match="is not open"):
        add_files(remote_zone, RUN, files)
