"""A report that only Nsight's own tool reads: exported where the tool is there, else refused with the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.nsys_exports import Export

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import LandFiles

REPORT = b"\x00QuaDD\x01 whatever the tool writes"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program called nsys first on the path."""
    folder.mkdir()
    program = folder / "nsys"
    program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_report_is_refused_with_the_next_step_where_the_tool_is_not_installed(
    land_files: LandFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    file = land_files({"rank0.nsys-rep": REPORT}).file("rank0.nsys-rep")
    assert file["outcome"] == "rejected"
    assert "nsys export --type sqlite" in str(file["reason"])


def test_a_report_is_exported_by_the_installed_tool(
    land_files: LandFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    export = Export()
    export.kernel(5, 0, "gemm", 10, 20, 1)
    export.to_bytes(tmp_path / "made.sqlite")
    # The words are: export --type sqlite --force-overwrite true --output OUT IN.
    install(tmp_path / "bin", monkeypatch, f'cmp -s "$8" {tmp_path}/given && cp {tmp_path}/made.sqlite "$7"')
    (tmp_path / "given").write_bytes(REPORT)
    landed = land_files({"rank0.nsys-rep": REPORT})
    file = landed.file("rank0.nsys-rep")
    assert (file["format"], file["outcome"], file["rows_count"], file["rank"]) == ("nsys_sqlite", "kept", 1, 0)
    assert landed.nsys["name"].to_list() == ["gemm"]


def test_what_the_tool_says_is_the_reason_where_it_fails(
    land_files: LandFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(tmp_path / "bin", monkeypatch, "echo 'the report is of a newer version' >&2; exit 1")
    reason = str(land_files({"a.nsys-rep": REPORT}).file("a.nsys-rep")["reason"])
    assert "the report is of a newer version" in reason
    assert "nsys export --type sqlite" in reason
