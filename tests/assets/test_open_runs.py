"""A run that grows: whatever order its files come in, and however often, closed it is what a complete landing is."""

from __future__ import annotations

import random
import shutil
from functools import partial
from typing import TYPE_CHECKING

import pytest

from assets.build import bronze, landing_memory
from assets.build.catalogue import TABLES
from assets.build.context import BuildContext
from assets.build.tiers import TIERS, build_tier
from bronze import runs, source_files
from bronze.limits import Limits
from lake.engines import engine
from lake.identity import MANIFEST, OPEN
from lake.landed_files import Fetched, LandedFile
from tests.support.campaigns import is_soak, pick_size
from tests.support.nsys_exports import eight_processes
from tests.support.recorded_lake import ROOT
from tests.support.sample_tables import digests, trace
from tests.support.up_to_date import find_landed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from assets.build.tiers import Tables
    from tests.conftest import LandFiles

RUN = "run-1"
SAMPLES = ROOT / "samples"
TRACED, LOGGED = "traces, logs and samples of a device", "an export of Nsight, logs and samples of a device"
ALL = [table for tables in TIERS.values() for table in tables]
# In the soak each replay goes on to gold; else the last one of the traces, of which silver takes seconds, and each of
# the others.
CAMPAIGNS, REPLAYS = pick_size(1, 50), 4
BRONZE = [table for table in TABLES.values() if table.tier == "bronze"]
NCCL_LOG = (
    b"node-7:41:43 [2] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 6291456 datatype 7 op 0 root 0 "
    b"comm 0x5 [nranks=4] stream 0x9\n"
)
CALL = b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "pid": 480, "ts": %d, "dur": 5}]}'
Arrival = tuple[str, bytes]


def read_recording(kind: str, tmp_path: Path) -> dict[str, bytes]:
    """A recording with its manifest, a file that another one repeats, and one that nobody can read."""
    folder = SAMPLES / ("resnet50-sealed-w2" if kind == TRACED else "gpt2-plain-w4-again1")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    first = next(name for name in sorted(files) if name.endswith(".gz" if kind == TRACED else ".csv"))
    if kind == LOGGED:
        files |= {"nccl.log": NCCL_LOG, "export.sqlite": eight_processes(1)[0].to_bytes(tmp_path / "export.sqlite")}
    return {**files, f"again-{first}": files[first], "NOTES.md": b"# nothing to measure\n"}


def list_arrivals(files: dict[str, bytes], chance: random.Random) -> Iterator[Arrival]:
    """Each file in pieces, some of them more than once, in an order that only keeps the pieces of a file in theirs.

    A file that is whole may come again, and be cut while it comes; the manifest may come last of all.
    """
    waiting = {}
    for name, data in files.items():
        cuts = sorted(chance.randrange(len(data)) for _ in range(chance.choice([0, 0, 1, 2])))
        again = [*[data[: chance.randrange(len(data))]] * chance.choice([0, 0, 1]), data]
        # What is cut of a manifest is lines: it is written anew, and renamed.
        pieces = [data[:cut] if name != MANIFEST else data[: data.rfind(b"\n", 0, cut) + 1] for cut in cuts]
        waiting[name] = [*pieces, data, *(again if chance.random() < 0.5 and name != MANIFEST else ())]
    while waiting:
        name = chance.choice(sorted(waiting))
        yield name, waiting[name].pop(0)
        if not waiting[name]:
            del waiting[name]


def build(land_files: LandFiles, run_id: str = RUN, engine_name: str = "polars", tables: Tables = TIERS) -> None:
    """Silver and gold of a run, or some of their tables."""
    context = BuildContext(land_files.lake, land_files.zone, Limits())
    for tier in [tier for tier in tables if tier != "bronze"]:
        made = build_tier(context, tier, [run_id], partial(engine, engine_name), tables=tables)
        assert [one.fault for one in made] == [None]


def is_fresh(land_files: LandFiles) -> bool:
    return RUN in find_landed(land_files.lake, land_files.zone, [RUN])


def open_run(land_files: LandFiles, manifest: str = 'regime = "cc_off"\n') -> Path:
    directory = land_files.zone.place.directory / RUN
    directory.mkdir(parents=True)
    (directory / OPEN).touch()
    (directory / MANIFEST).write_text(manifest, "utf-8")
    return directory


@pytest.mark.parametrize("kind", [TRACED, LOGGED])
@pytest.mark.parametrize("campaign", range(CAMPAIGNS))
def test_a_recording_that_arrives_in_any_order_is_what_a_complete_landing_is(
    land_files: LandFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, campaign: int, kind: str
) -> None:
    files = read_recording(kind, tmp_path)
    directory = land_files.write(files, RUN, files[MANIFEST].decode())
    land_files.materialise(RUN)
    build(land_files)
    whole, landings = digests(land_files.lake, RUN, ALL), 0
    assert len(set(whole.values())) > 20
    for replay in range(REPLAYS):
        chance = random.Random(campaign * REPLAYS + replay)
        shutil.rmtree(directory)
        directory.mkdir()
        (directory / OPEN).touch()
        if (
            replay % 2
        ):  # as if each file had lain there for seconds when it was listed: its mark tells whether it changed
            monkeypatch.setattr(landing_memory, "is_at_rest", lambda *_: True)
        else:
            monkeypatch.undo()
        is_built = kind == LOGGED or replay == REPLAYS - 1 or is_soak()
        for name, data in list_arrivals(files, chance):
            (directory / name).write_bytes(data)
            if chance.random() < 0.3 and (directory / MANIFEST).exists():
                land_files.materialise(RUN)
                landings += 1
                assert land_files.lake.scan(runs.TABLE, [RUN]).collect()["is_open"].all()
                if is_built and chance.random() < 0.2:  # made of what has come, and made again of all
                    build(land_files)
        (directory / OPEN).unlink()
        assert not is_fresh(land_files)
        land_files.materialise(RUN)
        assert is_fresh(land_files)
        assert digests(land_files.lake, RUN, BRONZE) == {table.full_name: whole[table.full_name] for table in BRONZE}
        if is_built:
            build(land_files)
            assert digests(land_files.lake, RUN, ALL) == whole
    assert landings >= REPLAYS


def count_parsed(land_files: LandFiles) -> dict[str, int]:
    """Land, and say how many bytes of which files a reader was given."""
    parsed: dict[str, int] = {}

    def note(name: str, source_bytes: int, _rows: int) -> None:
        parsed[name] = max(source_bytes, parsed.get(name, 0))

    bronze.materialise(land_files.lake, land_files.zone, RUN, Limits(), note)
    return parsed


def test_a_cycle_costs_its_own_bytes_and_no_others(land_files: LandFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    fetch = LandedFile.fetch

    async def note_fetch(self: LandedFile, *, is_copied: bool = False) -> Fetched:
        fetched.append(self.name)
        return await fetch(self, is_copied=is_copied)

    monkeypatch.setattr(LandedFile, "fetch", note_fetch)
    # As if the files of a cycle had lain there for seconds when they were listed.
    monkeypatch.setattr(landing_memory, "is_at_rest", lambda *_: True)
    directory = open_run(land_files)
    cycles = [{f"cycle{number}-r{rank}.json": trace(rank, 40, seed=number) for rank in range(2)} for number in range(3)]
    for files in cycles:
        for name, data in files.items():
            (directory / name).write_bytes(data)
        fetched.clear()
        assert count_parsed(land_files) == {name: len(data) for name, data in files.items()}
        assert sorted(fetched) == sorted(files)
    assert land_files.lake.scan(runs.TABLE, [RUN]).collect()["cycles_count"].to_list() == [3]
    (directory / OPEN).unlink()
    assert count_parsed(land_files) == {}
    assert is_fresh(land_files)


def test_a_file_just_written_is_digested_again_and_not_parsed_again(land_files: LandFiles) -> None:
    directory = open_run(land_files)
    data = trace(0, 40)
    (directory / "r0.json").write_bytes(data)
    assert count_parsed(land_files) == {"r0.json": len(data)}
    (directory / "r0.json").write_bytes(data)  # delivered again: another time, the same bytes
    (directory / "copy.json").write_bytes(data)
    assert count_parsed(land_files) == {}
    files = land_files.read(RUN).files
    assert sorted(files["outcome"].to_list()) == ["kept", "merged"]


@pytest.mark.parametrize("harm", ["lost", "changed", "another keyring"])
def test_a_note_that_is_no_note_of_this_lake_costs_time_and_changes_nothing(land_files: LandFiles, harm: str) -> None:
    directory = open_run(land_files)
    files = {f"r{rank}.json": trace(rank, 30) for rank in range(2)}
    for name, data in files.items():
        (directory / name).write_bytes(data)
    land_files.materialise(RUN)
    before = digests(land_files.lake, RUN, BRONZE)
    (note,) = (land_files.lake.place.directory / "_staging" / "landings").iterdir()
    sealed = note.read_bytes()
    assert b"r0.json" not in sealed
    assert b"H200" not in sealed
    assert note.stat().st_mode & 0o077 == 0
    if harm == "lost":
        note.unlink()
    else:
        note.write_bytes(sealed[:-1] + b"x" if harm == "changed" else b"k" + sealed)
    (directory / "r0.json").touch()
    assert sorted(count_parsed(land_files)) == sorted(files)
    assert digests(land_files.lake, RUN, BRONZE) == before


def test_a_trace_that_is_cut_waits_until_it_is_whole_or_the_run_is_closed(land_files: LandFiles) -> None:
    directory = open_run(land_files)
    whole, cut = trace(0, 40), trace(1, 40)[:3000]
    (directory / "r0.json").write_bytes(whole)
    (directory / "r1.json").write_bytes(cut)
    land_files.materialise(RUN)
    assert land_files.read(RUN).files["file_name"].to_list() == ["r0.json"]
    assert land_files.read(RUN).unreadable.is_empty()
    assert landing_memory.list_held_back(land_files.lake.read_landing_note(RUN)) == ["r1.json"]
    (directory / OPEN).unlink()
    land_files.materialise(RUN)
    read = land_files.read(RUN)
    assert read.files["file_name"].to_list() == ["r0.json", "r1.json"]
    assert read.file("r1.json")["is_complete"] is False
    assert not read.unreadable.is_empty()
    assert land_files.lake.read_landing_note(RUN) is None


def test_a_log_that_grows_while_it_is_read_is_read_as_far_as_it_had_come(land_files: LandFiles) -> None:
    directory = open_run(land_files)
    log = directory / "steps.csv"
    line = "0,{},recorded,1700000000.{:09d},0.5\n"
    log.write_text("rank,step,phase,began_epoch_s,duration_s\n" + "".join(line.format(n, n) for n in range(5)), "utf-8")
    mark = LandedFile._digest

    def digest_and_grow(self: LandedFile) -> tuple[str, str]:
        found = mark(self)
        with log.open("a", encoding="utf-8") as file:
            file.write(line.format(9, 9))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LandedFile, "_digest", digest_and_grow)
        land_files.materialise(RUN)
    assert land_files.read(RUN).training.height == 6
    assert not is_fresh(land_files)
    (directory / OPEN).unlink()
    land_files.materialise(RUN)
    assert is_fresh(land_files)
    assert land_files.read(RUN).training.height == 6


def test_traces_without_a_rank_are_numbered_as_if_all_had_come_at_once(land_files: LandFiles) -> None:
    files = {f"{name}.json": trace(None, 20, seed=seed) for seed, name in enumerate(("c", "a", "b"))}
    files |= {f"cycle{number}.json": CALL % (number * 100) for number in range(3)}
    land_files.write(files, "whole")
    land_files.materialise("whole")
    directory = open_run(land_files)
    for name, data in files.items():
        (directory / name).write_bytes(data)
        land_files.materialise(RUN)
    (directory / OPEN).unlink()
    assert count_parsed(land_files) == {}
    assert digests(land_files.lake, RUN, BRONZE) == digests(land_files.lake, "whole", BRONZE)
    ranks = dict(land_files.read(RUN).files.select("file_name", "rank").iter_rows())
    assert set(ranks.values()) == {0, 1, 2, 3}
    assert len({rank for name, rank in ranks.items() if name.startswith("cycle")}) == 1


def test_cycles_of_a_rank_agree_and_two_traces_of_the_same_time_do_not(land_files: LandFiles) -> None:
    base = b'"baseTimeNanoseconds": 1700000000000000000'
    later = trace(0, 20, seed=1, world_size=1).replace(base, base.replace(b"17000", b"17010"))
    first, beside = trace(0, 20, world_size=1), trace(0, 20, seed=2, world_size=1)
    cycles = land_files({"one.json": first, "two.json": later}, "cycles").runs.to_dicts()[0]
    assert (cycles["conflicts"], cycles["cycles_count"], cycles["is_open"]) == (None, 2, False)
    doubled = land_files({"one.json": first, "two.json": beside}, "doubled").runs.to_dicts()[0]
    assert doubled["conflicts"] == "ranks: more than one trace of rank 0"


def test_what_an_open_run_lacks_is_no_row_of_its_files(land_files: LandFiles) -> None:
    directory = open_run(land_files)
    assert land_files.lake.read_landing_note(RUN) is None
    assert not (land_files.lake.place.directory.parent / "keyring.json").exists()  # to ask makes no keyring
    land_files.materialise(RUN)
    (row,) = land_files.lake.scan(runs.TABLE, [RUN]).collect().to_dicts()
    assert (row["is_open"], row["files_count"], row["cycles_count"]) == (True, 0, 0)
    assert land_files.lake.scan(source_files.TABLE, [RUN]).collect().is_empty()
    assert is_fresh(land_files)
    (directory / OPEN).unlink()
    assert not is_fresh(land_files)
