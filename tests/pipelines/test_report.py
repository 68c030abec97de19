"""`teetotal report` and `show --plot` on the bundled recordings."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import polars as pl
import pytest

from assets.build.step_timelines import read_timeline
from bronze import source_files
from gold import pairs, step_overhead, time_breakdown
from lake.errors import EvidenceRejected, SourceUnavailable
from pipelines.cli import report
from silver import runs
from tests.support.web_interface import COMMAND, ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from lake.store import Lake

SECTIONS = (
    *("summary", "verdicts", "slowdown", "overhead", "closely", "kernels", "collectives", "cheaper"),
    *("time", "overlap", "analyses", "operations"),
    *("sealing", "rejected", "availability", "published", "provenance"),
)


@pytest.fixture(scope="module")
def html(recorded_lake: Lake) -> str:
    """The page of all recordings."""
    return report.build_page(recorded_lake).html


def test_the_page_of_the_recordings_has_every_section_and_run_and_is_under_five_megabytes(
    recorded_lake: Lake, html: str
) -> None:
    assert tuple(re.findall(r'<section id="(\w+)"', html)) == SECTIONS
    for run_id in recorded_lake.snapshot(runs.TABLE).run_ids:
        assert run_id in html
    assert len(html.encode()) < 5_000_000


def test_the_moments_of_a_step_sum_to_it_and_stay_near_its_parts(recorded_lake: Lake) -> None:
    rows = read_timeline(recorded_lake, "resnet50-sealed-w2")
    number = rows[0]["step_number"]
    cells = recorded_lake.scan(time_breakdown.TABLE, ["resnet50-sealed-w2"]).filter(step_number=number).collect()
    assert {row["rank"] for row in rows} == set(cells["rank"])
    for cell in cells.to_dicts():
        own = [row for row in rows if row["rank"] == cell["rank"]]
        sums = {
            row["part"]: sum(one["end_ns"] - one["begin_ns"] for one in own if one["part"] == row["part"])
            for row in own
        }
        assert sum(sums.values()) == pytest.approx(cell["duration_ns"], rel=1e-5)
        # A pixel goes to what took most of it, so a part may gain or lose a few percent of the step.
        assert all(abs(time - cell[f"{part}_ns"]) < 0.05 * cell["duration_ns"] for part, time in sums.items())


def test_every_verdict_of_the_lake_is_a_sentence_of_the_page(recorded_lake: Lake, html: str) -> None:
    baselines = recorded_lake.scan(pairs.TABLE).select("run_id", "baseline_run_id").drop_nulls().collect().rows()
    assert len(re.findall('<p class="verdict">', html)) == len(baselines)
    for run_id, baseline in baselines:
        assert f"{run_id} against {baseline}" in html


def test_sealed_columns_and_names_of_files_stay_out_of_it(recorded_lake: Lake, html: str) -> None:
    columns = [column.name for column in runs.TABLE.sealed]
    rows = recorded_lake.scan(runs.TABLE).select(columns).collect().to_dicts()
    sealed = {value for row in rows for value in row.values() if value is not None}
    names = recorded_lake.scan(source_files.TABLE).select("file_name").collect().to_series()
    digests = recorded_lake.scan(source_files.TABLE).select("source_sha256").drop_nulls().collect().to_series()
    assert len(sealed) > 0
    assert not [value for value in (*sealed, *names) if value in html]
    assert "sealed:1:" not in html
    assert all(digest in html for digest in digests)


def test_a_page_of_one_run_holds_it_and_its_baseline_alone(recorded_lake: Lake) -> None:
    run_id, baseline = (
        recorded_lake.scan(pairs.TABLE).select("run_id", "baseline_run_id").sort("run_id").collect().row(0)
    )
    made = report.build_page(recorded_lake, [run_id])
    assert made.runs == 2
    others = {*recorded_lake.snapshot(runs.TABLE).run_ids} - {run_id, baseline}
    assert not [other for other in others if f'data-run="{other}"' in made.html]


def test_a_run_that_is_not_there_is_named_with_the_nearest_that_is(recorded_lake: Lake) -> None:
    known = min(recorded_lake.snapshot(runs.TABLE).run_ids)
    with pytest.raises(EvidenceRejected, match=f"did you mean '{known}'"):
        report.build_page(recorded_lake, [f"{known}x"])


def test_a_file_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert report.write_page(out, "one") == 3
    report.write_page(out, "other")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("report.html", "other")]
    with pytest.raises(SourceUnavailable, match=r"nowhere/report\.html"):
        report.write_page(tmp_path / "nowhere" / "report.html", "text")
    (tmp_path / "taken").mkdir()
    with pytest.raises(SourceUnavailable):
        report.write_page(tmp_path / "taken", "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "taken"]


def run_command(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as a person calls it, without a terminal and without colours."""
    return subprocess.run(
        [*COMMAND, "--lake", str(place), *words],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        text=True,
        capture_output=True,
        check=False,
    )


def test_an_empty_lake_gives_a_page_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "lake" / "bronze" / "runs").mkdir(parents=True)
    done = run_command(tmp_path / "lake", "report", "--out", str(tmp_path / "report.html"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 runs, 0 figures" in done.stdout
    assert "There is no run in this lake yet" in (tmp_path / "report.html").read_text("utf-8")


def test_a_plot_is_plain_text_with_evidence_on_every_line(recorded_lake: Lake) -> None:
    place = recorded_lake.place.directory
    done = run_command(place, "show", "gold.step_overhead", "--plot")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    lines = [line for line in done.stdout.splitlines() if {"○", "●"} & set(line)]
    assert len(lines) == recorded_lake.scan(step_overhead.TABLE).select(pl.len()).collect().item() > 1
    # One run against three has an interval from other pairs' noise: it is modelled.
    assert [line.split()[0] for line in lines if not line.endswith("measured")] == ["resnet50-native-w2"]
    assert all(line.endswith(("measured", "modelled")) for line in lines)


def test_a_table_without_a_chart_says_which_have_one(recorded_lake: Lake) -> None:
    done = run_command(recorded_lake.place.directory, "show", "gold.pairs", "--plot")
    assert done.returncode == 2
    assert "gold.pairs has no chart to plot" in done.stderr
    assert "gold.overhead_breakdown" in done.stderr


def test_a_plot_takes_no_columns(recorded_lake: Lake) -> None:
    done = run_command(recorded_lake.place.directory, "show", "gold.step_overhead", "--plot", "--columns", "run_id")
    assert done.returncode == 2
    assert "--plot" in done.stderr


def test_help_imports_nothing_that_draws() -> None:
    asked = "import sys; from pipelines.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    done = subprocess.run(
        [
            COMMAND[0],
            "-c",
            f"{asked}print([name for name in ('altair', 'vl_convert', 'report') if name in sys.modules])",
        ],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
