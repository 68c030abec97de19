"""The command as a person types it: one verb a test, in a process of its own where the exit status matters."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner

from pipelines.cli import progress
from pipelines.cli.demo import FIRST_LOOK
from pipelines.cli.main import main
from pipelines.cli.session import TIERS
from tests.support.small_runs import OFF, TEE, trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

_ROOT = Path(__file__).parent.parent.parent
_SAMPLES = _ROOT / "samples"
_TRACE = (
    b'{"distributedInfo": {"backend": "nccl", "rank": %d, "world_size": 2}, "deviceProperties": [{"name": "GPU-X"}],'
    b' "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k%d", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2.25}]}'
)
# Tables of bronze alone, for what is told of files: a launch to gold with all checks takes ten times as long.
_BRONZE = ("--no-check", "--to", "bronze.runs")
# What a launch of the first look says it begins, in this order.
_PROGRESS = (
    "12 of 12 runs to build or check: opening Dagster's records …",
    *(line for tier in TIERS for line in (f"{tier} of 12 runs …", f"checks of {tier}, 12 runs …")),
    "pairs …",
    "checks of pairs, 12 runs …",
    "comparisons across runs, and forecasts …",
    "checks of comparisons …",
)


@pytest.fixture
def places(tmp_path: Path, records_at_hand: None) -> list[str]:
    """Where the tests' own lake and landing zone are."""
    return ["--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing")]


@pytest.fixture
def teetotal(places: list[str]) -> Callable[..., Result]:
    """The command, in this process."""
    return lambda *words: CliRunner().invoke(main, [*places, *words], catch_exceptions=False)


@pytest.fixture
def screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What progress writes to standard error, which has no descriptor under click's runner."""
    path = tmp_path / "screen"
    monkeypatch.setattr(progress, "_find_screen", lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    return path


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    """Two small traces of one job."""
    paths = [tmp_path / f"job-r{rank}.json" for rank in (0, 1)]
    for rank, path in enumerate(paths):
        path.write_bytes(_TRACE % (rank, rank))
    return paths


def test_demo_lands_the_bundled_recordings_and_a_second_one_changes_nothing(
    teetotal: Callable[..., Result], screen: Path
) -> None:
    runs = sorted(path.parent.name for path in _SAMPLES.glob("*/run.toml") if path.parent.name.startswith(FIRST_LOOK))
    first = teetotal("demo")
    assert first.exit_code == 0, first.output
    assert all(f"{run}: " in first.output and "up to date" not in first.output for run in runs)
    _assert_in_order(screen.read_text().splitlines(), *_PROGRESS)
    second = teetotal("demo")
    assert second.exit_code == 0
    assert all(f"{run}: up to date, nothing to do" in second.output for run in runs)
    states = teetotal("status").output
    assert states.count(" up-to-date ") == len(runs)


def test_land_names_the_run_and_fills_in_what_the_files_say(
    teetotal: Callable[..., Result], traces: list[Path], tmp_path: Path
) -> None:
    landed = teetotal("land", *map(str, traces), "--regime", "cc_off", "--set", "batch_size=64")
    assert landed.exit_code == 0, landed.output
    assert landed.output.startswith("landed job: 2 files")
    manifest = (tmp_path / "landing" / "job" / "run.toml").read_text()
    for line in ('regime = "cc_off"', "batch_size = 64", "world_size = 2", 'backend = "nccl"', 'gpu = "GPU-X"'):
        assert line in manifest


_QUERY = "==NVSMI CONF-COMPUTE LOG==\n\n  CC State : {}\n  Multi-GPU Mode : {}\n"


@pytest.mark.parametrize(
    ("answer", "gpu", "regime"),
    [
        (_QUERY.format("ON", "None"), "NVIDIA H200", "hopper_spt_cc"),
        (_QUERY.format("OFF", "Protected PCIe"), "NVIDIA H200", "hopper_ppcie"),
        (_QUERY.format("OFF", "None"), "NVIDIA B200", "cc_off"),
        (_QUERY.format("ON", "None"), "NVIDIA B200", None),
        ("CC status: OFF\n", "NVIDIA H200", None),
    ],
)
def test_land_takes_the_regime_from_the_device_s_own_answer_where_that_settles_it(
    teetotal: Callable[..., Result], traces: list[Path], tmp_path: Path, answer: str, gpu: str, regime: str | None
) -> None:
    state = tmp_path / "state.txt"
    state.write_text(answer)
    words = ["land", *map(str, traces), str(state), "--run-id", "job", "--set", f"gpu={gpu}"]
    told = teetotal(*words).stderr
    manifest = (tmp_path / "landing" / "job" / "run.toml").read_text()
    if regime is None:
        assert "note: the regime is unknown: state.txt does not settle it; name it with --regime" in told
        assert "regime" not in manifest
    else:
        assert f"note: regime {regime} is taken from state.txt" in told
        assert f'regime = "{regime}"' in manifest


def test_a_regime_that_is_typed_is_not_taken_from_the_device(
    teetotal: Callable[..., Result], traces: list[Path], tmp_path: Path
) -> None:
    state = tmp_path / "state.txt"
    state.write_text(_QUERY.format("OFF", "None"))
    done = teetotal("land", *map(str, traces), str(state), "--run-id", "job", "--regime", "sw_per_hop_aesgcm")
    assert done.stderr == ""
    assert 'regime = "sw_per_hop_aesgcm"' in (tmp_path / "landing" / "job" / "run.toml").read_text()


def test_land_notes_a_baseline_that_is_no_run_and_files_that_nobody_reads(
    teetotal: Callable[..., Result], traces: list[Path], tmp_path: Path
) -> None:
    assert teetotal("land", str(traces[0]), "--run-id", "plain-w2").stderr == ""
    assert teetotal("land", str(traces[1]), "--run-id", "tee", "--baseline", "plain-w2").stderr == ""
    told = teetotal("land", str(traces[1]), "--run-id", "tee2", "--baseline", "plian-w2").stderr
    assert "note: baseline 'plian-w2' is no run of" in told
    assert "did you mean 'plain-w2'?" in told
    (tmp_path / "poem.txt").write_text("no telemetry at all\n")
    told = teetotal("land", str(tmp_path / "poem.txt")).stderr
    assert told.startswith("note: none of these files is in a format that teetotal reads")


def test_land_notes_a_field_that_stands_under_extra_where_it_claims_nothing(
    teetotal: Callable[..., Result], traces: list[Path]
) -> None:
    manifest = traces[0].with_name("run.toml")
    manifest.write_text('model = "M"\n[extra]\ncluster = "blue"\nopen_cycles_count = 8\n')
    told = teetotal("land", str(traces[0]), str(manifest), "--run-id", "job").stderr
    assert told == (
        "note: open_cycles_count under [extra] is kept and claims nothing; a field of run.toml stands above [extra]\n"
    )


def test_what_is_typed_wins_over_the_run_toml_which_wins_over_the_files(
    teetotal: Callable[..., Result], tmp_path: Path
) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    (folder / "rank0.json").write_bytes(_TRACE % (0, 0))
    (folder / "run.toml").write_text('model = "M"\nbackend = "gloo"\nworld_size = 4\n[extra]\ncluster = "blue"\n')
    assert teetotal("land", str(folder), "--set", "world_size=8").exit_code == 0
    manifest = (tmp_path / "landing" / "recorded" / "run.toml").read_text()
    for line in ("world_size = 8", 'backend = "gloo"', 'gpu = "GPU-X"', '"cluster" = "blue"'):
        assert line in manifest
    assert teetotal("run", *_BRONZE).exit_code == 0
    conflicts = teetotal("show", "bronze.runs", "--format", "json", "--columns", "conflicts").output
    assert "world_size: the manifest says 8, the traces say 2" in conflicts
    assert "backend: the manifest says gloo, the traces say nccl" in conflicts


def test_a_run_says_that_a_file_was_cut_and_where_to_read_why(
    teetotal: Callable[..., Result], traces: list[Path]
) -> None:
    traces[0].write_bytes(traces[0].read_bytes()[:-40])
    assert teetotal("land", *map(str, traces), "--run-id", "half").exit_code == 0
    told = teetotal("run", *_BRONZE, "--to", "bronze.unreadable").stdout
    number = re.search(r"; (\d+) rejected or unreadable: `teetotal status half` says why", told)
    assert number, told
    assert teetotal("status").output.count("unreadable: the file ends") == int(number[1])


def test_ranks_in_folders_of_their_own_land_side_by_side(teetotal: Callable[..., Result], tmp_path: Path) -> None:
    for rank in (0, 1):
        folder = tmp_path / "job" / f"rank{rank}"
        folder.mkdir(parents=True)
        (folder / "trace.json").write_bytes(_TRACE % (rank, rank))
    assert teetotal("land", str(tmp_path / "job")).exit_code == 0
    assert {path.name for path in (tmp_path / "landing" / "job").iterdir()} == {
        "rank0-trace.json",
        "rank1-trace.json",
        "run.toml",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("land", "nowhere.json"), "nowhere.json does not exist"),
        (("land", "TRACE", "--run-id", "a/b"), "'a/b' cannot be a run id"),
        (("land", "TRACE", "--set", "batch_size=many"), "batch_size: expected a whole number, found 'many'"),
        (("land", "TRACE", "--set", "batchsize=1"), "did you mean 'batch_size'?"),
        (("land", "TRACE", "--regime", "cc_of"), "did you mean 'cc_off'?"),
        (("run", "--quiet", "no-such-run"), "no run 'no-such-run'"),
        (("run", "--quiet", "--to", "gold.trace_sumary"), "did you mean 'gold.trace_summary'?"),
        (("show", "bronze.trace_event"), "did you mean 'bronze.trace_events'?"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_to_do(
    teetotal: Callable[..., Result], traces: list[Path], words: tuple[str, ...], said: str
) -> None:
    done = teetotal(*(str(traces[0]) if word == "TRACE" else word for word in words))
    assert done.exit_code == 2
    assert done.stderr.startswith("teetotal: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_a_process_of_its_own_says_the_same_and_exits_with_2(places: list[str]) -> None:
    done = _run_process(*places, "show", "bronze.trace_event")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "did you mean 'bronze.trace_events'?" in done.stderr


def test_a_run_is_not_landed_twice_under_one_name(teetotal: Callable[..., Result], traces: list[Path]) -> None:
    assert teetotal("land", str(traces[0]), "--run-id", "a").exit_code == 0
    again = teetotal("land", str(traces[1]), "--run-id", "a")
    assert again.exit_code == 2
    assert "already in the landing zone" in again.stderr


def test_one_bad_manifest_fails_its_run_and_no_other(
    teetotal: Callable[..., Result], traces: list[Path], tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        assert teetotal("land", str(traces[0]), "--run-id", name).exit_code == 0
    (tmp_path / "landing" / "b" / "run.toml").write_text("batch_size = -1\n")
    done = teetotal("run", *_BRONZE)
    assert done.exit_code == 1
    assert "a: 1 events" in done.stdout
    assert "c: 1 events" in done.stdout
    assert "b: failed: b/run.toml: batch_size: expected at least 1, found -1" in done.stderr
    answer = teetotal("status")
    assert answer.exit_code == 1
    assert "batch_size: expected at least 1" in answer.output


def test_status_tells_new_fresh_stale_and_gone(
    teetotal: Callable[..., Result], traces: list[Path], tmp_path: Path
) -> None:
    assert "nothing in" in teetotal("status").output
    for name in ("a", "b"):
        teetotal("land", str(traces[0]), "--run-id", name)
    assert _states(teetotal) == {"a": "new", "b": "new"}
    teetotal("run")
    assert _states(teetotal) == {"a": "up-to-date", "b": "up-to-date"}
    (tmp_path / "landing" / "a" / "notes.txt").write_text("not a trace")
    for path in (tmp_path / "landing" / "b").iterdir():
        path.unlink()
    (tmp_path / "landing" / "b").rmdir()
    assert _states(teetotal) == {"a": "stale", "b": "gone"}
    teetotal("run", *_BRONZE)
    answer = teetotal("status").output
    assert "a: notes.txt rejected: it is in no format that teetotal reads" in answer


def test_a_run_can_be_made_up_to_a_table_and_completed_later(
    teetotal: Callable[..., Result], traces: list[Path]
) -> None:
    teetotal("land", *map(str, traces), "--run-id", "a")
    words = ("run", "--to", "gold.trace_summary", "--to", "gold.kernel_breakdown")
    assert "a: 2 events, 2 spans (9 of 20 tables changed)" in teetotal(*words).output
    assert len(json.loads(teetotal("show", "gold.trace_summary", "--format", "json").stdout)) == 2
    assert json.loads(teetotal("show", "gold.time_breakdown", "--format", "json").stdout) == []
    assert "a: up to date, nothing to do" in teetotal(*words).output
    assert _states(teetotal) == {"a": "stale"}, "not all of it is made"
    assert "a: 2 events, 2 spans" in teetotal("run").output
    assert _states(teetotal) == {"a": "up-to-date"}


def test_show_gives_the_same_rows_in_every_format(teetotal: Callable[..., Result], traces: list[Path]) -> None:
    teetotal("land", *map(str, traces))
    teetotal("run", *_BRONZE)
    words = ("show", "bronze.trace_events", "--columns", "rank,name,ts_ns,duration_ns", "--format")
    expected = [
        {"rank": 0, "name": "k0", "ts_ns": 1500, "duration_ns": 2250},
        {"rank": 1, "name": "k1", "ts_ns": 1500, "duration_ns": 2250},
    ]
    assert _by_rank(json.loads(teetotal(*words, "json").stdout)) == expected
    assert _by_rank(pl.read_csv(teetotal(*words, "csv").stdout_bytes).to_dicts()) == expected
    assert _by_rank(pl.read_parquet(BytesIO(teetotal(*words, "parquet").stdout_bytes)).to_dicts()) == expected
    drawn = teetotal(*words, "table").output
    assert "k0" in drawn
    assert "2 of 2 rows" in drawn


def test_a_terminal_sees_a_bar_with_bytes_and_rows(
    teetotal: Callable[..., Result], places: list[str], traces: list[Path]
) -> None:
    teetotal("land", *map(str, traces))
    screen, far_end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", "from pipelines.cli.main import main; main()", *places, "run", *_BRONZE],
        cwd=_ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
        stdout=subprocess.PIPE,
        stderr=far_end,
    ) as running:
        os.close(far_end)
        seen = _everything(screen)
        assert running.wait() == 0
    assert "job 1 of 1" in seen
    assert "bytes" in seen
    assert "1 rows" in seen


def test_without_a_terminal_progress_is_plain_lines_that_begin_before_the_work_and_quiet_leaves_them_out(
    teetotal: Callable[..., Result], places: list[str], traces: list[Path]
) -> None:
    teetotal("land", *map(str, traces))
    told = _run_process(*places, "run", *_BRONZE)
    assert told.returncode == 0
    lines = told.stderr.splitlines()
    assert lines[0].startswith("looking at the runs in ")
    assert lines[1] == "1 of 1 runs to build or check: opening Dagster's records …"
    assert lines[2:4] == ["bronze of 1 run …", "job 1 of 1"]
    assert lines[4].startswith("  job: bronze, ")
    assert teetotal("run", "--quiet", "--full", *_BRONZE).stderr == ""


def test_a_run_ends_with_the_verdicts_of_what_it_built_and_what_to_type_next(
    teetotal: Callable[..., Result], tmp_path: Path
) -> None:
    for run_id, manifest in (("off", OFF), ("tee", f'{TEE}baseline = "off"\n')):
        (tmp_path / "landing" / run_id).mkdir(parents=True)
        (tmp_path / "landing" / run_id / "rank0.json").write_bytes(trace(100))
        (tmp_path / "landing" / run_id / "run.toml").write_text(manifest)
    done = teetotal("run", "--no-check")
    assert done.exit_code == 0, done.output
    assert re.search(r"^tee against off: .+", done.stdout, re.MULTILINE), done.stdout
    assert done.stdout.endswith("next: teetotal report; teetotal what-if tee\n")
    assert "next:" not in teetotal("run", "--no-check").stdout


def _assert_in_order(lines: list[str], *expected: str) -> None:
    """Every expected line is there, after the one before it."""
    rest = iter(lines)
    for one in expected:
        assert one in rest, f"{one!r} is missing or out of order in {lines}"


def _everything(screen: int) -> str:
    """All that was drawn, the escape sequences for colour left out."""
    seen = b""
    while True:
        try:
            seen += os.read(screen, 65_536)
        except OSError:  # the other end has closed
            return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())


def _run_process(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from pipelines.cli.main import main; main()", *words],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def _by_rank(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in an order that does not hang on the digests of their sources."""
    return sorted(rows, key=lambda row: row["rank"])


def _states(teetotal: Callable[..., Result]) -> dict[str, str]:
    lines = teetotal("status").output.splitlines()[1:]
    return {words[0]: words[1] for line in lines if len(words := line.split()) > 1 and not words[0].endswith(":")}


def test_a_path_that_no_file_system_takes_is_refused_in_a_line(teetotal: Callable[..., Result]) -> None:
    done = teetotal("land", "x" * 5000)
    assert done.exit_code == 2
    assert "cannot be a path" in done.stderr
    assert len(done.stderr) < 400
