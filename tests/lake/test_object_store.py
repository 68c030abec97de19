from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import duckdb
import obstore
import polars as pl
import pytest
from obstore.exceptions import AlreadyExistsError
from polars.testing import assert_frame_equal

from assets.build.bronze import materialise
from assets.build.catalogue import TABLES
from benchmarks.object_store import FAULTS, HANGS, S3, StoreProxy
from bronze import source_files, trace_events
from bronze.limits import Limits
from lake.cut_off import put_new
from lake.errors import ContractBroken, EvidenceRejected
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from tests.support.object_stores import EMULATOR, hurry
from tests.support.processes import finish, release, start
from tests.support.sample_tables import FIRST, READINGS, SECOND, digests, many_readings, readings
from tests.support.up_to_date import find_landed

if TYPE_CHECKING:
    from pathlib import Path

BRONZE = [table for table in TABLES.values() if table.tier == "bronze"]
RUN = "run-1"
MANIFEST = 'regime = "cc_off"\n'


def objects(zone: LandingZone) -> set[str]:
    return {item["path"] for page in obstore.list(zone.place.store) for item in page}


def test_a_remote_run_gives_the_same_content_as_a_local_one_and_a_second_run_writes_nothing(
    remote_lake: Lake, remote_zone: LandingZone, lake: Lake, zone: LandingZone, files: dict[str, Path]
) -> None:
    for where in (zone, remote_zone):
        where.land(RUN, files, MANIFEST)
        assert where.run_ids() == ([RUN], [])
    materialise(lake, zone, RUN, Limits())
    assert RUN not in find_landed(remote_lake, remote_zone, [RUN])
    first = materialise(remote_lake, remote_zone, RUN, Limits())
    assert RUN in find_landed(remote_lake, remote_zone, [RUN])
    assert digests(remote_lake, RUN, BRONZE) == digests(lake, RUN, BRONZE)

    before = objects(LandingZone(remote_lake.place))
    again = materialise(remote_lake, remote_zone, RUN, Limits())
    assert [(each.is_changed, each.version) for each in again] == [(False, each.version) for each in first]
    assert objects(LandingZone(remote_lake.place)) == before


def test_landing_and_lake_may_be_of_different_kinds(
    remote_zone: LandingZone, lake: Lake, files: dict[str, Path]
) -> None:
    remote_zone.land(RUN, files, MANIFEST)
    materialise(lake, remote_zone, RUN, Limits())
    assert lake.scan(trace_events.TABLE).collect().height == 120
    outcomes = lake.scan(source_files.TABLE).sort("file_name").collect()["outcome"].to_list()
    assert outcomes == ["rejected", "kept", "kept", "merged"]


@pytest.mark.parametrize("run_ids", [None, ["a"], ["b", "a"], ["nobody"], []])
def test_polars_and_duckdb_read_equal_frames_from_afar(remote_lake: Lake, run_ids: list[str] | None) -> None:
    for run_id in ("a", "b"):
        remote_lake.replace(READINGS, run_id, readings(run_id), FIRST)
    order = ["run_id", "ordinal"]
    by_polars = remote_lake.scan(READINGS, run_ids).sort(order).collect()
    with duckdb.connect() as connection:
        assert_frame_equal(remote_lake.relation(connection, READINGS, run_ids).pl().sort(order), by_polars)
    wanted = [run_id for run_id in ("a", "b") if run_ids is None or run_id in run_ids]
    assert by_polars.to_dicts() == [row for run_id in wanted for row in readings(run_id).to_pylist()]


def test_a_remote_lake_whose_prefix_readers_would_take_for_a_partition_is_refused(
    bucket: str, options: dict[str, str]
) -> None:
    with pytest.raises(ContractBroken, match="the lake cannot lie in"):
        Lake(Location.of(f"{bucket}/env=prod/lake", options))


def test_an_absent_remote_table_is_an_empty_one(remote_lake: Lake) -> None:
    assert_frame_equal(remote_lake.scan(READINGS).collect(), pl.DataFrame(schema=READINGS.polars_schema))
    with duckdb.connect() as connection:
        assert remote_lake.relation(connection, READINGS, ["a"]).pl().is_empty()
    assert remote_lake.snapshot(READINGS).version is None


def test_remote_writers_of_one_run_leave_one_copy(remote_lake: Lake, options: dict[str, str]) -> None:
    remote_lake.replace(READINGS, "same", readings("same"), FIRST)
    running = [
        start("write", str(remote_lake.place), "same", str(place), str(50 + place), "2", options=options)
        for place in range(4)
    ]
    release(*running)
    finish(*running)
    rows = remote_lake.scan(READINGS).sort("ordinal").collect()
    (power,) = set(rows["power_w"].to_list())
    assert rows["ordinal"].to_list() == list(range(50 + int(power)))
    assert remote_lake.snapshot(READINGS).is_made_from("same", f"{int(power):064x}")


def test_writers_on_several_machines_lose_nothing_though_requests_fail_and_one_is_killed(
    bucket: str, options: dict[str, str], store_port: int
) -> None:
    """Processes that share no lock, before a store of which one request in twenty fails."""
    times, rows = 6, 40
    with StoreProxy(store_port, 7, EMULATOR).serving() as proxy:
        lake = Lake(Location.of(f"{bucket}/lake", options))
        lake.replace(READINGS, "killed", readings("killed", [9.0] * 3), FIRST)
        proxy.fails = 0.05
        words = [("one", "1"), ("two", "2"), ("killed", "3")]
        running = [
            start("write", str(lake.place), run_id, power, str(rows), str(times), options=proxy.options)
            for run_id, power in words
        ]
        before = lake.snapshot(READINGS).version or 0
        release(*running)
        while (lake.snapshot(READINGS).version or 0) < before + 2:
            assert any(process.poll() is None for process in running)
        running[2].kill()
        running[2].communicate(timeout=30)
        finish(*running[:2])
        assert proxy.injected
    for run_id, power in words[:2]:
        found = lake.scan(READINGS, [run_id]).collect()["power_w"].to_list()
        assert found == [float(power)] * rows
    # What the killed one wrote is there whole, or what was there before.
    assert lake.scan(READINGS, ["killed"]).collect()["power_w"].to_list() in ([9.0] * 3, [3.0] * rows)
    assert lake.replace(READINGS, "killed", readings("killed"), SECOND).is_changed


@pytest.mark.parametrize("fault", ["reset", "reset after", "hang after"])
def test_a_commit_whose_answer_is_lost_is_made_once(bucket: str, store_port: int, fault: str) -> None:
    with StoreProxy(store_port, 11, EMULATOR).serving() as proxy:
        lake = Lake(Location.of(f"{bucket}/lake", hurry(proxy.options)))
        lake.replace(READINGS, "a", readings("a", [0.0]), FIRST)
        before = lake.snapshot(READINGS).version or 0
        proxy.only, proxy.faults, proxy.fails = r"PUT .*_delta_log/\d+\.json", (fault,), 0.5
        for power in range(1, 7):
            lake.replace(READINGS, "a", readings("a", [float(power)] * power), f"{power:064x}")
            assert lake.scan(READINGS).collect()["power_w"].to_list() == [float(power)] * power
        assert proxy.injected[fault] > 0
        assert lake.snapshot(READINGS).version == before + 6


@pytest.mark.parametrize("fault", [*FAULTS, *HANGS])
def test_an_object_that_is_put_once_is_told_from_that_of_another(bucket: str, store_port: int, fault: str) -> None:
    with StoreProxy(store_port, 3, EMULATOR).serving() as proxy:
        store = Location.of(f"{bucket}/claims", hurry(proxy.options, "300ms")).store
        proxy.faults, proxy.fails = (fault,), 0.5
        for place in range(2 if fault in HANGS else 3):
            put_new(store, f"claim-{place}", b"mine")
            with pytest.raises(AlreadyExistsError):
                put_new(store, f"claim-{place}", b"theirs")
            assert bytes(store.get(f"claim-{place}").bytes()) == b"mine"
        assert proxy.injected[fault] > 0


# How many bytes a client puts in one request: more of them go in parts.
PART_BYTES = 5 << 20
PART = r"PUT .*[?&](partNumber=\d|comp=block&)"


def test_large_files_whose_upload_was_killed_or_cut_are_not_there_or_whole(
    bucket: str, store_port: int, tmp_path: Path
) -> None:
    """A landed file and a data file, each in parts."""
    large = tmp_path / "large.json"
    large.write_bytes(random.Random(1).randbytes(2 * PART_BYTES + 1000))
    wanted = many_readings("big")
    with StoreProxy(store_port, 5, EMULATOR).serving() as proxy:
        zone = LandingZone(Location.of(f"{bucket}/landing", proxy.options))
        lake = Lake(Location.of(f"{bucket}/lake", proxy.options))
        lake.replace(READINGS, "big", readings("big", [9.0]), FIRST)
        proxy.holds = PART
        killed = start("upload", str(lake.place), str(zone.place), "big", str(large), options=proxy.options)
        try:
            while len(proxy.held) < 2:
                assert killed.poll() is None, killed.communicate()[0]
                time.sleep(0.05)
        finally:
            killed.kill()
            killed.communicate()
            proxy.holds = None
        assert lake.scan(READINGS).collect()["power_w"].to_list() == [9.0]
        assert zone.run_ids() == ([], ["big"])
        if EMULATOR is S3:  # parts that nobody sees are kept: docs/object-stores.md says how to be rid of them
            assert count_uploads(store_port, bucket) == 2
        zone.remove("big")
        proxy.only, proxy.faults = rf"{PART}|GET .*(large\.json|\.parquet)", ("cut request", "cut answer")
        proxy.fails = 0.4
        zone.land("big", {"large.json": large}, MANIFEST)
        assert lake.replace(READINGS, "big", wanted, SECOND).bytes > 2 * PART_BYTES
        (file,) = zone.files("big")
        with asyncio.run(file.fetch()) as fetched:
            assert fetched.sha256 == hashlib.sha256(large.read_bytes()).hexdigest()
        rows = lake.scan(READINGS).sort("ordinal").collect()
        assert rows["power_w"].equals(pl.Series("power_w", wanted["power_w"]))
        assert set(proxy.injected) == {"cut request", "cut answer"}


def count_uploads(port: int, bucket: str) -> int:
    """The uploads in parts that were begun in a bucket and never ended."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{bucket.removeprefix('s3://')}?uploads") as answer:
        text: bytes = answer.read()
    return text.count(b"</UploadId>")


# -- the landing zone -----------------------------------------------------------------------------------------


def test_an_existing_remote_run_is_refused(remote_zone: LandingZone, files: dict[str, Path]) -> None:
    remote_zone.land(RUN, files, MANIFEST)
    before = objects(remote_zone)
    with pytest.raises(EvidenceRejected, match="already in the landing zone"):
        remote_zone.land(RUN, {"other.json": files["r0.json"]}, MANIFEST)
    assert objects(remote_zone) == before


def test_what_an_interrupted_landing_left_is_no_run_and_never_becomes_part_of_one(
    remote_zone: LandingZone, files: dict[str, Path]
) -> None:
    obstore.put(remote_zone.place.store, f"{RUN}/left-over.json", b"{}")
    assert remote_zone.run_ids() == ([], [RUN])
    try:
        remote_zone.land(RUN, files, MANIFEST)
    except EvidenceRejected:
        assert remote_zone.run_ids() == ([], [RUN])
    else:
        assert {file.name for file in remote_zone.files(RUN)} == set(files)


def test_two_landings_of_one_remote_run_at_once_are_never_mixed(
    remote_zone: LandingZone, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    put, names = obstore.put, ("r0.json", "r1.json")
    slow, quick = ({f"{who}-{name}": files[name] for name in names} for who in ("slow", "quick"))

    def put_and_be_overtaken(store: Any, path: str, *rest: Any, **options: Any) -> Any:
        written = put(store, path, *rest, **options)
        monkeypatch.undo()
        with contextlib.suppress(EvidenceRejected):
            remote_zone.land(RUN, quick, MANIFEST)
        return written

    monkeypatch.setattr(obstore, "put", put_and_be_overtaken)
    with contextlib.suppress(EvidenceRejected):
        remote_zone.land(RUN, slow, MANIFEST)
    assert {file.name for file in remote_zone.files(RUN)} in (set(slow), set(quick))


def test_a_folder_in_a_remote_run_says_why_it_is_not_read(remote_zone: LandingZone, files: dict[str, Path]) -> None:
    remote_zone.land(RUN, files, MANIFEST)
    obstore.put(remote_zone.place.store, f"{RUN}/folder/inner.json", b"{}")
    problems = {file.name: file.problem for file in remote_zone.files(RUN) if file.problem}
    assert problems == {"folder": "it is a directory; a run's files lie side by side"}


def test_a_remote_run_that_is_not_there_is_refused(remote_lake: Lake, remote_zone: LandingZone) -> None:
    with pytest.raises(EvidenceRejected, match=r"nobody has no run\.toml"):
        remote_zone.manifest("nobody")
    with pytest.raises(EvidenceRejected, match="nobody"):
        materialise(remote_lake, remote_zone, "nobody", Limits())
