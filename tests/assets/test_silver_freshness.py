"""When silver is made again and when it is left alone, and what a run killed at any moment leaves behind."""

from __future__ import annotations

import json
import random
import signal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from assets.build import chunking, freshness, silver
from bronze import runs as claimed
from bronze import source_files
from lake import engines
from lake.errors import ContractBroken
from lake.keyring import KeyringFile
from lake.locations import Location
from lake.store import Lake
from silver import crossings, rule_counts, runs, spans, steps
from tests.support.campaigns import pick_engines, pick_size
from tests.support.forks import Forks
from tests.support.sample_tables import digests, files_under
from tests.support.up_to_date import find_landed, find_made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from lake.snapshot import Written
    from lake.tables import Table
    from tests.conftest import LandFiles

RUN = "run-1"
KILLED_AFTER = (claimed.TABLE, *silver.TABLES)
KILLS = pick_size(3, 120)
OFF, SEALED = 'regime = "cc_off"\n', 'regime = "sw_per_hop_aesgcm"\n'


def trace(rank: int, *, hooks: int = 3, note: str = "mine") -> bytes:
    """A trace with hooks that seal nothing, kernels, steps, and something to reject and something to seal."""
    events: list[dict[str, Any]] = []
    for place in range(hooks):
        start = 1000 * (place + 1)
        events += [
            {"cat": "user_annotation", "name": f"ProfilerStep#{place}", "tid": 1, "ts": start, "dur": 900},
            {"cat": "user_annotation", "name": "tee::all_reduce#1000", "tid": 1, "ts": start + 10, "dur": 100},
            {"cat": "user_annotation", "name": "tee::sendrecv", "tid": 1, "ts": start + 20, "dur": 10},
            {"cat": "kernel", "name": "gemm", "tid": 7, "ts": start + 30, "dur": 50, "args": {"correlation": place}},
            {"cat": "user_annotation", "name": note, "tid": 1, "ts": start + 40, "dur": 1},
            {"cat": "cpu_op", "name": note, "tid": 1, "ts": start + 40, "dur": -1},
        ]
    document = {
        "distributedInfo": {"rank": rank, "world_size": 2},
        "traceEvents": [{"ph": "X", "pid": 1, **event} for event in events],
    }
    return json.dumps(document).encode()


FILES = {"rank0.json": trace(0), "rank1.json": trace(1)}


def conform(land_files: LandFiles, engine: str = "polars") -> list[Written]:
    return silver.materialise(land_files.lake, RUN, engines.engine(engine))


def is_fresh(land_files: LandFiles) -> bool:
    """Whether nothing is left to do for the run, from its landing directory to silver."""
    landed = find_landed(land_files.lake, land_files.zone, [RUN])
    return RUN in find_made(land_files.lake, landed, silver.TABLES)


# -- fresh or stale -----------------------------------------------------------------------------------------------


def test_silver_is_stale_until_it_is_made_and_fresh_while_bronze_is_untouched(land_files: LandFiles) -> None:
    land_files(FILES)
    assert not is_fresh(land_files)
    conform(land_files)
    assert is_fresh(land_files)
    assert find_made(land_files.lake, [RUN, "another"], silver.TABLES) == {RUN}


@pytest.mark.parametrize("engine", pick_engines())
def test_conforming_again_what_is_fresh_writes_nothing_at_all(land_files: LandFiles, engine: str) -> None:
    land_files(FILES)
    conform(land_files)
    before = files_under(land_files.lake.place.directory)
    assert [each.is_changed for each in conform(land_files, engine)] == [False] * len(silver.TABLES)
    assert files_under(land_files.lake.place.directory) == before


def test_landing_again_what_has_not_changed_leaves_silver_fresh(land_files: LandFiles) -> None:
    land_files(FILES)
    conform(land_files)
    land_files(FILES)
    assert is_fresh(land_files)


def test_a_changed_trace_makes_silver_stale_and_conforms_as_if_it_were_new(
    land_files: LandFiles, tmp_path: Path
) -> None:
    land_files(FILES)
    conform(land_files)
    changed = {**FILES, "rank1.json": trace(1, hooks=5)}
    land_files.write(changed)
    assert not is_fresh(land_files)
    land_files.materialise()
    assert not is_fresh(land_files), "bronze has changed and silver has not"
    written = conform(land_files)
    assert is_fresh(land_files)
    keyring = KeyringFile(tmp_path / "keyring.json")
    anew = type(land_files)(Lake(Location.of(tmp_path / "anew"), keyring), land_files.zone)
    anew.materialise()
    assert [each.content_sha256 for each in conform(anew)] == [each.content_sha256 for each in written]
    assert land_files.lake.scan(steps.TABLE).collect().height == 3 + 5


def test_another_regime_annotates_the_same_crossings_anew(land_files: LandFiles) -> None:
    land_files(FILES, manifest=OFF)
    first = {each.table: each for each in conform(land_files)}
    land_files.write(FILES, manifest=SEALED)
    assert not is_fresh(land_files)
    land_files.materialise()
    second = {each.table: each for each in conform(land_files)}
    assert is_fresh(land_files)
    changed = {table for table, each in second.items() if each.content_sha256 != first[table].content_sha256}
    assert changed == {crossings.TABLE.full_name, runs.TABLE.full_name}
    found = land_files.lake.scan(crossings.TABLE).collect()
    assert found.height == found["violation"].count() == 2 * 3
    (run,) = land_files.lake.scan(runs.TABLE).collect().to_dicts()
    assert (run["regime"], run["agreement"]) == ("sw_per_hop_aesgcm", "contradicted")
    land_files(FILES, manifest=OFF)
    back = {each.table: each.content_sha256 for each in conform(land_files)}
    assert back == {table: each.content_sha256 for table, each in first.items()}


def test_a_run_whose_files_are_gone_from_its_directory_leaves_no_rows_of_them(land_files: LandFiles) -> None:
    directory = land_files.write(FILES)
    land_files.materialise()
    conform(land_files)
    (directory / "rank1.json").unlink()
    land_files.materialise()
    conform(land_files)
    assert land_files.lake.scan(spans.TABLE).collect()["rank"].unique().to_list() == [0]
    assert land_files.lake.scan(rule_counts.TABLE).collect()["rank"].unique().to_list() == [0]


@pytest.mark.parametrize(("module", "change"), [(freshness, "TRANSFORMS_VERSION"), (chunking, "CHUNK_EVENTS")])
def test_whatever_decides_in_silver_makes_it_stale_when_it_changes(
    land_files: LandFiles, monkeypatch: pytest.MonkeyPatch, module: ModuleType, change: str
) -> None:
    land_files(FILES)
    conform(land_files)
    monkeypatch.setattr(module, change, getattr(module, change) + 1)
    assert not is_fresh(land_files)
    assert not any(each.is_changed for each in conform(land_files)), "the same rows, under a new mark"
    assert is_fresh(land_files)


def test_a_run_that_fails_halfway_is_not_fresh_and_is_mended_by_the_next(land_files: LandFiles, tmp_path: Path) -> None:
    land_files(FILES)
    before = {each.table: each.content_sha256 for each in conform(land_files)}
    land_files(FILES, manifest=SEALED)
    (tmp_path / "keyring.json").chmod(0o640)
    with pytest.raises(ContractBroken, match=r"keyring\.json"):
        conform(land_files)
    assert not is_fresh(land_files)
    now = digests(land_files.lake, RUN, silver.TABLES)
    assert now == {name: digest for name, digest in before.items() if name in now}
    (tmp_path / "keyring.json").chmod(0o600)
    conform(land_files)
    assert is_fresh(land_files)


# -- killed at any moment -----------------------------------------------------------------------------------------


def test_a_file_of_which_not_all_events_are_settled_stops_its_run_and_leaves_it_stale(land_files: LandFiles) -> None:
    lake = land_files.lake
    land_files(FILES)
    answer = lake.scan(source_files.TABLE, [RUN]).collect()
    more = answer.with_columns(pl.col("events_count") + (pl.col("rank") == 1)).to_arrow()
    lake.replace(source_files.TABLE, RUN, more, "0" * 64)
    with pytest.raises(ContractBroken, match=r"run run-1: of 19 events of source [0-9a-f]{12}, 18 were kept"):
        conform(land_files)
    assert not is_fresh(land_files)
    assert lake.snapshot(runs.TABLE).mark(RUN) is None
    assert lake.scan(crossings.TABLE, [RUN]).collect().is_empty()


@pytest.fixture(scope="module")
def commands() -> Iterator[Forks]:
    """A process that runs `teetotal run` and survives that."""
    found = Forks("tests.support.killed_commands")
    yield found
    found.end()


def commits(lake: Lake, table: Table) -> int:
    """How many commits a table has, told from its directory alone."""
    return len(list((lake.place.directory / table.path / "_delta_log").glob("*.json")))


def kill_after(commands: Forks, land_files: LandFiles, table: Table, seconds: float) -> bool:
    """Kill -9 a run so many seconds after that table was committed to; whether it was still at work."""
    lake, zone = land_files.lake, land_files.zone
    before = commits(lake, table)
    ended = commands.run(
        "run_there", lake.place, zone.place, kill_after_s=seconds, is_due=lambda: commits(lake, table) > before
    )
    assert ended in {0, -signal.SIGKILL}
    return ended != 0


@pytest.mark.timeout(pick_size(300, 14_400))
def test_killed_at_any_moment_a_run_leaves_every_table_old_or_new_and_a_clean_run_mends_it(
    land_files: LandFiles, tmp_path: Path, commands: Forks
) -> None:
    lake, zone = land_files.lake, land_files.zone
    keyring = KeyringFile(tmp_path / "keyring.json", is_made_on_first_use=True)
    keyring()
    undisturbed = type(land_files)(Lake(Location.of(tmp_path / "undisturbed"), keyring), zone)
    contents = [{"rank0.json": trace(0), "rank1.json": trace(1, hooks=hooks)} for hooks in (3, 4)]
    whole = []
    for files in contents:
        undisturbed.write(files)
        undisturbed.materialise()
        conform(undisturbed)
        whole.append(digests(undisturbed.lake, RUN, silver.TABLES))
    empty = digests(lake, RUN, silver.TABLES)
    chance = random.Random(5)
    killed, between = 0, 0
    for place in range(KILLS):
        land_files.write(contents[place % 2])
        table = KILLED_AFTER[place * len(KILLED_AFTER) // KILLS]
        killed += kill_after(commands, land_files, table, chance.uniform(0, 0.05))
        found = digests(lake, RUN, silver.TABLES)
        assert all(found[name] in {empty[name], whole[0][name], whole[1][name]} for name in found)
        assert found == whole[place % 2] or not is_fresh(land_files)
        between += found not in (empty, *whole)
    assert killed >= KILLS // 2
    assert between > 0, "no kill fell between two tables"

    land_files.write(contents[1])
    assert commands.run("run_there", lake.place, zone.place) == 0
    assert is_fresh(land_files)
    assert digests(lake, RUN, silver.TABLES) == whole[1]
    assert not any(each.is_changed for each in conform(land_files))
