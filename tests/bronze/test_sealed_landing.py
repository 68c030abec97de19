"""What landed sealed gives the rows of the plain files; what does not open is rejected alone, with its reason."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from assets.build.bronze import materialise
from assets.build.freshness import mark_landing
from bronze.limits import Limits
from bronze.untrusted_sqlite import MAGIC
from lake.identity import MANIFEST
from lake.keyring import Key, Keyring
from lake.landing_zone import LandingZone
from lake.sealed_files import LandingSeals, find_recipient, seal_blocks
from tests.conftest import LandFiles
from tests.support.traces import GOOD

if TYPE_CHECKING:
    from pathlib import Path

    from lake.store import Lake
    from tests.conftest import LandedRun

MINE, STRANGE = (
    Keyring("a keyring", key.key_id, (key,))
    for key in (Key(f"k000000{number}", "2026-01-01T00:00:00Z", bytes([number]) * 64) for number in (1, 2))
)
RUN = "run-1"
MANIFEST_TEXT = 'regime = "cc_off"\n'


def seal(data: bytes, name: str, ring: Keyring = MINE, run_id: str = RUN) -> bytes:
    return b"".join(seal_blocks([data], find_recipient(ring), run_id, name))


@pytest.fixture
def land_sealed(lake: Lake, zone: LandingZone) -> LandFiles:
    """Lands files as bytes in a lake that can open what is sealed for it."""
    return LandFiles(lake, LandingZone(zone.place, LandingSeals(lambda: MINE)))


@pytest.fixture
def database(tmp_path: Path) -> bytes:
    """A small export of Nsight Systems."""
    path = tmp_path / "written.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "PRAGMA journal_mode = WAL;"
            "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
            "INSERT INTO StringIds VALUES (1, 'saxpy');"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER);"
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 1);"
        )
    return path.read_bytes()


def test_sealed_files_give_the_rows_of_the_plain_ones(land_sealed: LandFiles, database: bytes) -> None:
    files = {"a.json": GOOD, "b.json.gz": gzip.compress(GOOD.replace(b'"a"', b'"c"')), "c.sqlite": database}
    plain = land_sealed(files, "plain")
    sealed = land_sealed({name: seal(data, name) for name, data in files.items()})
    for name in files:
        before, after = plain.file(name), sealed.file(name)
        assert after["reason"] is None
        assert (after["format"], after["outcome"], after["inflated_bytes"]) == (
            before["format"],
            "kept",
            before["inflated_bytes"],
        )
        assert after["source_sha256"] != before["source_sha256"], "the digest is of the bytes as they landed"
    unlike = ("run_id", "source_sha256", "rank")
    assert sealed.events.drop(unlike).sort("name").equals(plain.events.drop(unlike).sort("name"))
    assert sealed.nsys.drop("run_id", "source_sha256").equals(plain.nsys.drop("run_id", "source_sha256"))


def test_what_does_not_open_is_rejected_alone_with_its_reason(land_sealed: LandFiles) -> None:
    whole = seal(GOOD * 2000, "cut.json")
    landed = land_sealed(
        {
            "good.json": seal(GOOD, "good.json"),
            "copy.json": seal(GOOD, "good.json"),
            "cut.json": whole[: -(len(whole) % 70_000)],
            "moved.json": seal(GOOD, "moved.json", run_id="run-9"),
            "strange.json": seal(GOOD, "strange.json", STRANGE),
            "changed.json": seal(GOOD, "changed.json")[:-1] + b"\x00",
            "plain.json": GOOD.replace(b'"a"', b'"plain"'),
        }
    )
    assert landed.events["name"].sort().to_list() == ["a", "b", "b", "plain"]
    reasons = {row["file_name"]: row["reason"] for row in landed.files.to_dicts() if row["outcome"] == "rejected"}
    strange = find_recipient(STRANGE).recipient_id
    said = {
        "copy.json": "it was sealed as good.json of run run-1, and lies as copy.json of run run-1",
        "cut.json": "does not open: the file was cut, changed or reordered",
        "moved.json": "it was sealed as moved.json of run run-9, and lies as moved.json of run run-1",
        "strange.json": f"it is sealed for {strange}, a key that this lake's keyring does not hold",
        "changed.json": "chunk 0 does not open: the file was cut, changed or reordered",
    }
    assert reasons.keys() == said.keys()
    for name, reason in said.items():
        assert reason in reasons[name]
        assert landed.file(name)["source_sha256"] is not None


def test_one_content_sealed_twice_is_one_source(land_sealed: LandFiles) -> None:
    landed = land_sealed({name: seal(GOOD, name) for name in ("one.json", "two.json")} | {"three.json": GOOD})
    assert landed.files.select("file_name", "outcome", "reason").rows() == [
        ("one.json", "kept", None),
        ("three.json", "merged", "same content as one.json"),
        ("two.json", "merged", "same content as one.json"),
    ]
    assert len(landed.events) == 2
    assert landed.events["source_sha256"].unique().to_list() == [landed.file("one.json")["source_sha256"]]


def test_a_lake_that_accepts_sealed_files_alone_takes_nothing_else(land_sealed: LandFiles) -> None:
    strict = LandingZone(land_sealed.zone.place, LandingSeals(lambda: MINE, must_be_sealed=True))
    directory = land_sealed.write({"sealed.json": seal(GOOD, "sealed.json"), "plain.json": GOOD})
    (directory / MANIFEST).write_bytes(seal(MANIFEST_TEXT.encode(), MANIFEST))
    lax = mark_landing(land_sealed.zone, RUN)
    assert mark_landing(strict, RUN) != lax, "a run that landed before must be looked at again"
    materialise(land_sealed.lake, strict, RUN, Limits())
    rejected = land_sealed.read().file("plain.json")
    assert rejected["outcome"] == "rejected"
    assert str(rejected["reason"]).startswith("it is not sealed, and this lake accepts nothing else")
    assert land_sealed.read().file("sealed.json")["outcome"] == "kept"


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_sealed_database_is_never_a_file_on_a_disk(
    land_sealed: LandFiles, database: bytes, *, is_sealed: bool
) -> None:
    found: list[Path] = []

    def look(*_: object) -> None:
        files = (path for path in land_sealed.lake.place.directory.rglob("*") if path.is_file())
        found.extend(path for path in files if path.read_bytes().startswith(MAGIC))

    land_sealed.write({"c.sqlite": seal(database, "c.sqlite") if is_sealed else database})
    materialise(land_sealed.lake, land_sealed.zone, RUN, Limits(), look)
    assert bool(found) is not is_sealed, "a plain one is copied aside, where this test must see it"


def test_a_sealed_database_beyond_the_limit_is_refused_with_the_setting(
    land_sealed: LandFiles, database: bytes
) -> None:
    landed: LandedRun = land_sealed(
        {"c.sqlite": seal(database, "c.sqlite"), "good.json": GOOD}, limits=Limits(max_sealed_database_bytes=4096)
    )
    assert landed.file("c.sqlite")["outcome"] == "rejected"
    assert "raise TEETOTAL_MAX_SEALED_DATABASE_BYTES" in str(landed.file("c.sqlite")["reason"])
    assert landed.file("good.json")["outcome"] == "kept"


def test_a_sealed_report_is_never_handed_to_nsys_in_the_clear(land_sealed: LandFiles) -> None:
    landed = land_sealed({"r.nsys-rep": seal(b"report", "r.nsys-rep"), "good.json": GOOD})
    assert "`nsys export` would need it in the clear on a disk" in str(landed.file("r.nsys-rep")["reason"])
