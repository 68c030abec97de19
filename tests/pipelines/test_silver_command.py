"""Silver as a person meets it: what `teetotal run`, `status` and `show` say of promises, engines and failures."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from assets.build import silver
from lake import engines
from pipelines.cli import main, run_commands
from tests.support.campaigns import is_soak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.testing import Result

_ROOT = Path(__file__).parent.parent.parent
_HOOK = ("tee::sendrecv", "tee::sendrecv")
_SEALED = ("tee::encrypt", "tee::sendrecv", "tee::encrypt", "tee::sendrecv")
TO_SILVER = tuple(word for table in silver.TABLES for word in ("--to", table.full_name))
# DuckDB takes seconds to plan all of silver, whatever is in it.
FEW = ("--to", "silver.spans", "--to", "silver.steps")
SEALED, OFF = 'regime = "sw_per_hop_aesgcm"\n', 'regime = "cc_off"\n'


def note(name: str, start: float, length: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length}


def kernel(name: str, start: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": 5}


def hook(*parts: str) -> list[dict[str, Any]]:
    """A hook's all-reduce of a thousand bytes, and what it holds."""
    inside = [note(part, 20 + 10 * place, 5) for place, part in enumerate(parts)]
    return [note("tee::all_reduce#1000", 10, 90), *inside]


def trace(rank: int, *events: dict[str, Any], world_size: int = 2) -> bytes:
    distributed = {"rank": rank, "world_size": world_size}
    return json.dumps({"distributedInfo": distributed, "traceEvents": events}).encode()


def put(landing: Path, run_id: str, manifest: str, *events: dict[str, Any], world_size: int = 2) -> None:
    """Put a run of two ranks with the same events into the landing zone."""
    directory = landing / run_id
    directory.mkdir(parents=True)
    for rank in (0, 1):
        (directory / f"rank{rank}.json").write_bytes(trace(rank, *events, world_size=world_size))
    (directory / "run.toml").write_text(manifest)


def put_nameless(landing: Path) -> None:
    """Put a run of two ranks of which only manifest and files tell."""
    directory = landing / "nameless"
    directory.mkdir(parents=True)
    for rank in (0, 1):
        events = [kernel("brandNewCollectiveKernel", 10 + rank)]
        (directory / f"rank{rank}.json").write_text(json.dumps({"traceEvents": events}))
    (directory / "run.toml").write_text(f"{OFF}world_size = 2\n")


def command(place: Path) -> Callable[..., Result]:
    """The command, in this process, on the lake and landing zone of a place; the keyring is beside the lake."""
    words = ["--lake", str(place / "lake"), "--landing", str(place / "landing")]
    return lambda *more: CliRunner().invoke(main.main, [*words, *more], catch_exceptions=False)


@pytest.fixture(scope="module", autouse=True)
def _no_keyring_of_ours() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TEETOTAL_KEYRING", "TEETOTAL_KEYRING_SECRET"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def built_place(tmp_path_factory: pytest.TempPathFactory, empty_records: Path) -> Path:
    """The place of runs of every sort that one launch has brought to silver; only to be read, or copied."""
    place = tmp_path_factory.mktemp("built")
    shutil.copytree(empty_records, place / ".dagster")
    landing = place / "landing"
    put(landing, "honest", SEALED, *hook(*_SEALED))
    put(landing, "plain", SEALED, *hook(*_HOOK))
    put(landing, "secretive", OFF, *hook(*_SEALED))
    # An annotation of the same collective does not make its kernel known.
    strange = (kernel("brandNewCollectiveKernel", 10), kernel("gemm", 20), note("nccl:all_reduce", 10, 5))
    put(landing, "strange", OFF, *strange)
    put(landing, "known", OFF, kernel("ncclDevKernel_AllReduce", 10), kernel("gemm", 20))
    put(landing, "alone", OFF, kernel("gemm", 20), world_size=1)
    put_nameless(landing)
    put(landing, "torn", OFF, note("a", 10, -1), note("b", 10, 1), note("b", 10, 1))
    done = command(place)("run", "--no-check", *TO_SILVER)
    assert done.exit_code == 0, done.output
    return place


@pytest.fixture(scope="module")
def reading(built_place: Path) -> Callable[..., Result]:
    """The command on the lake that all tests share."""
    return command(built_place)


@pytest.fixture(scope="module")
def status_text(reading: Callable[..., Result]) -> str:
    """What `status` says of all runs."""
    done = reading("status")
    assert done.exit_code == 0, "a broken promise is a finding, not a failure of the command"
    return done.output


@pytest.fixture
def copied_place(built_place: Path, tmp_path: Path) -> Path:
    """A copy of the shared lake, to be changed."""
    # Dagster's records name their place in full: a copy has its own.
    shutil.copytree(built_place, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".dagster"))
    return tmp_path


@pytest.fixture
def teetotal(tmp_path: Path, records_at_hand: None) -> Callable[..., Result]:
    """The command on a lake of the test's own."""
    return command(tmp_path)


def show_rows(teetotal: Callable[..., Result], *words: str) -> list[dict[str, Any]]:
    """The rows that `show` gives."""
    done = teetotal("show", *words, "--format", "json")
    assert done.exit_code == 0, done.output
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def states(status_text: str) -> dict[str, list[str]]:
    """The lines of `status`, by run."""
    lines = [line.split() for line in status_text.splitlines()[1:]]
    return {words[0]: words[1:] for words in lines if words and not words[0].endswith(":")}


# -- what a person is told ----------------------------------------------------------------------------------------


def test_a_broken_promise_and_a_contradicted_claim_are_told_by_status(status_text: str) -> None:
    assert "plain: it claims sw_per_hop_aesgcm, yet 2 crossings were not sealed" in status_text
    broken = "plain: 2 crossings: sw_per_hop_aesgcm must seal gpu_to_gpu, yet it crossed in plaintext"
    assert broken in status_text
    assert "secretive: it claims cc_off, yet 4 messages were sealed by a software hook" in status_text
    assert [line for line in status_text.splitlines() if line.startswith("honest: ") and "yet" in line] == []
    violations = {run: words[-1] for run, words in states(status_text).items()}
    assert {run: violations[run] for run in ("honest", "plain", "secretive")} == {
        "honest": "0",
        "plain": "2",
        "secretive": "0",
    }


def test_show_gives_the_crossings_of_one_run(reading: Callable[..., Result]) -> None:
    columns = "rank,sealed_message_count,wire_bytes,violation"
    honest = show_rows(reading, "silver.crossings", "--run", "honest", "--columns", columns)
    assert sorted((row["rank"], row["sealed_message_count"], row["wire_bytes"]) for row in honest) == [
        (0, 2, 1056),
        (1, 2, 1056),
    ]
    assert {row["violation"] for row in honest} == {None}
    assert len(show_rows(reading, "silver.crossings", "--run", "plain")) == 2
    everything = [row["run_id"] for row in show_rows(reading, "silver.crossings")]
    assert (everything.count("honest"), everything.count("plain"), everything.count("secretive")) == (2, 2, 2)
    drawn = reading("show", "silver.crossings", "--run", "plain").output
    assert "must seal gpu_to_gpu, yet it crossed in" in drawn
    assert "2 of 2 rows" in drawn


def test_kernels_that_no_pattern_knows_are_pointed_out_in_a_job_of_several_ranks(status_text: str) -> None:
    hints = {line.partition(": ")[0]: line for line in status_text.splitlines() if "span_kinds.toml" in line}
    assert {"known", "alone"}.isdisjoint(hints)
    hint = hints["strange"]
    assert hint.startswith("strange: a job of 2 ranks without a collective that silver/span_kinds.toml knows")
    assert hint.endswith("all 4 GPU kernels count as compute")


def test_the_hint_also_comes_where_only_manifest_and_files_show_several_ranks(status_text: str) -> None:
    assert "nameless: a job of 2 ranks without a collective" in status_text


def test_what_was_rejected_is_told_with_its_rule(status_text: str) -> None:
    assert "torn: 2 rejected: A negative duration is a clock fault; CUDA events have them under CC (R2)." in status_text
    assert (
        "torn: 2 merged: An event with the name, place, time, ids and size of another of its source is the same."
        in status_text
    )


# -- engines ------------------------------------------------------------------------------------------------------


def test_the_engines_that_the_command_offers_are_those_that_there_are() -> None:
    assert run_commands._ENGINES == engines.ENGINES


def test_another_engine_finds_nothing_to_change(copied_place: Path, teetotal: Callable[..., Result]) -> None:
    first, *others = engines.LOCAL_ENGINES
    # The files of a copied landing zone are others: bronze looks at them again.
    assert teetotal("run", "--no-check", "--engine", first, *FEW, "honest").exit_code == 0
    versions = {path: path.stat().st_mtime_ns for path in (copied_place / "lake" / "silver").rglob("*.json")}
    for other in others:
        words = ("run", "--no-check", "--engine", other, *(TO_SILVER if is_soak() else FEW), "honest")
        assert teetotal(*words).stdout == "honest: up to date, nothing to do\n"
        again = teetotal(*words, "--full")
        assert again.exit_code == 0, again.output
    assert {path: path.stat().st_mtime_ns for path in (copied_place / "lake" / "silver").rglob("*.json")} == versions


def test_an_engine_that_there_is_not_is_wrong_usage_and_writes_nothing(
    tmp_path: Path,
) -> None:
    put(tmp_path / "landing", "honest", SEALED, *hook(*_SEALED))
    places = ("--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing"))
    done = subprocess.run(
        [sys.executable, "-c", "from pipelines.cli.main import main; main()", *places, "run", "--engine", "sprak"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "'sprak'" in done.stderr
    assert all(name in done.stderr for name in engines.ENGINES)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "lake").exists()


# -- failures -----------------------------------------------------------------------------------------------------


def test_a_keyring_that_others_may_read_fails_every_run_in_a_line_and_leaves_them_to_be_run_again(
    copied_place: Path, teetotal: Callable[..., Result]
) -> None:
    put(copied_place / "landing", "late", SEALED, *hook(*_HOOK))
    before = show_rows(teetotal, "silver.crossings")
    keyring = copied_place / "keyring.json"
    keyring.chmod(0o644)
    done = teetotal("run", "--quiet", "--no-check", "--full", "honest", "late")
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert [line.partition(": failed: ")[0] for line in lines] == ["honest", "late"]
    assert all("keyring.json" in line for line in lines)
    assert show_rows(teetotal, "silver.crossings") == before, "what was made before is as it was"
    assert show_rows(teetotal, "silver.runs", "--run", "late") == []
    assert states(teetotal("status").output)["late"][0] == "stale"
    keyring.chmod(0o600)
    assert teetotal("run", "--no-check", "honest", "late").exit_code == 0
    found = states(teetotal("status").output)
    assert (found["honest"][0], found["late"][0]) == ("unchecked", "unchecked")
    assert len(show_rows(teetotal, "silver.runs")) == 9


def test_one_run_that_no_engine_can_conform_fails_alone(teetotal: Callable[..., Result], tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        put(tmp_path / "landing", name, SEALED, *hook(*_SEALED))
    lake = tmp_path / "lake" / "silver" / "spans"
    lake.mkdir(parents=True)
    # Somebody put a file where the partition of one run should be.
    (lake / "run_id=b").write_text("in the way")
    done = teetotal("run", "--quiet", "--no-check")
    assert done.exit_code == 1
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == ["b"]
    assert "b: failed: " in done.stderr
    assert [line.partition(": ")[0] for line in done.stdout.splitlines()] == ["a", "c"]
    assert {run: words[0] for run, words in states(teetotal("status").output).items()} == {
        "a": "unchecked",
        "b": "stale",
        "c": "unchecked",
    }
    assert {row["run_id"] for row in show_rows(teetotal, "silver.runs")} == {"a", "c"}


def test_a_number_that_no_engine_can_add_is_no_traceback_and_stops_no_other_run(
    teetotal: Callable[..., Result], tmp_path: Path
) -> None:
    copy = {**kernel("Memcpy HtoD (Pageable -> Device)", 10), "cat": "gpu_memcpy", "args": {"bytes": (1 << 63) - 1}}
    put(tmp_path / "landing", "a", 'regime = "hopper_spt_cc"\n', copy)
    put(tmp_path / "landing", "b", SEALED, *hook(*_SEALED))
    done = teetotal("run", "--no-check", "--engine", "duckdb", "--to", "silver.crossings")
    assert "b: " in done.stdout
    assert done.exit_code in {0, 1}


def test_no_table_of_silver_is_without_a_show(reading: Callable[..., Result]) -> None:
    for table in silver.TABLES:
        drawn = reading("show", table.full_name, "--run", "honest")
        assert drawn.exit_code == 0, table.full_name
        assert "rows" in drawn.output
