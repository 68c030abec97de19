"""A landing directory of anything: every file told by its content, every row accounted for, with or without a trace."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tarfile
import zipfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from assets.build import gold, silver
from bronze import formats, land
from lake.engines import engine
from tests.support.build_runs import build_comparisons
from tests.support.campaigns import pick_engines
from tests.support.recording_statements import envelop
from tests.support.tokens import Signer
from tests.support.traces import GOOD
from tests.support.up_to_date import find_landed, find_made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import LandedRun, LandFiles


def _database(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER); INSERT INTO NVTX_EVENTS VALUES (1, 2)"
        )
    return path.read_bytes()


WRITTEN = Path(__file__).parent / "written_logs"
_SIGNER = Signer()
_FILES = {
    "kineto": (GOOD, 2),
    "nsys_csv": (b"Start (ns),Duration (ns),Name,Tid\n1,2,f,9\n3,4,g\n", 1),
    "training_csv": (b"epoch,img/s\n1,10\n2,20\n", 2),
    "training_json": (b'{"config": 1}\n{"step": 1, "time": 0.5}\n', 1),
    "job_log": (b"hello\n:::MLLOG {}\nh:1:2 [0] NCCL INFO CC On, workFifoBytes 0\n", 2),
    "nccl_inspector": (json.dumps({"header": {}, "coll_perf": {}}).encode(), 1),
    "nccl_tests": (json.dumps({"results": [{"out_of_place": None}]}).encode(), 1),
    "nvidia_smi": (b"index, power.draw [W], memory.used [MiB]\n0, 1 W, 2 MiB\n", 2),
    "nvidia_smi_dmon": (b"# gpu    pwr     sm\n# Idx      W      %\n    0    525     99\n", 2),
    "copy_rate_csv": (b"size,bw\n64,0.5\n128,1\n", 2),
    "span_kinds": (b'# ours\n[[pattern]]\nid = "a"\nkind = "compute"\nname = "b"\n', 1),
    "dcgm": (b"DCGM_FI_X 1\n", 1),
    "tensorboard": ((WRITTEN / "tensorboardx.events").read_bytes(), 6),
    "mlflow": ((WRITTEN / "mlflow.metric").read_bytes(), 3),
    "mlflow_sqlite": (gzip.decompress((WRITTEN / "mlflow.db.gz").read_bytes()), 90),
    "wandb_log": (gzip.decompress((WRITTEN / "run.wandb.gz").read_bytes()), 30),
    "wandb": (b'{"_step": 0, "_timestamp": 1700000000.5, "loss": 2}\n', 1),
    "conf_compute": (b"    CC State : ON\n", 1),
    "eat_bundle": (_SIGNER.bundle({}, GPU_0={}), 2),
    "recording_statement": (envelop(), 1),
}


@pytest.fixture
def everything(tmp_path: Path) -> dict[str, tuple[bytes, int]]:
    """One file of every format, and how many rows it has."""
    return {**_FILES, "nsys_sqlite": (_database(tmp_path / "made.sqlite"), 1)}


def rows_by_source(landed: LandedRun) -> dict[str, int]:
    records = (landed.nsys, landed.training, landed.collectives, landed.samples, landed.attestations, landed.copies)
    tables = (landed.events, *records, landed.patterns, landed.statements)
    counted = pl.concat(table.select("source_sha256") for table in tables).group_by("source_sha256").len()
    return dict(counted.iter_rows())


def content(files: Mapping[str, tuple[bytes, int]]) -> dict[str, bytes]:
    """Files whose names say nothing, or the wrong thing."""
    return {f"{name}.trace.json": data for name, (data, _) in files.items()}


def test_every_format_is_told_by_its_content(land_files: LandFiles, everything: dict[str, tuple[bytes, int]]) -> None:
    landed = land_files(content(everything))
    answer = {row["file_name"].partition(".")[0]: row for row in landed.files.to_dicts()}
    assert {name: (row["format"], row["outcome"]) for name, row in answer.items()} == {
        name: (name, "kept") for name in everything
    }
    assert set(everything) == set(formats.NAMES) - {"unknown"}
    counts = rows_by_source(landed)
    for name, (_, rows) in everything.items():
        assert answer[name]["rows_count"] == rows == counts[answer[name]["source_sha256"]], name
    (run,) = landed.runs.to_dicts()
    assert (run["events_count"], run["records_count"], run["unreadable_count"]) == (2, 151, 1)
    assert (run["ranks_count"], run["conflicts"]) == (1, None)


def test_packed_files_give_the_same_rows(land_files: LandFiles, everything: dict[str, tuple[bytes, int]]) -> None:
    plain = land_files(content(everything))
    packed = land_files({name: gzip.compress(data) for name, data in content(everything).items()}, run_id="run-2")
    assert plain.files["format"].to_list() == packed.files["format"].to_list()
    for one, other in zip(
        (plain.nsys, plain.training, plain.samples), (packed.nsys, packed.training, packed.samples), strict=True
    ):
        hidden = ["run_id", "source_sha256"]
        columns = [name for name in one.columns if name not in hidden]
        assert one.drop(hidden).sort(columns).equals(other.drop(hidden).sort(columns))


def test_the_same_file_twice_is_merged(land_files: LandFiles) -> None:
    data, rows = _FILES["training_csv"]
    landed = land_files({"a.csv": data, "b.csv": data})
    assert landed.files.select("file_name", "outcome", "format", "rows_count").rows() == [
        ("a.csv", "kept", "training_csv", rows),
        ("b.csv", "merged", "training_csv", 0),
    ]
    assert len(landed.training) == rows


def test_a_second_landing_writes_nothing_new(land_files: LandFiles, everything: dict[str, tuple[bytes, int]]) -> None:
    land_files.write(content(everything))
    assert any(written.is_changed for written in land_files.materialise())
    assert not any(written.is_changed for written in land_files.materialise())
    assert find_landed(land_files.lake, land_files.zone, ["run-1"]) == {"run-1"}


@pytest.mark.parametrize("what", ["READERS_VERSION", "VERSIONS"])
def test_another_version_of_a_reader_makes_every_run_stale(
    land_files: LandFiles, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    land_files({"a.csv": _FILES["training_csv"][0]})
    if what == "VERSIONS":
        monkeypatch.setattr(formats, what, (*formats.VERSIONS[:-1], -1))
    else:
        monkeypatch.setattr(land, what, -1)
    assert find_landed(land_files.lake, land_files.zone, ["run-1"]) == set()


def test_only_a_name_that_says_so_gives_a_record_file_a_rank(land_files: LandFiles) -> None:
    data = _FILES["nsys_csv"][0]
    landed = land_files({"a.csv": data, "b-rank3.csv": data.replace(b"f", b"h")})
    assert landed.files.select("rank", "rank_source").rows() == [(None, None), (3, "file_name")]


@pytest.mark.parametrize("name", pick_engines())
def test_a_run_without_any_trace_goes_through_silver_and_gold(
    land_files: LandFiles, everything: dict[str, tuple[bytes, int]], name: str
) -> None:
    landed = land_files({file: data for file, data in content(everything).items() if not file.startswith("kineto")})
    assert landed.events.is_empty()
    chosen = engine(name)
    silver.materialise(land_files.lake, "run-1", chosen)
    gold.materialise(land_files.lake, "run-1", chosen)
    build_comparisons(land_files.lake)
    assert (
        find_made(land_files.lake, ["run-1"], silver.TABLES)
        == find_made(land_files.lake, ["run-1"], gold.RUN_TABLES)
        == {"run-1"}
    )
    (run,) = land_files.lake.scan(silver.TABLES[-1], ["run-1"]).collect().to_dicts()
    # The two calls of the Nsight reports; what the GPU did is in none of the files.
    assert (run["found_spans_count"], run["gpu_evidence"]) == (2, "unobservable")


def test_a_file_of_records_beside_traces_changes_nothing_of_them(land_files: LandFiles) -> None:
    chosen = engine("polars")
    tables = [table for table in silver.TABLES if table.name in {"spans", "steps", "clock_offsets", "crossings"}]
    content_of = {}
    for run_id, more in (("run-1", {}), ("run-2", {"b-rank7.csv": _FILES["training_csv"][0]})):
        land_files({"a.json": GOOD, **more}, run_id=run_id)
        silver.materialise(land_files.lake, run_id, chosen)
        content_of[run_id] = [land_files.lake.scan(table, [run_id]).drop("run_id").collect() for table in tables]
    assert all(one.equals(other) for one, other in zip(*content_of.values(), strict=True))


def test_a_table_without_its_header_is_refused_with_what_is_missing(land_files: LandFiles) -> None:
    landed = land_files({"a.csv": b"2026/11/19 13:30:34.332, 0, 526.5\n2026/11/19 13:30:35.332, 0, 526.5\n"})
    assert "holds values and not the names of columns (nvidia-smi leaves those out at noheader): 2026/11/19" in str(
        landed.file("a.csv")["reason"]
    )


def test_an_archive_is_refused_with_what_to_do(land_files: LandFiles, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(GOOD)
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as tar, zipfile.ZipFile(tmp_path / "all.zip", "w") as packed:
        tar.add(tmp_path / "trace.json", "trace.json")
        packed.write(tmp_path / "trace.json", "trace.json")
    landed = land_files({name: (tmp_path / name).read_bytes() for name in ("all.tar.gz", "all.zip")})
    assert set(landed.files["reason"]) == {
        "it is an archive: unpack it, and land the files in it (docs/landing.md lists what is read)"
    }


def test_a_log_without_times_is_refused_for_that(land_files: LandFiles) -> None:
    landed = land_files({"metrics.csv": b"epoch,step,train_loss\n0,10,2.5\n"})
    assert str(landed.file("metrics.csv")["reason"]).startswith(
        "it counts epochs or steps and says no time, duration or throughput of them: epoch, step, train_loss"
    )


def test_shares_of_processes_are_not_taken_for_those_of_a_device(land_files: LandFiles) -> None:
    rows = b"# gpu         pid   type     sm    mem    command \n# Idx           #    C/G      %      %    name \n"
    assert land_files({"a.txt": rows + b"    0        493     C     98      4    python3 \n"}).file("a.txt")["reason"]


def test_a_table_that_no_reader_knows_is_refused_by_its_columns(land_files: LandFiles) -> None:
    landed = land_files({"a.csv": b"size,fan\n64,0.5\n"})
    assert landed.file("a.csv")["reason"] == (
        "it is a table whose columns no reader knows: size, fan (docs/landing.md lists what is read)"
    )
