"""One lake of all bundled recordings, built once for a state of the sources and shared by all test processes."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from pathlib import Path

from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from pipelines.cli.demo import land_samples
from tests.support.build_runs import build_runs

ROOT = Path(__file__).parent.parent.parent
_CACHE = ROOT / ".cache" / "recorded-lake"
# All that decides what is in the lake.
_SOURCES = ("lake", "bronze", "silver", "gold", "assets", "pipelines/cli/demo.py", "samples", "requirements/base.lock")


def open_recorded_lake() -> Lake:
    """The lake, which is built first where no test process has done so since the sources changed."""
    home = _CACHE / _digest_sources()
    lake = Lake(Location.of(home / "lake"), KeyringFile(home / "keyring.json", is_made_on_first_use=True))
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            for older in _CACHE.glob("*/"):
                shutil.rmtree(older)
            zone = LandingZone(Location.of(home / "landing"))
            build_runs(lake, zone, land_samples(zone))
            (home / "complete").write_text(_list_files(lake), "utf-8")
    return lake


def has_changed(lake: Lake) -> bool:
    """Whether somebody wrote to the lake that all tests share."""
    return (lake.place.directory.parent / "complete").read_text("utf-8") != _list_files(lake)


def _list_files(lake: Lake) -> str:
    """Every file of the lake with its size and the time of its last change."""
    root = lake.place.directory
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return "".join(f"{path.relative_to(root)} {path.stat().st_size} {path.stat().st_mtime_ns}\n" for path in files)


def _digest_sources() -> str:
    found = hashlib.sha256()
    for name in _SOURCES:
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
                found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:32]
