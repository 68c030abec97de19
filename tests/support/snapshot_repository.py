"""A small git repository with snapshots in it, for tests of what a review says of a change."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from click.testing import CliRunner

from pipelines.review.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "tests/gold/__snapshots__/test_snapshots"
OVERHEAD, STEPS = (f"{FOLDER}/test_the_answers[{name}].csv" for name in ("gold.step_overhead", "silver.steps"))
MODULE = "tests/gold/test_snapshots.py"
REASON = "Snapshot-Reason: gold.step_overhead: warm-up steps are left out, as the paper does"
OVERHEAD_TEXT = """\
run_id,step_ns,slowdown_ratio,verdict_class,verdict,dominant_part,dominant_fraction,evidence,reason
text,int64 or null,float64 or null,text,text,text or null,float64 or null,text,text or null
resnet50-sealed-w2,587317277,4.546790,slower,"4.55x slower, 95 % 3.90 to 5.44",crypto,0.609738,measured,
resnet50-sealed-w4,142000000,1.420000,slower,"1.42x slower, 95 % 1.40 to 1.44",crypto,0.575000,measured,two steps
"""
STEPS_TEXT = """\
run_id,rank,step_number,ts_ns,duration_ns,evidence
text,int32,int64,int64,int64,text
a,0,0,1794700785231348447,100,measured
a,0,1,1794700785560746495,200,measured
a,1,0,1794700785231348447,300,measured
"""


@dataclass(frozen=True)
class SnapshotRepository:
    """A work tree on a branch that has left `main`."""

    root: Path

    def git(self, *words: str) -> str:
        """Ask git; what it says."""
        done = subprocess.run(["git", "-C", str(self.root), *words], capture_output=True, check=True, text=True)  # noqa: S607
        return done.stdout.strip()

    def write(self, name: str, text: str | bytes) -> None:
        """Put a file into the work tree."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def commit(self, message: str) -> str:
        """Commit everything; the commit's id."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    def replace(self, name: str, *changes: tuple[str, str]) -> None:
        """Change a file's text; what is to be replaced must be there."""
        text = (self.root / name).read_text("utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.write(name, text)


def run_review(*words: str) -> tuple[int, str]:
    """The exit status and all that `python -m pipelines.review` says, in the folder where we are."""
    done = CliRunner().invoke(main, [*words], catch_exceptions=False)
    return done.exit_code, done.output


def gate(*words: str) -> tuple[int, str]:
    """The same of the gate."""
    return run_review("--gate", *words)


def begin_repository(root: Path) -> SnapshotRepository:
    """Two snapshots and their test, committed on main; the branch `change` is checked out."""
    repository = SnapshotRepository(root)
    root.mkdir()
    repository.git("init", "--quiet", "--initial-branch=main")
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    repository.write(MODULE, "def test_the_answers(snapshot):\n    ...\n")
    repository.write("gold/step_overhead.py", "WARMUP = 0\n")
    repository.write(OVERHEAD, OVERHEAD_TEXT)
    repository.write(STEPS, STEPS_TEXT)
    repository.commit("The answers")
    repository.git("checkout", "--quiet", "-b", "change")
    return repository
