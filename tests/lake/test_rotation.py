from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from assets.build.catalogue import TABLES
from lake import commits
from lake.errors import ContractBroken, SourceUnavailable
from lake.keyring import KeyringFile
from lake.locations import Location
from lake.store import Lake
from pipelines.cli.keys import reseal_tables
from tests.support.campaigns import pick_size
from tests.support.forks import Forks
from tests.support.planted_texts import finds
from tests.support.sample_tables import (
    FIRST,
    HOST,
    NOTE,
    OWNER,
    READINGS,
    SECOND,
    VISITS,
    files_under,
    readings,
    visits,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from lake.staging import Stage
    from lake.table_log import TableLog

RUNS = [f"run-{place}" for place in range(6)]
ROWS = pick_size(1_000, 4_000)


@pytest.fixture
def keyring(tmp_path: Path) -> KeyringFile:
    """The keyring of the `lake` fixture."""
    return KeyringFile(tmp_path / "keyring.json", is_made_on_first_use=True)


def reveal_visits(lake: Lake, run_id: str) -> pa.Table:
    stored = lake.scan(VISITS, [run_id]).sort("ordinal").collect().to_arrow()
    return lake.reveal(VISITS, stored).cast(VISITS.arrow_schema)


def test_a_partition_is_sealed_again_in_one_commit_and_stays_as_fresh_as_it_was(
    lake: Lake, keyring: KeyringFile
) -> None:
    before = lake.replace(VISITS, "a", visits(), FIRST, seen=SECOND)
    lake.replace(VISITS, "b", visits("b"), SECOND)
    old, new = keyring().active_id, keyring.rotate().active_id
    written = lake.reseal(VISITS, "a")
    assert (written.is_changed, written.rows, written.version) == (True, before.rows, before.version + 2)
    assert lake.sealed_with(VISITS) == {"a": {new}, "b": {old}}
    assert reveal_visits(lake, "a") == visits()
    snapshot = lake.snapshot(VISITS)
    assert snapshot.is_made_from("a", FIRST)
    assert snapshot.has_seen("a", SECOND)
    assert snapshot.is_made_from("b", SECOND)
    (last,) = DeltaTable(str(lake.place.directory / VISITS.path)).history(1)
    assert (last["teetotal.run_id"], last["teetotal.sealed_with"]) == ("a", new)
    assert last["teetotal.content_sha256"] == written.content_sha256 == snapshot.content_sha256("a")


def test_a_partition_that_the_active_key_sealed_is_left_alone(lake: Lake) -> None:
    first = lake.replace(VISITS, "a", visits(), FIRST)
    before = files_under(lake.place.directory)
    written = lake.reseal(VISITS, "a")
    assert (written.is_changed, written.version, written.rows) == (False, first.version, first.rows)
    assert files_under(lake.place.directory) == before


def test_sealing_again_gives_the_bytes_that_writing_anew_would(lake: Lake, keyring: KeyringFile) -> None:
    lake.replace(VISITS, "a", visits(), FIRST, seen=SECOND)
    keyring.rotate()
    resealed = lake.reseal(VISITS, "a")
    again = lake.replace(VISITS, "a", visits(), FIRST, seen=SECOND)
    assert (again.is_changed, again.version, again.content_sha256) == (
        False,
        resealed.version,
        resealed.content_sha256,
    )


def test_tokens_of_every_key_stay_readable_side_by_side(lake: Lake, keyring: KeyringFile) -> None:
    for run_id in RUNS[:3]:
        lake.replace(VISITS, run_id, visits(run_id), FIRST)
        keyring.rotate()
    assert len({key_id for ids in lake.sealed_with(VISITS).values() for key_id in ids}) == 3
    assert [reveal_visits(lake, run_id) for run_id in RUNS[:3]] == [visits(run_id) for run_id in RUNS[:3]]


def test_a_partition_of_a_key_that_is_lost_is_not_touched(lake: Lake, keyring: KeyringFile, tmp_path: Path) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    before = files_under(lake.place.directory)
    other = KeyringFile(tmp_path / "other.json")
    other.create()
    stranger = Lake(lake.place, other)
    with pytest.raises(ContractBroken, match=f"was sealed with key {keyring().active_id}, which .*other.json does not"):
        stranger.reseal(VISITS, "a")
    assert files_under(lake.place.directory) == before


def test_a_table_without_sealed_columns_holds_tokens_of_no_key(lake: Lake, tmp_path: Path) -> None:
    lake.replace(READINGS, "a", readings(label="sealed:1:k0000001:AAAA"), FIRST)
    assert lake.sealed_with(READINGS) == lake.sealed_with(VISITS) == {}
    assert not (tmp_path / "keyring.json").exists()


def test_a_writer_that_is_faster_is_not_undone(
    lake: Lake, keyring: KeyringFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine, which shares no lock, replaces the partition while it is being sealed again."""
    lake.replace(VISITS, "a", visits(), FIRST)
    keyring.rotate()
    commit, newer = Lake._commit, visits(notes=["something newer"])

    def lose_to_a_rival(*arguments: object, **named: object) -> object:
        monkeypatch.undo()
        rival = Lake(lake.place, keyring)
        monkeypatch.setattr("lake.staging.hold_lock", lambda *_: nullcontext())
        rival.replace(VISITS, "a", newer, SECOND)
        return commit(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Lake, "_commit", lose_to_a_rival)
    lake.reseal(VISITS, "a")
    assert reveal_visits(lake, "a") == newer
    assert lake.snapshot(VISITS).is_made_from("a", SECOND)


def test_commits_that_are_lost_again_and_again_are_a_transient_error(
    lake: Lake, keyring: KeyringFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    keyring.rotate()
    exchange, rivals = Lake._exchange, iter(range(1, 100))

    def lose_to_a_rival(self: Lake, log: TableLog, stage: Stage) -> object:
        rival = DeltaTable(lake.uri(VISITS))
        mark = CommitProperties(app_transactions=[Transaction("a", next(rivals))])
        rival.create_write_transaction([], "append", rival.schema(), list(VISITS.partition_by), commit_properties=mark)
        return exchange(self, log, stage)

    monkeypatch.setattr(commits, "TRIES", 3)
    monkeypatch.setattr(Lake, "_exchange", lose_to_a_rival)
    with pytest.raises(SourceUnavailable, match="3 commits in a row lost to other writers"):
        lake.reseal(VISITS, "a")
    assert reveal_visits(lake, "a") == visits()


def test_a_remote_partition_is_sealed_again(remote_lake: Lake, keyring: KeyringFile) -> None:
    lake = Lake(remote_lake.place, keyring)
    lake.replace(VISITS, "a", visits(), FIRST, seen=SECOND)
    new = keyring.rotate().active_id
    assert lake.reseal(VISITS, "a").is_changed
    assert lake.sealed_with(VISITS) == {"a": {new}}
    assert reveal_visits(lake, "a") == visits()
    assert lake.snapshot(VISITS).has_seen("a", SECOND)


# -- killed in the middle -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """So many seconds after that partition was begun."""

    partition: int
    seconds: float


@pytest.fixture
def forks() -> Iterator[Forks]:
    """Rotations to be killed."""
    found = Forks("tests.support.processes")
    yield found
    found.end()


def big(run_id: str) -> pa.Table:
    return visits(run_id, [f"{NOTE} {place}" for place in range(ROWS)])


@pytest.mark.timeout(pick_size(300, 14_400))
def test_killed_at_any_moment_a_rotation_loses_nothing_and_can_be_finished(
    lake: Lake, keyring: KeyringFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: Forks
) -> None:
    for run_id in RUNS:
        lake.replace(VISITS, run_id, big(run_id), FIRST, seen=SECOND)
    chance = random.Random(8)
    moments = [Moment(1 + place % len(RUNS), chance.uniform(0, 0.08)) for place in range(pick_size(8, 320))]
    killed, mixed = 0, 0
    for moment in moments:
        run_killed = partial(forks.run, kill_after_s=moment.seconds, line="reseal", times=moment.partition)
        killed += run_killed("rotate", {}, lake.place, keyring.path) != 0
        found = lake.sealed_with(VISITS)
        assert all(len(found[run_id]) == 1 for run_id in RUNS), "a partition holds tokens of two keys"
        mixed += len(set.union(*found.values())) > 1
        assert all(reveal_visits(lake, run_id) == big(run_id) for run_id in RUNS)
    assert killed >= len(moments) // 2
    assert mixed > 0, "no kill fell between two partitions"

    monkeypatch.setitem(TABLES, VISITS.full_name, VISITS)
    assert 0 < len(list(reseal_tables(lake, keyring()))) <= len(RUNS)
    assert list(reseal_tables(lake, keyring())) == []
    assert lake.sealed_with(VISITS) == {run_id: {keyring().active_id} for run_id in RUNS}
    assert all(reveal_visits(lake, run_id) == big(run_id) for run_id in RUNS)
    snapshot = lake.snapshot(VISITS)
    assert all(snapshot.is_made_from(run_id, FIRST) and snapshot.has_seen(run_id, SECOND) for run_id in RUNS)
    elsewhere = Lake(Location.of(tmp_path / "elsewhere"), keyring)
    anew = [elsewhere.replace(VISITS, run_id, big(run_id), FIRST).content_sha256 for run_id in RUNS]
    assert [snapshot.content_sha256(run_id) for run_id in RUNS] == anew
    assert finds(lake.place.directory, HOST, OWNER, NOTE) == []
