"""Sealed files and a sealed bronze: from the landing zone to gold a planted name is nowhere on disk in the clear."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner

from assets.build import bronze, chunking, silver
from assets.build.catalogue import TABLES
from assets.build.freshness import Look, find_stale
from lake.engines import engine
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.sealed_files import LandingSeals
from lake.spill import SpilledRows
from lake.store import Lake
from pipelines.cli.main import main
from tests.pipelines.test_no_plaintext import CONTENT, FILE, SECRETS, TRACE_FILE, plant
from tests.support import good_tokens
from tests.support.nsys_exports import Export
from tests.support.planted_texts import finds, list_paths
from tests.support.tokens import Signer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

RUN = "job-1"
# The names of files and runs stand in paths: docs/security-model.md says so. `test_no_plaintext.py` shows that the same
# search finds each of the others in a bronze that is not sealed.
PLANTED = (*(secret for secret in SECRETS if secret not in {FILE, TRACE_FILE}), CONTENT)
# What other sources hold: a log of NCCL, an export of Nsight Systems, tokens of an attestation (not their ids).
NCCL_HOST, NSYS_HOST, RANGE = "planted-nccl-host", "planted-nsys-host", "planted-nvtx-range"
DEVICE, CLAIM = "planted-device-0815", "planted-claim-erika"
OTHERS = (NCCL_HOST, NSYS_HOST, RANGE, DEVICE, CLAIM)
SEALED = {"TEETOTAL_SEAL_BRONZE": "1", "TEETOTAL_ACCEPT_ONLY_SEALED": "1"}
SEALS = LandingSeals(must_be_sealed=True, seals_bronze=True)
EVENTS, MADE = TABLES["bronze.trace_events"], (*bronze.TABLES, *silver.TABLES)


def plant_others(directory: Path) -> str:
    """A file of each other source with a name in it; gives the token as it is written."""
    call = (
        "AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 8 datatype 7 op 0 root 0 comm 0x5 [nranks=1] stream 0x9"
    )
    (directory / "nccl.log").write_text(f"{NCCL_HOST}:41:43 [0] NCCL INFO {call}\n", "utf-8")
    export = Export(host=NSYS_HOST)
    export.mark(0, RANGE, 1_000, 2_000)
    (directory / "export.sqlite").write_bytes(export.to_bytes(directory / "export.sqlite"))
    claims = {**good_tokens.OVERALL, "x-cluster": CLAIM}
    bundle = good_tokens.bundle(Signer(), claims, {**good_tokens.DEVICE, "ueid": DEVICE})
    (directory / "attestation.json").write_bytes(bundle)
    token: str = json.loads(bundle)[0][1]
    return token


def teetotal(home: Path, *words: str) -> Result:
    places = ["--lake", str(home / "data/lake"), "--landing", str(home / "data/landing")]
    return CliRunner().invoke(main, [*places, *words], catch_exceptions=False)


@dataclass
class Watched:
    """A home in which a run went from landing to gold, and what lay around in it whenever something was committed."""

    home: Path
    seen: set[str] = field(default_factory=set)
    token: str = ""
    looks: int = 0
    spills: int = 0

    def look(self) -> None:
        """Search the places where things are on their way; other threads write there meanwhile."""
        self.looks += 1
        staging = self.home / "data/lake/_staging"
        for folder in (staging, self.home / "tmp"):
            self.seen |= set(finds(folder, *PLANTED, *OTHERS, self.token, is_written_to=True))
        for spilled in (path for path in list_paths(staging) if path.suffix == ".arrow"):
            self.spills += 1
            with suppress(FileNotFoundError):  # read and removed meanwhile
                self.seen |= {str(spilled)} if spilled.read_bytes().startswith(b"ARROW1") else set()

    @property
    def lake(self) -> Lake:
        """The lake, to be read."""
        return Lake(Location.of(self.home / "data/lake"), KeyringFile(self.home / "data/keyring.json"))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A run full of secrets, landed and measured; all that is logged and printed goes to files of the home too."""
    home, source = tmp_path_factory.mktemp("nowhere"), tmp_path_factory.mktemp("source")
    (home / "tmp").mkdir()
    found, commit, read = Watched(home), Lake.commit, SpilledRows.read

    def look_and_commit(self: Lake, *given: Any, **named: Any) -> Any:
        found.look()
        return commit(self, *given, **named)

    def look_and_read(self: SpilledRows, place: int) -> Any:
        found.look()
        return read(self, place)

    plant(source / RUN, 'regime = "cc_off"\n')
    found.token = plant_others(source / RUN)
    log, root, level = logging.FileHandler(home / "debug.log"), logging.getLogger(), logging.getLogger().level
    root.addHandler(log)
    root.setLevel(logging.DEBUG)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TEETOTAL_KEYRING", "TEETOTAL_KEYRING_SECRET", "DAGSTER_HOME"):
            patch.delenv(name, raising=False)
        for name, value in {**SEALED, "TMPDIR": str(home / "tmp")}.items():
            patch.setenv(name, value)
        patch.setattr("tempfile.tempdir", None)
        patch.setattr(chunking, "CHUNK_EVENTS", 3)  # so that a rank is spilled
        patch.setattr(Lake, "commit", look_and_commit)
        patch.setattr(SpilledRows, "read", look_and_read)
        said = [teetotal(home, "land", "--seal", str(source / RUN)), teetotal(home, "run")]
        root.removeHandler(log)
        root.setLevel(level)
        log.close()
        assert [result.output for result in said if result.exit_code] == []
        # What `land` prints are the claims that it read, for whoever typed it.
        (home / "said.txt").write_text(said[-1].output, "utf-8")
        yield found


def test_no_planted_name_is_on_disk_in_the_clear(watched: Watched) -> None:
    assert watched.looks > len(bronze.TABLES) + len(silver.TABLES)
    assert watched.spills > 0
    assert sorted(watched.seen) == []
    places = {path.relative_to(watched.home).parts[0] for path in watched.home.rglob("*") if path.is_file()}
    assert places == {"data", "debug.log", "said.txt"}
    assert (watched.home / "data/.dagster").is_dir(), "Dagster's records are looked at as well"
    assert finds(watched.home, *PLANTED, *OTHERS, watched.token) == []
    read = [watched.lake.scan(table, [RUN]).collect().to_dicts() for table in bronze.TABLES]
    assert [name for name in (*OTHERS, watched.token) if name not in str(read)] == [], "opened, all of them are there"


def test_silver_of_a_sealed_bronze_is_that_of_a_bronze_in_the_clear(watched: Watched, tmp_path: Path) -> None:
    sealed = watched.lake
    plain = Lake(Location.of(tmp_path / "lake"), KeyringFile(watched.home / "data/keyring.json"))
    for table in bronze.TABLES:
        plain.replace(table, RUN, sealed.read_opened(table, [RUN]), "ab" * 32)
    assert sealed.has_sealed_source(EVENTS)
    assert not plain.has_sealed_source(EVENTS)
    built = {one.table: one.content_sha256 for one in silver.materialise(plain, RUN, engine("polars"))}
    assert built == {name: sealed.snapshot(TABLES[name]).content_sha256(RUN) for name in built}


def test_duckdb_reads_from_a_sealed_bronze_what_polars_does(watched: Watched) -> None:
    rows = [one.rows(one.read(watched.lake, EVENTS, [RUN])) for one in map(engine, ("polars", "duckdb"))]
    first, second = (pl.DataFrame(found).sort(EVENTS.key) for found in rows)
    assert first.equals(second)


def test_a_scan_of_a_sealed_bronze_gives_what_was_asked_for(watched: Watched) -> None:
    rows = watched.lake.scan(EVENTS, [RUN])
    whole = rows.collect()
    assert whole.schema == EVENTS.polars_schema
    assert "aten::mm" in whole["name"].to_list()
    some = rows.filter(pl.col("name") == "aten::mm", pl.col("rank") == 0).select("ts_ns", "thread_id").collect()
    assert some.equals(whole.filter(pl.col("name") == "aten::mm").select("ts_ns", "thread_id"))
    assert rows.select("name").head(3).collect().height == 3


def test_rotation_seals_bronze_again_and_nothing_becomes_stale(watched: Watched) -> None:
    before = watched.lake.scan(EVENTS).sort(EVENTS.row_key).collect()
    assert teetotal(watched.home, "keys", "rotate").exit_code == 0
    ring = KeyringFile(watched.home / "data/keyring.json")()
    assert {key for ids in watched.lake.sealed_with(EVENTS).values() for key in ids} == {ring.active_id}
    assert watched.lake.scan(EVENTS).sort(EVENTS.row_key).collect().equals(before)
    assert (
        find_stale(Look(watched.lake, LandingZone(Location.of(watched.home / "data/landing"), SEALS)), MADE, [RUN])
        == {}
    )
    assert finds(watched.home / "data/lake", *PLANTED) == []
