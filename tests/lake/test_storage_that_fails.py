from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import obstore
import pytest

from assets.build.bronze import materialise
from assets.build.catalogue import TABLES
from assets.build.provenance import make_lineage
from benchmarks.object_store import HANGS, S3, StoreProxy, read_injected, serve_proxy
from benchmarks.standalone import free_port
from bronze.limits import Limits
from lake import cut_off
from lake.cut_off import list_objects
from lake.errors import EvidenceRejected, LakeError, SourceUnavailable, explain
from lake.landing_notes import remove_note
from lake.landing_zone import LandingZone
from lake.lineage.keys import SigningKeys
from lake.locations import Location, report_unreachable
from lake.open_runs import close_run, open_run
from lake.open_tables import is_table
from lake.store import Lake
from tests.support.object_stores import EMULATOR, hurry
from tests.support.sample_tables import FIRST, READINGS, SECOND, digests, readings
from tests.support.up_to_date import find_landed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RUN = "run-1"
SEED = 5
SCHEME = "s3://" if EMULATOR is S3 else "az://"
MANIFEST = 'regime = "cc_off"\n'
# Made from another table, which its signed statement names.
COPIES = replace(READINGS, name="copies", inputs=(READINGS.full_name,))
BRONZE = [table for table in TABLES.values() if table.tier == "bronze"]


@pytest.fixture
def gate(store_port: int) -> Iterator[StoreProxy]:
    """Stands before the object store and refuses the requests that fit a pattern of method and path."""
    with StoreProxy(store_port, emulator=EMULATOR).serving() as proxy:
        yield proxy


def check_explained(error: LakeError, place: str) -> None:
    """An error that a person can use: one line, the place, and what to do."""
    assert place in error.what
    assert error.hint
    assert re.search(r"[\n\x1b]", str(error)) is None
    assert EMULATOR.secret not in str(error)


# -- storage that is not there --------------------------------------------------------------------------------

ASKED: dict[str, Callable[[Lake, LandingZone], object]] = {
    "list the runs": lambda _, zone: zone.run_ids(),
    "list a run": lambda _, zone: zone.files(RUN),
    "read a manifest": lambda _, zone: zone.manifest(RUN),
    "land a run": lambda _, zone: zone.land(RUN, {}, MANIFEST),
    "look at a table": lambda lake, _: lake.snapshot(READINGS),
    "write a table": lambda lake, _: lake.replace(READINGS, "a", readings(), FIRST),
    "land into bronze": lambda lake, zone: materialise(lake, zone, RUN, Limits()),
}


def ask(what: str, options: dict[str, str]) -> LakeError:
    """Put a question to places in a bucket that is not there."""
    lake, zone = (
        Lake(Location.of(f"{SCHEME}absent/lake", options)),
        LandingZone(Location.of(f"{SCHEME}absent/landing", options)),
    )
    with pytest.raises(LakeError) as caught:
        ASKED[what](lake, zone)
    return caught.value


@pytest.mark.parametrize("what", ASKED)
def test_a_bucket_that_is_not_there_is_an_error_of_one_line_with_a_hint(what: str, options: dict[str, str]) -> None:
    check_explained(ask(what, options), f"{SCHEME}absent/")


# A few, side by side: each waits for the store's own retries.
SLOW = ("list the runs", "write a table", "land into bronze")


def test_a_server_that_is_not_there_is_a_transient_error_of_one_line_with_a_hint() -> None:
    with ThreadPoolExecutor() as pool:
        for error in pool.map(ask, SLOW, [EMULATOR.options_for(free_port())] * len(SLOW)):
            assert isinstance(error, SourceUnavailable)
            check_explained(error, f"{SCHEME}absent/")


# -- storage that never answers -------------------------------------------------------------------------------


def test_a_store_that_never_answers_is_an_error_within_the_time_that_its_client_may_wait(
    gate: StoreProxy, bucket: str
) -> None:
    """Whoever asks: obstore, Delta and Polars, of which the last would wait for ever by itself."""
    options = hurry(gate.options, "100ms")
    lake, zone = Lake(Location.of(f"{bucket}/lake", options)), LandingZone(Location.of(f"{bucket}/landing", options))
    Lake(Location.of(f"{bucket}/lake", gate.options)).replace(READINGS, "a", readings(), FIRST)
    scan = lake.scan(READINGS)
    gate.faults, gate.fails = HANGS, 1.0

    def collect() -> None:
        with report_unreachable(f"{lake.place} could not be read"):
            scan.collect()

    asked: list[Callable[[], object]] = [
        zone.run_ids,
        lambda: lake.replace(READINGS, "a", readings("a", [2.0]), SECOND),
        collect,
    ]
    with ThreadPoolExecutor() as pool:
        for fault in pool.map(find_fault, asked, timeout=120):
            assert fault is not None
            check_explained(fault, SCHEME)
            assert "TIMEOUT" in (fault.hint or "")
    assert set(gate.injected) == set(HANGS)
    gate.fails = 0.0
    assert lake.scan(READINGS).collect()["power_w"].to_list() == readings()["power_w"].to_pylist()


def test_a_request_that_gets_no_answer_is_sent_again(gate: StoreProxy, bucket: str) -> None:
    lake = Lake(Location.of(f"{bucket}/lake", hurry(gate.options, "500ms")))
    gate.faults, gate.fails = HANGS, 0.1
    for power in range(1, 4):
        lake.replace(READINGS, "a", readings("a", [float(power)] * power), f"{power:064x}")
        assert lake.scan(READINGS).collect()["power_w"].to_list() == [float(power)] * power
    assert gate.injected


# -- storage that refuses in the middle of the work -----------------------------------------------------------

# In the order in which a run comes to them, so that each gets a little farther than the one before.
MOMENTS = {
    "listing the run": r"GET .*(list-type=2|comp=list).*landing",
    "reading the manifest": r"GET .*/run\.toml",
    "reading a trace": r"GET .*/r1\.json",
    "reading the log": r"GET .*_delta_log",
    "making a table": r"PUT .*_delta_log/0{20}\.json",
    "putting a data file": r"PUT .*trace_events/run_id.*\.parquet",
    "committing the events": r"PUT .*trace_events/_delta_log/0{19}1\.json",
    "committing the run": r"PUT .*/runs/_delta_log/0{19}1\.json",
}


def test_refused_at_any_moment_a_run_ends_in_an_error_of_one_line_and_a_clean_run_mends_it(
    gate: StoreProxy, bucket: str, lake: Lake, zone: LandingZone, files: dict[str, Path]
) -> None:
    options = gate.options
    far_lake, far_zone = (
        Lake(Location.of(f"{bucket}/lake", options)),
        LandingZone(Location.of(f"{bucket}/landing", options)),
    )
    for where in (zone, far_zone):
        where.land(RUN, files, MANIFEST)
    for place, pattern in enumerate(MOMENTS.values()):
        gate.refuses = pattern
        with pytest.raises(LakeError) as caught:
            materialise(far_lake, far_zone, RUN, Limits())
        check_explained(caught.value, SCHEME)
        assert gate.refused_count > place
        gate.refuses = None
        assert RUN not in find_landed(far_lake, far_zone, [RUN])
    materialise(far_lake, far_zone, RUN, Limits())
    materialise(lake, zone, RUN, Limits())
    assert RUN in find_landed(far_lake, far_zone, [RUN])
    assert digests(far_lake, RUN, BRONZE) == digests(lake, RUN, BRONZE)


def find_fault(act: Callable[[], object]) -> SourceUnavailable | None:
    """The error that something ends in; none where it does not."""
    try:
        act()
    except SourceUnavailable as error:
        return error
    return None


def test_credentials_that_expire_after_any_number_of_requests_are_named_and_leave_nothing_half_there(
    gate: StoreProxy, bucket: str, tmp_path: Path
) -> None:
    before, wanted = [0.0] * 3, [1.0] * 3
    keys = SigningKeys(tmp_path / "trust.txt", tmp_path / "key.pem", is_made_on_first_use=True)
    faults: list[bool] = []
    fault: SourceUnavailable | None
    for number in range(100):
        # A lake of its own: a commit more in the log is a request more, and the end would never be reached.
        place = Location.of(f"{bucket}/lake-{number}", gate.options)
        lake = Lake(place, lineage=make_lineage(place, keys, {}))
        for table in (READINGS, COPIES):
            lake.replace(table, "a", readings("a", before), FIRST)
        gate.good_for = number
        fault = find_fault(partial(lake.replace, COPIES, "a", readings("a", wanted), SECOND))
        gate.good_for = None
        found = lake.scan(COPIES).collect()["power_w"].to_list()
        if fault is None:
            assert found == wanted
            break
        check_explained(fault, SCHEME)
        assert "credentials, which have expired" in (fault.hint or "")
        assert found in (before, wanted)
        faults.append(found == wanted)
    else:
        pytest.fail("however many requests were answered, it ended in an error")
    assert len(faults) > 3
    assert not faults[0]


def test_a_scan_whose_credentials_expire_is_explained_as_what_it_is(gate: StoreProxy, bucket: str) -> None:
    lake = Lake(Location.of(f"{bucket}/lake", gate.options))
    lake.replace(READINGS, "a", readings(), FIRST)
    rows = lake.scan(READINGS)
    gate.good_for = 0
    with pytest.raises(OSError, match="400") as caught:
        rows.collect()
    gate.good_for = None
    fault = explain(caught.value, "a")
    assert isinstance(fault, SourceUnavailable)
    check_explained(fault, "run a: storage failed")
    assert "renew the store's credentials" in (fault.hint or "")


@pytest.mark.parametrize(("patience_s", "times"), [(0.0, 1), (60.0, 3)])
def test_what_was_cut_off_is_repeated_as_long_as_a_client_would(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, times: int
) -> None:
    monkeypatch.setattr(cut_off, "_PATIENCE_S", patience_s)
    monkeypatch.setattr(cut_off, "_TRIES", 3)
    tried = []

    def act() -> None:
        tried.append(1)
        raise OSError("HTTP error: operation timed out")

    with pytest.raises(OSError, match="timed out"):
        cut_off.repeat_cut_off(act)
    assert len(tried) == times


# -- requests that are cut off -------------------------------------------------------------------------------------


def test_what_a_store_is_asked_is_asked_again_where_the_answer_was_cut_off(
    store_port: int, bucket: str, options: dict[str, str]
) -> None:
    Lake(Location.of(f"{bucket}/lake", options)).replace(READINGS, "a", readings(), FIRST)
    with serve_proxy(store_port, seed=SEED, fails=0.3) as port:
        place = Location.of(f"{bucket}/lake", EMULATOR.options_for(port))
        root = place.child(*READINGS.full_name.split("."))
        for _ in range(30):
            assert is_table(root)
            assert place.list_directories() == [READINGS.tier]
            assert [item["path"] for item in list_objects(root.store, "_delta_log")]
        assert read_injected(port)["cut answer"] > 2


def test_an_open_run_whose_requests_are_cut_off_is_opened_closed_and_removed(gate: StoreProxy, bucket: str) -> None:
    """Before the store or after it has done what was asked: a client repeats neither a conditional put nor a delete."""
    options = gate.options
    lake, zone = Location.of(f"{bucket}/lake", options), LandingZone(Location.of(f"{bucket}/landing", options))
    gate.faults, gate.fails = ("reset", "reset after"), 0.4
    for number in range(4):
        run_id = f"run-{number}"
        open_run(zone, run_id, {}, MANIFEST)
        obstore.put(lake.store, f"_staging/landings/{run_id}.note", b"a note")
        close_run(zone, run_id)
        assert not zone.is_open(run_id)
        remove_note(lake, run_id)
        with pytest.raises(EvidenceRejected):  # it is there, and complete
            open_run(zone, run_id, {}, MANIFEST)
        zone.remove(run_id)
    gate.fails = 0.0
    assert set(gate.injected) == {"reset", "reset after"}
    assert [item["path"] for place in (lake, zone.place) for batch in obstore.list(place.store) for item in batch] == []
