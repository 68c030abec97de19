"""A run that changes while it is read, that is stopped between two tables, or that is landed twice at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assets.build.bronze import materialise
from assets.build.catalogue import TABLES
from bronze import source_files
from bronze.limits import Limits
from lake.errors import LakeError, SourceUnavailable
from lake.store import Lake
from tests.support.sample_tables import digests, trace
from tests.support.up_to_date import find_landed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lake.locations import Location
    from lake.snapshot import Written
    from lake.tables import Table
    from tests.conftest import LandFiles

RUN = "run-1"
OTHER = trace(1, 40, seed=1)
FILES = {"a.json": trace(0, 20), "b.json": trace(1, 30)}
BRONZE = [table for table in TABLES.values() if table.tier == "bronze"]


def fresh(land_files: LandFiles) -> bool:
    return RUN in find_landed(land_files.lake, land_files.zone, [RUN])


def versions(lake: Lake) -> list[int | None]:
    return [lake.snapshot(table).version for table in BRONZE]


TROUBLES: dict[str, Callable[[Path, str], object]] = {
    "another file changed": lambda run, read: (run / other(read)).write_bytes(OTHER),
    "a file changed": lambda run, read: (run / read).write_bytes(OTHER),
    "a file was added": lambda run, _: (run / "c.json").write_bytes(OTHER),
    "another file was removed": lambda run, read: (run / other(read)).unlink(missing_ok=True),
    "the manifest changed": lambda run, _: (run / "run.toml").write_text('model = "m"\n'),
}


def other(name: str) -> str:
    return next(each for each in FILES if each != name)


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES.keys())
def test_a_run_that_changes_while_it_is_read_is_a_transient_error_and_nothing_is_written(
    land_files: LandFiles, trouble: Callable[[Path, str], object]
) -> None:
    run = land_files.write(FILES)

    def meddle(name: str, inflated_bytes: int, rows: int) -> None:
        trouble(run, name)

    with pytest.raises(SourceUnavailable) as caught:
        materialise(land_files.lake, land_files.zone, RUN, Limits(workers=1), meddle)
    assert caught.value.is_transient
    assert caught.value.hint
    assert versions(land_files.lake) == [None] * len(BRONZE)
    land_files.write(FILES)
    land_files.materialise()
    assert fresh(land_files)


def test_a_run_that_vanishes_while_it_is_read_is_an_error_that_says_so(land_files: LandFiles) -> None:
    run = land_files.write(FILES)
    with pytest.raises(LakeError, match=RUN):
        materialise(
            land_files.lake, land_files.zone, RUN, Limits(), lambda *_: (run / "run.toml").unlink(missing_ok=True)
        )
    assert versions(land_files.lake) == [None] * len(BRONZE)


class Stopped(Exception):
    """What stops a landing in the tests below."""


@pytest.mark.parametrize("tables", range(4))
def test_stopped_between_any_two_tables_a_run_is_not_fresh_and_the_next_landing_mends_it(
    land_files: LandFiles, monkeypatch: pytest.MonkeyPatch, tables: int
) -> None:
    land_files(FILES, "whole")
    land_files({"a.json": OTHER}, RUN)
    land_files.write(FILES, RUN)
    commit, left = Lake.commit, tables

    def commit_or_stop(*arguments: Any, **named: Any) -> Written:
        nonlocal left
        if not left:
            raise Stopped
        left -= 1
        return commit(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "commit", commit_or_stop)
        with pytest.raises(Stopped):
            land_files.materialise(RUN)
    assert left == 0
    assert not fresh(land_files)
    # The old content lies there again: what the stopped landing wrote must not pass for it.
    (land_files.zone.place.directory / RUN / "b.json").unlink()
    land_files.write({"a.json": OTHER}, RUN)
    assert not fresh(land_files)
    (land_files.zone.place.directory / RUN / "a.json").unlink()
    land_files.write(FILES, RUN)
    land_files.materialise(RUN)
    assert fresh(land_files)
    for name, digest in digests(land_files.lake, RUN, BRONZE).items():
        if name != source_files.TABLE.full_name:
            assert digest == digests(land_files.lake, "whole", BRONZE)[name]


class Late(Lake):
    """A lake to which small tables are written only when told to."""

    def __init__(self, place: Location) -> None:
        super().__init__(place)
        self.waiting: list[Callable[[], Written]] = []

    def replace(self, *arguments: Any, **named: Any) -> Any:
        self.waiting.append(lambda: super(Late, self).replace(*arguments, **named))


class Interleaved(Lake):
    """A lake in which another writer's tables arrive right after the source files."""

    meanwhile: list[Callable[[], Written]]

    def replace(self, table: Table, *arguments: Any, **named: Any) -> Written:
        written = super().replace(table, *arguments, **named)
        if table is source_files.TABLE:
            for write in self.meanwhile:
                write()
        return written


def test_two_landings_that_interleave_are_never_taken_for_a_fresh_run(land_files: LandFiles) -> None:
    late, lake = Late(land_files.lake.place), Interleaved(land_files.lake.place)
    run = land_files.write(FILES)
    materialise(late, land_files.zone, RUN, Limits())
    (run / "b.json").unlink()
    lake.meanwhile = late.waiting
    materialise(lake, land_files.zone, RUN, Limits())
    # Events and run are of the later landing, source files of the earlier one.
    assert sorted(land_files.read().files["file_name"]) == ["a.json", "b.json"]
    assert set(land_files.read().events["rank"]) == {0}
    assert not fresh(land_files)
    land_files.materialise()
    assert fresh(land_files)
    assert land_files.read().files["file_name"].to_list() == ["a.json"]
