"""Every snapshot belongs to a test: what no test compares with any more fails, as a module's or as a parameter's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pipelines.review.snapshots import find_orphans

ROOT = Path(__file__).parent.parent.parent
MODULE = """
def test_it(snapshot):
    assert snapshot == 1
"""
KEPT = "# serializer version: 1\n# name: test_it\n  1\n# ---\n"
UNUSED = "# name: test_it_no_more\n  2\n# ---\n"


def test_no_snapshot_of_ours_has_lost_its_test() -> None:
    kept = [
        path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("__snapshots__/**/*") if path.is_file()
    ]
    assert kept
    assert find_orphans(ROOT, kept) == []
    assert find_orphans(ROOT, ["tests/gold/__snapshots__/test_gone/test_it.txt"]) != []


def suite(folder: Path, snapshots: str) -> tuple[int, str]:
    """The exit status and the output of a small suite under our own settings."""
    (folder / "__snapshots__").mkdir()
    (folder / "test_small.py").write_text(MODULE, "utf-8")
    (folder / "__snapshots__" / "test_small.ambr").write_text(snapshots, "utf-8")
    words = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        # A suite of its own, also where this one runs in several processes.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    )
    return done.returncode, done.stdout


def test_a_snapshot_that_no_test_uses_fails_the_suite_under_our_settings(tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "unused").mkdir()
    assert suite(tmp_path / "used", KEPT)[0] == 0
    status, answer = suite(tmp_path / "unused", KEPT + UNUSED)
    assert status == 1
    assert "1 snapshot unused" in answer
