"""A recording for a lake's public key: nothing of it lies in the clear on a disk, and that lake reads it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from io import BytesIO
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.build import bronze, silver
from bronze.limits import Limits
from collector import workspace
from collector.errors import RecordingRefused
from collector.landing import Landing
from collector.sealed_files import MAGIC, read_public_key, seal_blocks
from collector.signing import make_key
from lake.engines import engine
from lake.keyring import Key, Keyring
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.sealed_files import CHUNK_BYTES, LandingSeals, find_recipient
from silver import recordings
from tests.support.planted_texts import finds
from tests.support.ranks import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from lake.store import Lake

KEY = Key("k0000001", "2026-01-01T00:00:00Z", bytes(64))
RING = Keyring("a keyring", KEY.key_id, (KEY,))
SEALS = LandingSeals(lambda: RING, must_be_sealed=True)
ANNOTATION, OWNER = "planted-annotation-merger", "planted-owner-erika"
# After the trace is written the loop goes on; its last step looks for what lies around by then.
SCRIPT = """
import pathlib, sys
import torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(8):
    with torch.profiler.record_function("planted-annotation-merger"):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
files = [path for place in sys.argv[1:] for path in pathlib.Path(place).rglob("*") if path.is_file()]
print("in the clear:", [path.name for path in files if b"planted-" in path.read_bytes()])
print("in memory:", [path.name for path in pathlib.Path("/dev/shm").glob("teetotal-recording-*/*.json")])
"""


@pytest.fixture
def public_key(tmp_path: Path) -> Path:
    """The file that `teetotal keys recipient` would write."""
    path = tmp_path / "lake.pem"
    path.write_text(find_recipient(RING).to_pem(), "utf-8")
    return path


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> object:
    path = tmp_path_factory.mktemp("key") / "lake.pem"
    path.write_text(find_recipient(RING).to_pem(), "utf-8")
    return read_public_key(path)


@given(st.lists(st.binary(max_size=CHUNK_BYTES + 1), max_size=4))
@settings(max_examples=20)
def test_what_the_collector_seals_the_lake_opens(key: object, blocks: list[bytes]) -> None:
    sealed = b"".join(seal_blocks(blocks, key, "run-1", "a.json"))  # type: ignore[arg-type]
    assert b"".join(SEALS.open_blocks(BytesIO(sealed), "run-1", "a.json")) == b"".join(blocks)


def test_a_script_is_recorded_with_nothing_in_the_clear_and_read_by_its_lake(tmp_path: Path, public_key: Path) -> None:
    script, zone, aside = tmp_path / "train.py", tmp_path / "zone", tmp_path / "tmp"
    script.write_text(SCRIPT, "utf-8")
    aside.mkdir()
    words = [sys.executable, "-m", "collector", "run", "--landing", str(zone), "--run-id", "run-1"]
    words += ["--seal-for", str(public_key), "--set", f"owner={OWNER}", "--warmup", "1", "--bare", "1", "--steps", "2"]
    done = subprocess.run(
        [*words, str(script), str(zone), str(aside)],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(aside)},
        capture_output=True,
        text=True,
    )
    assert "in the clear: []" in done.stdout
    assert "in memory: ['run-1-r0.json']" in done.stdout, "else the search above looked too early"
    assert finds(zone, ANNOTATION, OWNER) == finds(aside, ANNOTATION, OWNER) == []
    files = {path.name: path for path in (zone / "run-1").iterdir()}
    assert files.keys() == {"run-1-r0.json.gz", "steps-r0.csv", "run.toml"}
    assert all(path.read_bytes().startswith(MAGIC) for path in files.values())
    landed = LandingZone(Location.of(zone), SEALS)
    assert OWNER in landed.manifest("run-1").decode()
    for file in landed.files("run-1"):
        with asyncio.run(file.fetch()) as fetched:
            assert fetched.problem is None


def test_a_recording_that_fails_leaves_nothing_in_memory(tmp_path: Path, public_key: Path) -> None:
    landing = Landing(tmp_path / "zone", "run-1", 0, 1, 5.0, public_key)
    (landing.workspace / "trace.json").write_text(ANNOTATION, "utf-8")
    assert landing.workspace.stat().st_mode & 0o077 == 0
    landing.fail()
    assert not landing.workspace.exists()
    assert list((tmp_path / "zone").iterdir()) == []


def test_what_a_killed_recording_left_in_memory_is_removed_by_the_next(tmp_path: Path, public_key: Path) -> None:
    held = Landing(tmp_path / "zone", "held", 0, 1, 5.0, public_key)
    dies = (
        "import os, signal; from collector.workspace import MemoryFolder; folder = MemoryFolder(); "
        "(folder.path / 'trace.json').write_text('x'); print(folder.path, flush=True); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", dies],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    left = killed.stdout.strip()
    assert (tmp_path / left).is_dir()
    following = Landing(tmp_path / "zone", "following", 0, 1, 5.0, public_key)
    assert not (tmp_path / left).exists()
    assert held.workspace.is_dir(), "one that is still recording keeps its own"
    held.fail()
    following.fail()


def test_without_a_directory_in_memory_nothing_is_recorded(
    tmp_path: Path, public_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "_MEMORY", tmp_path)
    with pytest.raises(RecordingRefused, match=r"--seal-for needs a directory in memory, .* mount one there"):
        Landing(tmp_path / "zone", "run-1", 0, 1, 5.0, public_key)


@pytest.mark.parametrize("text", ["", "ssh-ed25519 AAAA"])
def test_what_is_no_public_key_is_refused_before_anything_runs(tmp_path: Path, text: str) -> None:
    (tmp_path / "lake.pem").write_text(text, "utf-8")
    with pytest.raises(RecordingRefused, match=r"lake\.pem is no public key of a lake"):
        Landing(tmp_path / "zone", "run-1", 0, 1, 5.0, tmp_path / "lake.pem")
    assert not (tmp_path / "zone").exists()


def test_a_sealed_recording_can_be_signed_too(tmp_path: Path, public_key: Path, lake: Lake) -> None:
    landing = Landing(tmp_path / "zone", "run-1", 0, 1, 1.0, public_key)
    (landing.workspace / "steps-r0.csv").write_text("step,duration_s\n0,1\n1,1\n", "utf-8")
    landing.finish('regime = "cc_off"\n', make_key(tmp_path / "key.pem"))
    zone = LandingZone(Location.of(tmp_path / "zone"), SEALS)
    bronze.materialise(lake, zone, "run-1", Limits())
    silver.materialise(lake, "run-1", engine("polars"))
    (row,) = lake.scan(recordings.TABLE).collect().to_dicts()
    assert (row["signature"], row["files_count"], row["signed_files_count"], row["finding"]) == ("signed", 1, 1, None)
