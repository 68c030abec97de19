"""`teetotal release`: paid before it is drawn, in every form with its noise, refused when the budget is spent."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
import statistics
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from gold import step_overhead
from gold.private_statistics import GROUPINGS, MeasuredRun, bound_tenants
from lake.privacy_ledger import FILE_NAME
from pipelines.cli import release
from pipelines.cli.main import main
from silver import runs
from tests.support.traces import GOOD

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from lake.store import Lake
    from tests.conftest import LandFiles

RUNS = [
    MeasuredRun(f"run-{n}", f"tenant-{n % 200}", "hopper_spt_cc", "H200", 10**9, {"slowdown": 1.2, "overhead": 30.0})
    for n in range(400)
]


@pytest.fixture
def home(land_files: LandFiles, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake that holds something, and measured runs of many tenants."""
    land_files({"good.json": GOOD})
    monkeypatch.setattr(release, "read_runs", lambda _: RUNS)
    return land_files.lake.place.directory.parent


def teetotal(home: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["--lake", str(home / "lake"), "release", *words])


def test_a_release_says_what_it_rests_on_and_what_each_number_cost(home: Path) -> None:
    made = json.loads(teetotal(home, "--epsilon", "1", "--budget", "2", "--format", "json").stdout)
    assert (made["epsilon"], made["budget"], made["budget_left"], made["delta"]) == ("1", "2", "1", "0")
    assert made["unit_of_privacy"].startswith("one tenant: all measured overheads of one owner in run.toml")
    assert made["opendp_features"] == ["contrib"]
    numbers = made["numbers"]
    assert {row["regime"] for row in numbers} == set(GROUPINGS["regime"])
    paid = {(row["metric"], row["noise_scale"]): row["epsilon"] for row in numbers}
    assert sum(paid.values()) == pytest.approx(1)
    counted = {row["regime"]: row for row in numbers if (row["metric"], row["statistic"]) == ("slowdown", "count")}
    assert counted["hopper_spt_cc"]["noise_scale"] == pytest.approx(4 / 0.1)
    assert abs(counted["hopper_spt_cc"]["value"] - 400) < 20 * 40
    assert all(isinstance(row["value"], int | float | None) for row in numbers)


def test_a_spent_budget_lets_nothing_more_out(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "release.csv"
    first = teetotal(home, "--epsilon", "0.7", "--budget", "1", "--format", "csv", "--out", str(out))
    assert first.output == f"{out}: release 1, 0.3 of 1 left\n"
    rows = list(csv.DictReader(line for line in out.read_text("utf-8").splitlines() if not line.startswith("#")))
    assert len(rows) == len(GROUPINGS["regime"]) * 2 * 5
    before = (home / FILE_NAME).read_bytes()
    second = teetotal(home, "--epsilon", "0.4")
    assert second.exit_code == 2
    assert "the budget is spent: 0.7 of 1 are, and this release would cost 0.4" in second.output
    assert "ask for at most 0.3" in second.output
    assert (home / FILE_NAME).read_bytes() == before
    third = teetotal(home, "--epsilon", "0.3")
    assert "release 2: epsilon 0.3, 0 of 1 left" in third.output
    assert "unit of privacy: one tenant" in third.output


def test_what_goes_wrong_before_it_is_paid_costs_nothing(home: Path) -> None:
    wrong = [
        teetotal(home, "--epsilon", "1"),
        teetotal(home, "--epsilon", "much", "--budget", "2"),
        teetotal(home, "--epsilon", "1", "--budget", "2", "--by", "owner"),
        teetotal(home, "--epsilon", "1", "--budget", "2", "--metrics", "slowdwn"),
        teetotal(home, "--epsilon", "1", "--budget", "2", "--out", str(home / "nowhere" / "file")),
    ]
    assert [result.exit_code for result in wrong] == [2, 1, 1, 1, 2]
    assert not (home / FILE_NAME).exists()


def test_noise_that_cannot_be_drawn_was_paid_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(release, "release_statistics", fail)
    teetotal(home, "--epsilon", "1", "--budget", "2")
    assert json.loads((home / FILE_NAME).read_text("utf-8"))["releases"][0]["epsilon_millionths"] == 1_000_000


def test_without_opendp_the_next_step_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    said = teetotal(home, "--epsilon", "1", "--budget", "2")
    assert said.exit_code == 1
    assert "`release` needs OpenDP, which is not installed" in said.output
    assert "pip install 'teetotal[release]'" in said.output
    assert not (home / FILE_NAME).exists()


def test_the_noise_is_that_of_its_price() -> None:
    noise = release.load_noise()
    found, scale = noise([0] * 20_000, 4, 0.5)
    assert scale == pytest.approx(8)
    assert statistics.fmean(map(abs, found)) == pytest.approx(8, rel=0.1)
    assert noise([0] * 50, 4, 0.5)[0] != noise([0] * 50, 4, 0.5)[0]


def test_a_pair_of_several_owners_is_nobodys_and_left_out() -> None:
    facts = {"gpu": "H100", "parameters_count": 7, "repeat_of": None}
    known = [
        {**facts, "run_id": run_id, "owner": owner}
        for run_id, owner in {
            "a": "ada",
            "a0": "ada",
            "b": "bob",
            "c": None,
            "d": None,
            "c0": None,
            "e": "eve",
            "e0": "eve",
        }.items()
    ]
    known.append({**facts, "run_id": "e1", "owner": "bob", "repeat_of": "e0"})
    pairs = {"a": "a0", "b": "a0", "c": "c0", "d": "c0", "e": "e0"}
    answer = {"regime": "hopper_ppcie", "baseline_regime": "cc_off", "slowdown_ratio": 1.5, "overhead_ns": 3_000_000}
    found = release.choose_runs(known, [{**answer, "run_id": a, "baseline_run_id": b} for a, b in pairs.items()])
    assert {run.run_id: run.tenant for run in found} == {"a": "owner ada", "c": "baseline c0", "d": "baseline c0"}
    assert found[0].values == {"slowdown": 1.5, "overhead": 3.0}


def test_runs_are_those_that_were_measured_against_no_tee(recorded_lake: Lake) -> None:
    found = release.read_runs(recorded_lake)
    assert found
    assert {run.regime for run in found} == {"sw_per_hop_aesgcm"}
    assert all(run.gpu and run.parameters_count and 0.5 < run.values["slowdown"] < 10 for run in found)
    assert len({run.run_id for run in found}) == len(found)


def test_a_release_of_recorded_runs_by_the_class_of_their_model_is_near_what_was_measured(
    recorded_lake: Lake, tmp_path: Path
) -> None:
    shared = recorded_lake.place.directory
    for table in (runs.TABLE, step_overhead.TABLE):  # a copy, because the ledger is kept beside the lake
        path = f"{table.tier}/{table.name}"
        shutil.copytree(shared / path, tmp_path / "lake" / path)
    shutil.copy(shared.parent / "keyring.json", tmp_path)
    words = (
        "--epsilon",
        "100",
        "--budget",
        "100",
        "--by",
        "model_class,gpu",
        "--metrics",
        "slowdown",
        "--runs-per-tenant",
        "1",
    )
    done = teetotal(tmp_path, *words, "--format", "json")
    assert done.exit_code == 0, done.output
    assert (tmp_path / FILE_NAME).is_file()
    made = json.loads(done.stdout)
    assert made["grouped_by"] == ["model_class", "gpu"]
    measured = bound_tenants(release.read_runs(recorded_lake), 1)
    groups = {run.group(("model_class", "gpu")) for run in measured}
    assert groups == {("below 100 M", "H200"), ("100 M to 1 B", "H200")}, "resnet50, and bert and gpt2"
    told = {(row["model_class"], row["gpu"], row["statistic"]): row for row in made["numbers"]}
    assert {key[:2] for key in told} == set(itertools.product(GROUPINGS["model_class"], GROUPINGS["gpu"]))
    for (model_class, gpu, statistic), row in told.items():
        values = [run.values["slowdown"] for run in measured if run.group(("model_class", "gpu")) == (model_class, gpu)]
        if statistic == "count":
            assert abs(row["value"] - len(values)) < 20 * row["noise_scale"] == 1, "one in a hundred million is not"
    for group in groups:
        values = [run.values["slowdown"] for run in measured if run.group(("model_class", "gpu")) == group]
        assert told[group[0], group[1], "mean"]["value"] == pytest.approx(statistics.fmean(values), abs=0.5)
    again = teetotal(tmp_path, "--epsilon", "0.1")
    assert again.exit_code == 2
    assert "the budget is spent" in again.output
