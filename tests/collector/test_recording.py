"""A recording lands whole or not at all, and says what it knows in the manifest's own words."""

from __future__ import annotations

import csv
import gzip
import json
import os
import platform
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from bronze import manifest
from collector.device import cc_mode_of
from collector.errors import CollectorError, RecordingRefused
from collector.landing import Landing
from collector.live import LiveLanding
from collector.manifest import to_toml
from collector.node import identify
from collector.plan import plan_configurations, settings_of
from collector.recording import record
from collector.window import Window
from tests.support.torch_forks import Job

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.torch_forks import TorchForks

WINDOW = Window(warmup_steps=1, bare_steps=2, recorded_steps=3)
# Ways to end before the recording is whole, and what is said of it.
MIDDLES = {
    "kill": "",
    "raise": "the loop broke",
    "short": "the loop ended after 2 steps and recording begins after 4",
}


SCRIPT = """
import sys
import torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Looped:
    """What a loop left in its landing zone, and how it ended."""

    landing: Path
    status: int
    said: str


@pytest.fixture(scope="module")
def finished_loops(torch_forks: TorchForks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Looped]:
    """Loops that end in every way, each in a process of its own; a script, by the command that records it."""
    zones = {ending: tmp_path_factory.mktemp(ending) for ending in ("well", "live", "live raise", *MIDDLES)}
    logs = {ending: zone.parent / f"said-{ending}" for ending, zone in zones.items()}
    loop = "tests.support.training_loops"
    jobs = [Job(loop, [str(zone), ending], str(logs[ending])) for ending, zone in zones.items()]
    home = tmp_path_factory.mktemp("script")
    (home / "train.py").write_text(SCRIPT, "utf-8")
    zones["script"], logs["script"] = home / "zone", home / "said"
    words = ["run", "--landing", str(home / "zone"), "--run-id", "run-1", "--set", "model=line"]
    words += ["--set", "batch_size=4", "--warmup", "1", "--bare", "1", "--steps", "2", str(home / "train.py"), "6"]
    jobs.append(Job("collector.__main__", words, str(logs["script"])))
    statuses = torch_forks.run(jobs)
    return {
        ending: Looped(zones[ending], status, logs[ending].read_text("utf-8"))
        for ending, status in zip(zones, statuses, strict=True)
    }


def _visible(landing: Path) -> list[str]:
    """What a reader of the landing zone takes for runs."""
    return [path.name for path in landing.iterdir() if not path.name.startswith(".")] if landing.exists() else []


def test_a_recording_holds_trace_step_times_and_a_manifest_that_the_pipeline_accepts(
    finished_loops: dict[str, Looped],
) -> None:
    done = finished_loops["well"]
    assert done.status == 0, done.said
    folder = done.landing / "run-1"
    assert {path.name for path in folder.iterdir()} == {"run.toml", "run-1-r0.json.gz", "steps-r0.csv"}
    assert list(done.landing.iterdir()) == [folder]
    said = manifest.parse((folder / "run.toml").read_bytes(), "run.toml")
    assert said.claims.items() >= {"model": "line", "regime": "cc_off", "world_size": 1, "parameters_count": 9}.items()
    assert float(said.claims["recording_slowdown_ratio"]) > 0
    assert said.extra["median_bare_step_s"] > 0
    rows = list(csv.DictReader((folder / "steps-r0.csv").read_text("utf-8").splitlines()))
    phases = ["warmup", "bare", "bare", "settling", "recorded", "recorded", "recorded", "after"]
    assert [row["phase"] for row in rows] == phases
    starts = [float(row["began_epoch_s"]) for row in rows]
    assert starts == sorted(starts)
    with gzip.open(folder / "run-1-r0.json.gz") as file:
        names = [event["name"] for event in json.load(file)["traceEvents"]]
    assert [name for name in names if name.startswith("ProfilerStep#")] == [
        f"ProfilerStep#{step}" for step in (4, 5, 6)
    ]


def test_a_script_is_recorded_without_a_change_to_it(finished_loops: dict[str, Looped]) -> None:
    done = finished_loops["script"]
    assert done.status == 0, done.said
    folder = done.landing / "run-1"
    assert {path.name for path in folder.iterdir()} == {"run.toml", "run-1-r0.json.gz", "steps-r0.csv"}
    said = manifest.parse((folder / "run.toml").read_bytes(), "run.toml")
    assert (said.claims["model"], said.claims["batch_size"]) == ("line", 4)
    assert len((folder / "steps-r0.csv").read_text("utf-8").splitlines()) == 1 + 6


@pytest.mark.parametrize("ending", MIDDLES)
def test_a_loop_that_ends_in_the_middle_lands_nothing_and_says_why(
    finished_loops: dict[str, Looped], ending: str
) -> None:
    done = finished_loops[ending]
    assert done.status != 0
    assert _visible(done.landing) == []
    assert MIDDLES[ending] in done.said
    # Only who is killed cannot clean up; what is left bears a name that is no run's.
    assert (list(done.landing.iterdir()) == []) == (ending != "kill")


def test_a_live_recording_is_open_from_its_start_shows_each_cycle_and_closes_itself(
    finished_loops: dict[str, Looped],
) -> None:
    done = finished_loops["live"]
    assert done.status == 0, done.said
    seen = dict(line.split(": ", 1) for line in done.said.splitlines() if line[:1].isdigit())
    assert seen["0"].split() == [".open", "run.toml"]
    assert seen["7"].split() == [".open", "run-1-c0-r0.json.gz", "run.toml", "steps-r0.csv"]
    assert seen["13"].split() == [".open", "run-1-c0-r0.json.gz", "run-1-c1-r0.json.gz", "run.toml", "steps-r0.csv"]
    folder = done.landing / "run-1"
    assert list(done.landing.iterdir()) == [folder]
    names = {"run.toml", "run-1-c0-r0.json.gz", "run-1-c1-r0.json.gz", "steps-r0.csv"}
    assert {path.name for path in folder.iterdir()} == names
    said = manifest.parse((folder / "run.toml").read_bytes(), "run.toml")
    assert float(said.claims["recording_slowdown_ratio"]) > 0
    rows = list(csv.DictReader((folder / "steps-r0.csv").read_text("utf-8").splitlines()))
    cycle = ["bare", "bare", "settling", "recorded", "recorded", "recorded"]
    assert [row["phase"] for row in rows] == ["warmup", *cycle, *cycle, "after"]
    steps = []
    for name in ("run-1-c0-r0.json.gz", "run-1-c1-r0.json.gz"):
        with gzip.open(folder / name) as file:
            events = json.load(file)["traceEvents"]
        steps.append([event["name"] for event in events if event["name"].startswith("ProfilerStep#")])
    assert steps == [[f"ProfilerStep#{step}" for step in some] for some in ((4, 5, 6), (10, 11, 12))]


def test_a_live_recording_whose_loop_fails_is_closed_with_what_had_come(finished_loops: dict[str, Looped]) -> None:
    done = finished_loops["live raise"]
    assert "the loop broke" in done.said
    folder = done.landing / "run-1"
    assert list(done.landing.iterdir()) == [folder]
    assert {path.name for path in folder.iterdir()} == {"run.toml", "run-1-c0-r0.json.gz", "steps-r0.csv"}


def test_a_rank_that_joins_late_adds_to_the_run_that_rank_0_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_PORT", "29998")
    first = LiveLanding(tmp_path, "run-1", 0, 2, timeout_s=2)
    first.open(lambda: "schema = 1\n")
    late = LiveLanding(tmp_path, "run-1", 1, 2, timeout_s=2)
    (late.folder / "1.csv").write_text("x", "utf-8")
    late.publish(late.folder / "1.csv")
    assert {path.name for path in (tmp_path / "run-1").iterdir()} == {".open", "run.toml", "1.csv"}
    late.finish(None)
    first.finish('schema = 1\nmodel = "m"\n')
    assert {path.name for path in (tmp_path / "run-1").iterdir()} == {"run.toml", "1.csv"}
    assert "model" in (tmp_path / "run-1" / "run.toml").read_text("utf-8")
    with pytest.raises(RecordingRefused, match="is there already"):
        LiveLanding(tmp_path, "run-1", 0, 2, timeout_s=2)


# -- ranks that share a directory ---------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Landing]:
    """Two ranks' views of one directory, before a process group is there."""
    monkeypatch.setenv("MASTER_PORT", "29999")
    return [Landing(tmp_path / "landing", "run-1", rank, 2, timeout_s=0.4) for rank in (0, 1)]


def test_the_directory_appears_when_the_last_rank_is_done_with_its_manifest_in_it(
    pair: list[Landing], tmp_path: Path
) -> None:
    for rank, landing in enumerate(pair):
        (landing.folder / f"{rank}.csv").write_text("x", "utf-8")
    late = threading.Timer(0.1, pair[1].finish, [None])
    late.start()
    pair[0].finish("schema = 1\n")
    late.join()
    assert {path.name for path in (tmp_path / "landing" / "run-1").iterdir()} == {"0.csv", "1.csv", "run.toml"}
    assert _visible(tmp_path / "landing") == ["run-1"]


def test_a_rank_that_failed_keeps_the_run_from_landing(pair: list[Landing], tmp_path: Path) -> None:
    pair[1].fail()
    with pytest.raises(RecordingRefused, match="rank 1 failed, so nothing was landed"):
        pair[0].finish("schema = 1\n")
    assert list((tmp_path / "landing").iterdir()) == []
    with pytest.raises(RecordingRefused, match="rank 0 gave the recording up"):
        pair[1].finish(None)


def test_a_rank_that_never_comes_keeps_the_run_from_landing(pair: list[Landing], tmp_path: Path) -> None:
    with pytest.raises(RecordingRefused, match=r"rank 1 did not finish its files in 0\.4 s"):
        pair[0].finish("schema = 1\n")
    assert list((tmp_path / "landing").iterdir()) == []


def test_a_run_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run-1").mkdir()
    with pytest.raises(RecordingRefused, match="is there already"):
        Landing(tmp_path, "run-1", 0, 1, 1)


@pytest.mark.parametrize("name", ["", ".run", "a/b", "../a", "a b", "x" * 129])
def test_a_run_id_that_the_landing_zone_would_refuse_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecordingRefused, match="run id: expected"):
        Landing(tmp_path, name, 0, 1, 1)


# -- words --------------------------------------------------------------------------------------------------------


def test_what_the_recorder_writes_the_pipeline_reads_back() -> None:
    claims: dict[str, str | int | float | None] = {
        "model": 'odd "name"\n\x7f\\ü',
        "batch_size": 3,
        "bucket_cap_mib": 25.0,
        "regime": "cc_off",
        "gpu": None,
    }
    extra = {"ring_direct": True, "step_s": 0.1}
    found = manifest.parse(to_toml(claims, extra).encode(), "run.toml")
    assert found.claims == {name: value for name, value in claims.items() if value is not None}
    assert found.extra == extra


@pytest.mark.parametrize(
    ("said", "mode"),
    [
        ("==============NVSMI CONF-COMPUTE LOG==============\n\n    CC State                   : ON\n", "on"),
        ("    CC State                   : OFF\n    Multi-GPU Mode             : None\n", "off"),
        ("CC status: ON\nDevTools Mode : ON\n", "devtools"),
        ("    CC State : ON\n    DevTools Mode : OFF\n", "on"),
        ("No devices were found\n", None),
        ("    CC State : PERHAPS\n", None),
    ],
)
def test_the_mode_is_read_from_the_drivers_words_and_never_guessed(said: str, mode: str | None) -> None:
    assert cc_mode_of(said) == mode


def test_steps_fall_into_their_phases() -> None:
    assert [WINDOW.phase(step) for step in range(8)] == [
        *("warmup", "bare", "bare", "settling", "recorded", "recorded", "recorded", "after")
    ]
    assert WINDOW.total_steps == 7


def test_without_recorded_steps_all_steps_after_warm_up_are_bare() -> None:
    window = Window(warmup_steps=1, bare_steps=2, recorded_steps=0)
    assert [window.phase(step) for step in range(5)] == ["warmup", *["bare"] * 4]
    assert window.total_steps == 3


def test_a_loop_with_fewer_bare_steps_than_were_asked_for_lands_nothing(tmp_path: Path) -> None:
    window = Window(warmup_steps=1, bare_steps=8, recorded_steps=0)
    recording = record(tmp_path / "landing", "run-1", window=window).__enter__()
    for _ in range(3):
        recording.step()
    with pytest.raises(RecordingRefused, match="ended after 3 steps, 2 of them after warm-up, and 8 were asked for"):
        recording.__exit__(None, None, None)
    assert list((tmp_path / "landing").iterdir()) == []


def test_host_boot_and_process_are_told_without_naming_the_machine() -> None:
    found = identify()
    assert found == {**identify(), "boot_age_s": found["boot_age_s"]}
    assert found["process_id"] == os.getpid()
    started = datetime.fromisoformat(str(found["process_started_at"]))
    assert timedelta(0) < datetime.now(UTC) - started < timedelta(hours=6)
    assert platform.node() not in str(found)


def test_every_sealed_run_is_planned_after_a_baseline_of_its_own_bucket_cap() -> None:
    found = plan_configurations(
        ["a", "b"], [1, 2], ["native", "plain", "sealed"], 2, ["chains=2+direct", "bucket_cap_mib=4"], ["b"], [2]
    )
    ids = [item.run_id for item in found]
    assert len({*ids}) == len(ids) == 2 * 2 * 5 + 3
    for place, item in enumerate(found):
        if item.mode == "sealed":
            assert item.baseline in ids[:place]
            baseline = found[ids.index(item.baseline)]
            assert baseline.ring.get("bucket_cap_mib") == item.ring.get("bucket_cap_mib")
        if item.repeat_of:
            assert item.repeat_of in ids[:place]


def test_a_variant_that_is_none_is_refused() -> None:
    assert settings_of("chains=4+pipelined+direct") == {"chains": 4, "pipelined": True, "direct": True}
    with pytest.raises(CollectorError, match="expected chains=K, pipelined, direct or bucket_cap_mib=M"):
        settings_of("chains=4+pipelines")
