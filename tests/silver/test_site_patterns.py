"""A site's own patterns: what they may say, what they may not, and that a change of them makes a run stale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assets.build import silver
from assets.build.freshness import Look, find_stale
from bronze.span_patterns import parse_patterns
from lake.engines import PolarsEngine
from lake.errors import EvidenceRejected
from silver import rule_counts, spans
from silver.site_patterns import NO_SITE, combine_patterns
from tests.support.nsys_exports import Export

if TYPE_CHECKING:
    from pathlib import Path

    from lake.store import Lake
    from tests.conftest import LandFiles


def pattern(**fields: Any) -> dict[str, Any]:
    """A pattern as a file gives it, good unless it says otherwise."""
    known = {"pattern_id": "mine", "kind": "collective", "categories": None, "name_pattern": "^my_", "is_step": False}
    return {**known, **fields}


def text(kind: str, name: str = "^gemm") -> bytes:
    return f'[[pattern]]\nid = "mine"\nkind = "{kind}"\nname = "{name}"\n'.encode()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pattern_id": "nccl_kernel"}, "the id of one of ours"),
        ({"pattern_id": "My Own"}, "no id of lower-case letters"),
        ({"kind": "colective"}, "collective"),
        ({"name_pattern": "("}, "no regular expression"),
        ({"name_pattern": "a$"}, "not every engine reads alike"),
        ({"name_pattern": "(?i)a"}, "not every engine reads alike"),
        ({"name_pattern": r"\d"}, "not every engine reads alike"),
        ({"categories": '["kernels"]'}, "kernels"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused_by_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(EvidenceRejected, match="of the file") as refused:
        combine_patterns([("the file", [pattern(**fields)])])
    assert said in str(refused.value)


def test_one_id_with_two_meanings_is_a_conflict_that_names_both_files() -> None:
    files = [("the lake's", [pattern()]), ("the run's", [pattern(kind="compute")])]
    with pytest.raises(EvidenceRejected, match="mine means one thing in the lake's and another in the run's"):
        combine_patterns(files)


def test_equal_patterns_in_two_files_are_one() -> None:
    assert len(combine_patterns([("a", [pattern()]), ("b", [pattern()])]).patterns) == 1


def test_every_pattern_changes_the_digest() -> None:
    found = {combine_patterns([("a", [pattern(kind=kind)])]).sha256 for kind in ("compute", "collective")}
    assert len(found | {NO_SITE.sha256}) == 3


@pytest.mark.parametrize("data", [b"[[pattern]]\nid = 5\n", b"[[pattern]]\n[gpu]\n", b"[[pattern]\n", b"pattern = 3\n"])
def test_a_file_that_is_not_patterns_alone_is_refused(data: bytes) -> None:
    with pytest.raises(EvidenceRejected, match="the file"):
        parse_patterns(data, "the file")


def test_patterns_beside_the_lake_hold_for_all_runs_and_a_change_makes_them_stale(
    lake: Lake, land_files: LandFiles, tmp_path: Path
) -> None:
    export = Export()
    export.call(5, "cudaLaunchKernel", 1, 2, 1)
    export.kernel(5, 0, "gemm", 3, 9, 1)
    land_files({"a.sqlite": export.to_bytes(tmp_path / "a")})
    kinds = []
    for site in (None, text("collective"), text("crypto")):
        if site is not None:
            (tmp_path / "span_kinds.toml").write_bytes(site)
        assert "run-1" in find_stale(Look(lake), silver.TABLES, ["run-1"])
        silver.materialise(lake, "run-1", PolarsEngine())
        assert find_stale(Look(lake), silver.TABLES, ["run-1"]) == {}
        kinds += lake.scan(spans.TABLE, ["run-1"]).collect().filter(is_gpu=True)["kind"].to_list()
    assert kinds == ["compute", "collective", "crypto"]


def test_a_name_that_ours_gives_another_kind_is_the_sites_and_counted_as_a_conflict(
    lake: Lake, land_files: LandFiles, tmp_path: Path
) -> None:
    export = Export()
    export.kernel(5, 0, "ncclDevKernel_AllReduce", 3, 9, 1)
    export.kernel(5, 0, "gemm", 13, 19, 2)
    land_files({"a.sqlite": export.to_bytes(tmp_path / "a"), "span_kinds.toml": text("compute", "^(nccl|gemm)")})
    silver.materialise(lake, "run-1", PolarsEngine())
    assert lake.scan(spans.TABLE, ["run-1"]).collect()["kind"].to_list() == ["compute", "compute"]
    counts = lake.scan(rule_counts.TABLE, ["run-1"]).collect().filter(rule="site_conflict")
    assert counts.select("effect", "events_count").rows() == [("flagged", 1)]
