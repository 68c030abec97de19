from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from lake import commits, locks
from lake.errors import SourceUnavailable
from lake.store import Lake
from tests.support.processes import finish, release, start
from tests.support.sample_tables import FIRST, READINGS, SECOND, readings

WRITERS = 4
ROWS = 500


def write_at_once(lake: Lake, run_ids: list[str], times: int) -> None:
    """Processes that begin to write at the same moment; the power of a row is the place of its writer."""
    running = [
        start("write", str(lake.place), run_id, str(place), str(ROWS + place), str(times), options=lake.place.options)
        for place, run_id in enumerate(run_ids)
    ]
    release(*running)
    finish(*running)


def test_writers_of_different_runs_all_succeed(lake: Lake) -> None:
    run_ids = [f"run-{place}" for place in range(WRITERS)]
    write_at_once(lake, run_ids, times=2)
    snapshot = lake.snapshot(READINGS)
    assert snapshot.run_ids == run_ids
    for place, run_id in enumerate(run_ids):
        rows = lake.scan(READINGS, [run_id]).collect()
        assert rows["power_w"].to_list() == [float(place)] * (ROWS + place)
        assert snapshot.is_made_from(run_id, f"{place:064x}")


def test_writers_of_one_run_leave_one_copy_and_it_is_one_of_theirs(lake: Lake) -> None:
    lake.replace(READINGS, "same", readings("same"), FIRST)
    write_at_once(lake, ["same"] * WRITERS, times=3)
    rows = lake.scan(READINGS).sort("ordinal").collect()
    (power,) = set(rows["power_w"].to_list())
    assert rows["ordinal"].to_list() == list(range(ROWS + int(power)))
    assert lake.snapshot(READINGS).is_made_from("same", f"{int(power):064x}")
    assert len(lake.snapshot(READINGS).files("same")) == 1


def test_threads_of_one_process_write_one_run_one_after_the_other(lake: Lake) -> None:
    faults: list[BaseException] = []

    def work(place: int) -> None:
        try:
            lake.replace(READINGS, "same", readings("same", [float(place)] * (place + 1)), f"{place:064x}")
        except BaseException as error:  # noqa: BLE001 - the main thread looks at it
            faults.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    powers = lake.scan(READINGS).collect()["power_w"].to_list()
    assert powers == [powers[0]] * (int(powers[0]) + 1)


def test_the_next_writer_goes_on_when_the_one_before_it_is_done(lake: Lake) -> None:
    with lake.stage(READINGS, "a"):
        waiting = threading.Thread(target=lake.replace, args=(READINGS, "a", readings(), FIRST))
        waiting.start()
        time.sleep(0.2)
        assert lake.snapshot(READINGS).version is None
    waiting.join()
    assert lake.snapshot(READINGS).run_ids == ["a"]


def test_a_lock_that_cannot_be_had_is_a_transient_error(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.1)
    with lake.stage(READINGS, "a"):
        with pytest.raises(SourceUnavailable, match=r"silver\.readings, run a is being written by another") as caught:
            lake.replace(READINGS, "a", readings(), FIRST)
        assert caught.value.is_transient
        assert caught.value.hint
        lake.replace(READINGS, "b", readings("b"), FIRST)
    lake.replace(READINGS, "a", readings(), FIRST)
    assert lake.snapshot(READINGS).run_ids == ["a", "b"]


def test_commits_that_are_lost_again_and_again_are_a_transient_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer of the same run that knows no lock is always a moment faster."""
    lake.replace(READINGS, "a", readings(), FIRST)
    held = Lake._exchange
    rivals = itertools.count(1)

    def lose_to_a_rival(*arguments: Any, **settings: Any) -> Any:
        rival = DeltaTable(lake.uri(READINGS))
        mark = CommitProperties(app_transactions=[Transaction("a", next(rivals))])
        rival.create_write_transaction([], "append", rival.schema(), ["run_id"], commit_properties=mark)
        return held(*arguments, **settings)

    monkeypatch.setattr(commits, "TRIES", 3)
    monkeypatch.setattr(Lake, "_exchange", lose_to_a_rival)
    with pytest.raises(SourceUnavailable, match="3 commits in a row lost to other writers") as caught:
        lake.replace(READINGS, "a", readings(powers=[100.0]), SECOND)
    assert caught.value.is_transient
    assert next(rivals) == 4
    assert lake.scan(READINGS).sort("ordinal").collect().to_dicts() == readings().to_pylist()
