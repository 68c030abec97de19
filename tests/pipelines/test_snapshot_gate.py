"""`python -m pipelines.review` on a real repository: what is told of a change, and when the gate stays shut."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.snapshot_repository import (
    FOLDER,
    MODULE,
    OVERHEAD,
    OVERHEAD_TEXT,
    REASON,
    STEPS,
    SnapshotRepository,
    gate,
    run_review,
)

if TYPE_CHECKING:
    from pathlib import Path

SLOWER = ('142000000,1.420000,slower,"1.42x', '151000000,1.510000,slower,"1.51x')


# -- the gate ---------------------------------------------------------------------------------------------------------


def test_a_change_that_touches_no_snapshot_shows_no_diff_at_all(repository: SnapshotRepository) -> None:
    repository.write("gold/step_overhead.py", "WARMUP = 0  # renamed\n")
    repository.commit("A refactoring")
    status, page = gate()
    assert status == 0
    assert "no snapshot changed" in page
    assert "|" not in page


def test_a_changed_snapshot_without_a_reason_is_refused_with_the_review(repository: SnapshotRepository) -> None:
    repository.replace(OVERHEAD, SLOWER)
    repository.commit("Warm-up steps are left out")
    status, page = gate()
    assert status == 1
    assert "no commit gives a reason: `gold.step_overhead`" in page
    assert "1.42× → 1.51×" in page  # noqa: RUF001
    assert "teetotal: gold.step_overhead: no commit gives a reason" in page


def test_with_a_reason_it_passes_and_the_review_is_the_comment(repository: SnapshotRepository) -> None:
    repository.replace(OVERHEAD, SLOWER)
    repository.write("gold/step_overhead.py", "WARMUP = 1\n")
    repository.commit(f"Warm-up steps are left out\n\nBecause.\n\n{REASON}\nCo-authored-by: B <b@example.org>")
    status, page = gate()
    assert status == 0
    assert page.startswith("<!-- teetotal snapshot review -->\n")
    assert "reason: warm-up steps are left out, as the paper does" in page
    assert "changed in the same commits: `gold/step_overhead.py`" in page
    assert "1.42× → 1.51× (+6.34 %), measured, verdict unchanged (slower)" in page  # noqa: RUF001


def test_a_reason_without_a_name_speaks_for_what_its_commit_touches_and_no_more(repository: SnapshotRepository) -> None:
    repository.replace(OVERHEAD, SLOWER)
    repository.commit("One\n\nSnapshot-Reason: warm-up steps are left out now")
    assert gate()[0] == 0
    repository.replace(STEPS, (",200,", ",250,"))
    repository.commit("Two")
    status, page = gate()
    assert status == 1
    assert "no commit gives a reason: `silver.steps`" in page


def test_a_later_commit_may_explain_by_name_what_an_earlier_one_changed(repository: SnapshotRepository) -> None:
    repository.replace(OVERHEAD, SLOWER)
    repository.replace(STEPS, (",200,", ",250,"))
    repository.commit("One")
    repository.commit(
        "Two\n\nSnapshot-Reason: silver.steps, gold.*: the profiler's own step\n  is taken where there is one"
    )
    status, page = gate()
    assert status == 0
    assert page.count("reason: the profiler's own step is taken where there is one") == 2


@pytest.mark.parametrize(
    "hollow", ["Refreshed snapshots", "gold.step_overhead: updated the snapshots", "new tests", ""]
)
def test_that_something_was_refreshed_is_no_reason(repository: SnapshotRepository, hollow: str) -> None:
    repository.replace(OVERHEAD, SLOWER)
    repository.commit(f"One\n\nSnapshot-Reason: {hollow}")
    assert gate()[0] == 1


def test_a_sentence_with_a_colon_is_not_taken_for_a_name(repository: SnapshotRepository) -> None:
    repository.replace(OVERHEAD, SLOWER)
    repository.commit("One\n\nSnapshot-Reason: priority: sealing now comes before sending")
    assert gate()[0] == 0


def test_a_reason_for_what_did_not_change_is_noted_and_explains_nothing(repository: SnapshotRepository) -> None:
    repository.replace(OVERHEAD, SLOWER)
    repository.commit("One\n\nSnapshot-Reason: gold.launches: only kernels count as launches")
    status, page = gate()
    assert status == 1
    assert "gives a reason for gold.launches, where nothing changed" in page


# -- what came and went -----------------------------------------------------------------------------------------------


def test_a_row_that_vanishes_needs_a_reason_by_name(repository: SnapshotRepository) -> None:
    lines = OVERHEAD_TEXT.splitlines(keepends=True)
    repository.write(OVERHEAD, "".join(lines[:3]))
    repository.commit("One\n\nSnapshot-Reason: four ranks are no longer recorded")
    status, page = gate()
    assert status == 1
    assert "something vanished, which needs a reason of its own, by name: `gold.step_overhead`" in page
    assert "**1 row gone**" in page
    assert "- resnet50-sealed-w4\n" in page
    assert "**gone**: `resnet50-sealed-w4` has no verdict any more (was slower)" in page
    repository.commit("Two\n\nSnapshot-Reason: gold.step_overhead: four ranks are no longer recorded")
    assert gate()[0] == 0


def test_a_column_that_vanishes_needs_a_reason_by_name(repository: SnapshotRepository) -> None:
    repository.write(
        STEPS,
        "run_id,rank,step_number,ts_ns,evidence\ntext,int32,int64,int64,text\n"
        "a,0,0,1794700785231348447,measured\na,0,1,1794700785560746495,measured\na,1,0,1794700785231348447,measured\n",
    )
    repository.commit("One\n\nSnapshot-Reason: the duration follows from the next step")
    status, page = gate()
    assert status == 1
    assert "**1 column gone**" in page
    assert "Columns gone: `duration_ns`" in page


def test_a_deleted_snapshot_needs_a_reason_by_name(repository: SnapshotRepository) -> None:
    repository.git("rm", "--quiet", STEPS)
    repository.commit("One\n\nSnapshot-Reason: steps are told by their breakdown")
    status, page = gate()
    assert status == 1
    assert "**deleted** (3 rows, 6 columns)" in page
    repository.commit("Two\n\nSnapshot-Reason: silver.steps: steps are told by their breakdown")
    assert gate()[0] == 0


def test_a_new_snapshot_needs_a_reason_as_well(repository: SnapshotRepository) -> None:
    repository.write(f"{FOLDER}/test_the_answers[gold.pairs].csv", "run_id\ntext\na\n")
    repository.commit("One")
    status, page = gate()
    assert status == 1
    assert "| `gold.pairs` | new (1 row, 1 column) |" in page
    repository.commit("Two\n\nSnapshot-Reason: gold.pairs: which run is whose baseline is an answer too")
    assert gate()[0] == 0


def test_a_renamed_snapshot_is_told_as_renamed_and_compared_with_what_it_was(repository: SnapshotRepository) -> None:
    new = f"{FOLDER}/test_the_verdicts[gold.step_overhead].csv"
    repository.git("mv", OVERHEAD, new)
    repository.replace(MODULE, ("def test_the_answers", "def test_the_verdicts(): ...\ndef test_the_answers"))
    repository.replace(new, SLOWER)
    repository.commit("One")
    status, page = gate()
    assert status == 1
    assert f"renamed from `{OVERHEAD}`; 1 of 2 rows moved, in 3 columns" in page
    repository.commit(f"Two\n\n{REASON}")
    assert gate()[0] == 0


def test_a_snapshot_whose_module_is_gone_is_refused_whatever_the_reason(repository: SnapshotRepository) -> None:
    repository.git("rm", "--quiet", MODULE)
    repository.commit(f"One\n\n{REASON}")
    status, page = gate()
    assert status == 1
    assert f"its test is gone: there is no {MODULE}; delete it".replace("_", r"\_") in page
    assert f"teetotal: {STEPS}: its test is gone" in page


def test_a_snapshot_whose_test_is_gone_is_refused(repository: SnapshotRepository) -> None:
    repository.write(MODULE, "class TestOther:\n    def test_other(self): ...\n")
    repository.write(f"{FOLDER}/TestOther.test_other.1.txt", "kept\n")
    repository.write("tests/gold/__snapshots__/test_snapshots.ambr", "kept\n")
    repository.commit("One\n\nSnapshot-Reason: *: the texts of another test are kept")
    status, page = gate()
    assert status == 1
    assert page.count("teetotal: ") == 2
    assert f"teetotal: {OVERHEAD}: its test is gone: {MODULE} has no test_the_answers; delete it" in page


def test_a_change_of_white_space_moves_no_value_and_still_needs_a_reason(repository: SnapshotRepository) -> None:
    repository.write(OVERHEAD, OVERHEAD_TEXT.replace("\n", "\n\n"))
    repository.commit("One")
    status, page = gate()
    assert status == 1
    assert "only white space; no value moved" in page
    assert "<details>" not in page
    repository.commit("Two\n\nSnapshot-Reason: gold.step_overhead: rows stand apart for readability")
    assert gate()[0] == 0


def test_the_same_numbers_in_other_digits_have_not_moved(repository: SnapshotRepository) -> None:
    repository.replace(OVERHEAD, ("1.420000", "1.42"), ("0.575000", "0.5750"))
    repository.commit(f"One\n\n{REASON}")
    assert "written otherwise; no value moved" in gate()[1]


# -- where the change starts ------------------------------------------------------------------------------------------


def test_what_is_not_committed_is_reviewed_and_cannot_be_explained(repository: SnapshotRepository) -> None:
    repository.replace(OVERHEAD, SLOWER)
    repository.commit(f"One\n\n{REASON}")
    repository.replace(OVERHEAD, ("1.510000", "1.610000"))
    repository.write(f"{FOLDER}/test_the_answers[gold.pairs].csv", "run_id\ntext\na\n")
    status, page = gate()
    assert status == 1
    assert "it is not committed, so no commit can explain it: `gold.pairs`, `gold.step_overhead`" in page
    assert "1.42× → 1.61×" in page  # noqa: RUF001
    assert "the work tree (2 not committed)" in page
    assert run_review()[0] == 0


def test_what_main_brings_in_is_not_the_change(repository: SnapshotRepository) -> None:
    repository.git("checkout", "--quiet", "main")
    repository.replace(STEPS, (",200,", ",250,"))
    repository.commit("On main")
    repository.git("checkout", "--quiet", "change")
    repository.replace(OVERHEAD, SLOWER)
    repository.commit(f"One\n\n{REASON}")
    repository.git("merge", "--quiet", "--no-edit", "main")
    status, page = gate()
    assert status == 0
    assert "1 snapshot changed" in page
    assert "silver.steps" not in page.partition("### `")[0]


def test_what_a_merge_itself_changes_is_seen_and_its_reason_heard(repository: SnapshotRepository) -> None:
    repository.git("checkout", "--quiet", "main")
    repository.write("gold/launches.py", "")
    repository.commit("On main")
    repository.git("checkout", "--quiet", "change")
    repository.write("gold/pairs.py", "")
    repository.commit("One")
    repository.git("merge", "--quiet", "--no-commit", "main")
    repository.replace(OVERHEAD, SLOWER)
    repository.commit("Merge main")
    assert gate()[0] == 1
    repository.git("commit", "--quiet", "--amend", "--message", "Merge main\n\nSnapshot-Reason: both warm-ups left out")
    assert gate()[0] == 0


def test_on_main_itself_the_last_commit_is_reviewed(repository: SnapshotRepository) -> None:
    repository.git("checkout", "--quiet", "main")
    repository.replace(OVERHEAD, SLOWER)
    repository.commit("One")
    status, page = gate()
    assert status == 1
    assert r"(HEAD\~1)" in page


def test_the_first_commit_of_all_is_compared_with_nothing(repository: SnapshotRepository) -> None:
    repository.git("checkout", "--quiet", "main")
    status, page = gate()
    assert status == 1
    assert "2 snapshots changed" in page


def test_a_subfolder_sees_the_whole_repository(repository: SnapshotRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.replace(OVERHEAD, SLOWER)
    repository.commit("One")
    here = gate()
    monkeypatch.chdir(repository.root / "gold")
    assert gate() == here


def test_a_base_can_be_named(repository: SnapshotRepository) -> None:
    repository.replace(OVERHEAD, SLOWER)
    first = repository.commit("One")
    repository.replace(STEPS, (",200,", ",250,"))
    repository.commit("Two\n\nSnapshot-Reason: steps end where the next one starts")
    assert gate()[0] == 1
    assert gate("--base", first)[0] == 0
    assert gate("--base", "HEAD~1")[0] == 0


@pytest.mark.parametrize("name", ["--output=x", "-x", "^main", "a b", "main\n", ""])
def test_a_name_that_cannot_be_a_revision_is_never_handed_to_git(repository: SnapshotRepository, name: str) -> None:
    status, page = gate(f"--base={name}")
    assert status == 2
    assert f"{name!r} is no revision" in page
    assert repository.git("status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["no-such-branch", "HEAD:gold", "main..change"])
def test_a_revision_that_is_not_here_is_told(repository: SnapshotRepository, name: str) -> None:
    status, page = gate("--base", name)
    assert status == 2
    assert f"there is no revision {name!r} here" in page


def test_a_shallow_clone_is_told_how_to_get_its_history(
    repository: SnapshotRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit("One")
    shallow = tmp_path / "shallow"
    source = f"file://{repository.root}"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", source, str(shallow)], check=True)  # noqa: S607
    monkeypatch.chdir(shallow)
    status, page = gate()
    assert status == 2
    assert "this clone is shallow" in page
    assert "git fetch --unshallow" in page


def test_without_git_the_answer_is_to_install_it(
    repository: SnapshotRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status, page = gate()
    assert (status, page) == (
        1,
        "teetotal: git is not installed (snapshots are compared with what git holds: install git)\n",
    )


def test_outside_a_repository_the_answer_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    status, page = gate()
    assert status == 1
    assert "not a git repository" in page


def test_help_imports_nothing_that_a_review_needs() -> None:
    asked = "import sys, pipelines.cli.main; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=True, text=True)
    assert not {"report", "assets", "gold", "polars", "pyarrow"} & set(done.stdout.split())
