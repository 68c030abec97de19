"""Files that a stranger may put among the snapshots: each is told in its line, and nothing of it is obeyed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.snapshot_repository import (
    FOLDER,
    OVERHEAD,
    OVERHEAD_TEXT,
    REASON,
    STEPS,
    SnapshotRepository,
    gate,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_link_shows_its_own_text_and_not_what_lies_elsewhere(repository: SnapshotRepository, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret\n", "utf-8")
    (repository.root / STEPS).unlink()
    (repository.root / STEPS).symlink_to(tmp_path / "secret")
    repository.commit("One")
    status, page = gate()
    assert status == 1
    assert "the secret" not in page


def test_a_repository_within_the_snapshots_is_told_as_new_and_gone(repository: SnapshotRepository) -> None:
    entry = f"160000,{repository.git('rev-parse', 'HEAD')},{FOLDER}/inner"
    (repository.root / FOLDER / "inner").mkdir()  # as a checkout leaves it
    repository.git("update-index", "--add", "--cacheinfo", entry)
    repository.git("commit", "--quiet", "--message", "One")
    status, page = gate()
    assert status == 1
    assert "| `test_snapshots/inner` | new (0 lines) |" in page
    repository.git("checkout", "--quiet", "-b", "next")
    repository.git("rm", "--quiet", "--cached", f"{FOLDER}/inner")
    repository.git("commit", "--quiet", "--message", "Two")
    assert "| `test_snapshots/inner` | **deleted** (0 lines) |" in gate("--base", "change")[1]


@pytest.mark.parametrize(
    "name",
    ["test_the_answers[--output=x].csv", "test_the_answers[a b|c`d].txt", "test_the_answers[zwölf\n\t].txt", "-x.txt"],
)
def test_any_name_of_a_snapshot_is_told_within_its_line(repository: SnapshotRepository, name: str) -> None:
    repository.write(f"{FOLDER}/{name}", b"\xff\x00not a text")
    repository.commit("One\n\nSnapshot-Reason: *: a name that nobody expects")
    _, page = gate()
    (line,) = [line for line in page.splitlines() if line.startswith("|") and "new (12 bytes)" in line]
    assert line.count("|") == 5


def test_a_text_that_is_no_table_is_shown_line_by_line(repository: SnapshotRepository) -> None:
    graph = f"{FOLDER}/test_the_answers[graph].txt"
    repository.write(graph, "asset a\n  from b\n```\n")
    repository.git("checkout", "--quiet", "main")
    repository.commit("A graph")
    repository.git("checkout", "--quiet", "-B", "change")
    repository.write(graph, "asset a\n  from c\n```\n")
    repository.commit("One\n\nSnapshot-Reason: graph: a is made from c, which b was a copy of")
    status, page = gate()
    assert status == 0
    assert "````diff\n@@ -1,3 +1,3 @@\n asset a\n-  from b\n+  from c\n ```\n````" in page


def test_a_table_that_became_another_text_is_shown_line_by_line(repository: SnapshotRepository) -> None:
    repository.write(OVERHEAD, OVERHEAD_TEXT + "one,cell,too,few\n")
    repository.commit(f"One\n\n{REASON}")
    assert "+one,cell,too,few" in gate()[1]
