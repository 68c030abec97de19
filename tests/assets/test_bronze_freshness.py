from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from assets.build.bronze import find_up_to_date as fresh_runs
from assets.build.bronze import materialise
from assets.build.catalogue import TABLES
from bronze import land, runs, trace_events
from bronze.limits import Limits
from lake.errors import EvidenceRejected
from lake.locations import Location
from lake.store import Lake
from tests.support.sample_tables import digests, files_under, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.conftest import LandFiles

RUN = "run-1"
ZERO, ONE, OTHER = trace(0, 20), trace(1, 30), trace(1, 40, seed=1)
ALTERED = ZERO.replace(b"aten::op_7", b"aten::op_8")
NAMELESS, ANOTHER = trace(None, 20), trace(None, 30)
FILES = {"a.json": ZERO, "b.json": ONE}
BRONZE = [table for table in TABLES.values() if table.tier == "bronze"]
CHANGES: dict[str, tuple[Callable[[Path], object], dict[str, bytes]]] = {
    "a changed file": (lambda run: (run / "b.json").write_bytes(OTHER), {"a.json": ZERO, "b.json": OTHER}),
    "a changed byte and the old time": (lambda run: alter(run / "a.json"), {"a.json": ALTERED, "b.json": ONE}),
    "a removed file": (lambda run: (run / "b.json").unlink(), {"a.json": ZERO}),
    "an added file": (lambda run: (run / "c.json").write_bytes(OTHER), {**FILES, "c.json": OTHER}),
    "a renamed file": (lambda run: (run / "b.json").rename(run / "z.json"), {"a.json": ZERO, "z.json": ONE}),
    "names exchanged": (lambda run: exchange(run, "a.json", "b.json"), {"a.json": ONE, "b.json": ZERO}),
    "a baseline": (lambda run: (run / "c.json").write_bytes(ONE), {**FILES, "c.json": ONE}),
    "all removed": (lambda run: empty(run, FILES), {}),
}


def exchange(run: Path, one: str, other: str) -> None:
    (run / one).rename(run / "aside")
    (run / other).rename(run / one)
    (run / "aside").rename(run / other)


def empty(run: Path, names: Iterable[str]) -> None:
    for name in names:
        (run / name).unlink()


def alter(path: Path) -> None:
    """Write other content of the same size into the file, and put its time back."""
    facts = path.stat()
    path.write_bytes(ALTERED)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def fresh(land_files: LandFiles, run_id: str = RUN) -> bool:
    return run_id in fresh_runs(land_files.lake, land_files.zone, [run_id])


def versions(lake: Lake) -> list[int | None]:
    return [lake.snapshot(table).version for table in BRONZE]


def data(lake: Lake) -> dict[str, bytes]:
    """Every data file of the lake, by its path."""
    return {path: content for path, content in files_under(lake.place.directory).items() if path.endswith(".parquet")}


# -- fresh or stale -------------------------------------------------------------------------------------------


def test_a_run_is_stale_until_it_has_landed_and_fresh_while_it_is_untouched(land_files: LandFiles) -> None:
    land_files.write(FILES)
    assert not fresh(land_files)
    land_files.materialise()
    assert fresh(land_files)
    land_files.write(FILES, "run-2")
    assert not fresh(land_files, "run-2")
    assert fresh(land_files)


def test_landing_again_what_is_fresh_writes_nothing_at_all(land_files: LandFiles) -> None:
    land_files(FILES)
    before = files_under(land_files.lake.place.directory)
    assert [each.is_changed for each in land_files.materialise()] == [False] * len(BRONZE)
    assert files_under(land_files.lake.place.directory) == before


@pytest.mark.parametrize(("change", "now"), CHANGES.values(), ids=CHANGES.keys())
def test_a_run_whose_files_changed_is_stale_and_lands_as_if_it_were_new(
    land_files: LandFiles, tmp_path: Path, change: Callable[[Path], object], now: dict[str, bytes]
) -> None:
    land_files(FILES, RUN)
    change(land_files.zone.place.directory / RUN)
    assert not fresh(land_files)
    land_files.materialise(RUN)
    assert fresh(land_files)

    elsewhere = type(land_files)(Lake(Location.of(tmp_path / "anew")), land_files.zone)
    anew = elsewhere(now, "anew")
    again = land_files.read(RUN)
    for one, other in ((again.files, anew.files), (again.events, anew.events), (again.runs, anew.runs)):
        assert one.drop("run_id").equals(other.drop("run_id"))
    assert sorted(again.files["file_name"]) == sorted(now)
    assert set(again.events["source_sha256"]) == set(
        again.files.filter(again.files["outcome"] == "kept")["source_sha256"]
    )


def test_a_changed_manifest_makes_a_run_stale_and_leaves_its_events_alone(land_files: LandFiles) -> None:
    first = land_files(FILES)
    before = digests(land_files.lake, RUN, BRONZE)
    land_files.write({}, manifest='regime = "hopper_spt_cc"\nmodel = "m"\n')
    assert not fresh(land_files)
    again = land_files.read(RUN, land_files.materialise())
    assert fresh(land_files)
    assert (again.runs["regime"].item(), again.runs["model"].item()) == ("hopper_spt_cc", "m")
    assert (first.runs["regime"].item(), first.runs["model"].item()) == ("cc_off", None)
    changed = {each.table for each in again.written if each.is_changed}
    after = digests(land_files.lake, RUN, BRONZE)
    assert changed == {name for name in before if before[name] != after[name]} == {runs.TABLE.full_name}


@pytest.mark.parametrize("name", ["a.json", "run.toml"])
def test_a_touched_file_is_read_again_and_no_data_is_written(land_files: LandFiles, name: str) -> None:
    land_files(FILES)
    before = data(land_files.lake)
    os.utime(land_files.zone.place.directory / RUN / name, ns=(10**18, 10**18))
    assert not fresh(land_files)
    assert [each.is_changed for each in land_files.materialise()] == [False] * len(BRONZE)
    assert fresh(land_files)
    assert data(land_files.lake) == before


def test_a_new_version_of_the_readers_makes_every_run_stale(
    land_files: LandFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_files(FILES)
    monkeypatch.setattr(land, "READERS_VERSION", land.READERS_VERSION + 1)
    assert not fresh(land_files)
    land_files.materialise()
    assert fresh(land_files)


def test_other_runs_stay_as_they_are(land_files: LandFiles) -> None:
    land_files(FILES, "other")
    before = digests(land_files.lake, "other", BRONZE)
    land_files({"a.json": OTHER}, RUN)
    (land_files.zone.place.directory / RUN / "a.json").unlink()
    land_files.materialise(RUN)
    assert fresh(land_files, "other")
    assert digests(land_files.lake, "other", BRONZE) == before


def test_a_run_that_is_not_there_is_refused_with_the_runs_that_are(land_files: LandFiles) -> None:
    land_files(FILES)
    assert fresh_runs(land_files.lake, land_files.zone, [RUN, "nobody"]) == {RUN}
    with pytest.raises(EvidenceRejected, match=r"nobody .*complete runs here: run-1"):
        materialise(land_files.lake, land_files.zone, "nobody", Limits())
    assert land_files.lake.snapshot(runs.TABLE).run_ids == [RUN]


# -- names and order do not matter ------------------------------------------------------------------------------


@pytest.mark.parametrize("contents", [(ZERO, ONE), (NAMELESS, ANOTHER)], ids=["with ranks", "without ranks"])
def test_the_same_files_under_other_names_are_the_same_events(
    land_files: LandFiles, contents: tuple[bytes, bytes]
) -> None:
    namings = [("a.json", "b.json"), ("b.json", "a.json"), ("x.trace", "y.pt.trace.json")]
    for place, names in enumerate(namings):
        land_files(dict(zip(names, contents, strict=True)), f"run-{place}")
    found = [land_files.lake.snapshot(trace_events.TABLE).content_sha256(f"run-{place}") for place in range(3)]
    assert len(set(found)) == 1
    assert set(land_files.read("run-0").events["rank"]) == {0, 1}


def test_a_rank_in_the_content_outweighs_a_rank_in_the_name(land_files: LandFiles) -> None:
    landed = land_files({"rank1.json": ZERO, "rank0.json": ONE, "rank7.json": NAMELESS})
    ranks = {row["file_name"]: (row["rank"], row["rank_source"]) for row in landed.files.to_dicts()}
    assert ranks == {"rank1.json": (0, "trace"), "rank0.json": (1, "trace"), "rank7.json": (7, "file_name")}


def test_content_that_lies_there_twice_is_merged_and_not_doubled(land_files: LandFiles) -> None:
    once = land_files(FILES, "once")
    twice = land_files({**FILES, "c.json": ONE, "0.json": ONE}, "twice")
    assert twice.events.drop("run_id").equals(once.events.drop("run_id"))
    outcomes = {
        row["file_name"]: (row["outcome"], row["reason"], row["events_count"]) for row in twice.files.to_dicts()
    }
    assert outcomes == {
        "0.json": ("kept", None, 30),
        "a.json": ("kept", None, 20),
        "b.json": ("merged", "same content as 0.json", 0),
        "c.json": ("merged", "same content as 0.json", 0),
    }
    (run,) = twice.runs.to_dicts()
    counts = [run[f"{outcome}_files_count"] for outcome in ("kept", "merged", "rejected")]
    assert (counts, run["files_count"], run["events_count"]) == ([2, 2, 0], 4, 50)


def test_content_that_lies_there_twice_is_read_once(land_files: LandFiles) -> None:
    land_files.write({"a.json": ONE, "b.json": ONE, "c.json": ONE})
    read: set[str] = set()
    materialise(land_files.lake, land_files.zone, RUN, Limits(), lambda name, *_: read.add(name))
    assert len(read) == 1
