"""Lines of a run's own code, from a recording with Python frames to what `teetotal what-if` says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner
from rich.console import Console

from assets.build import gold, silver
from assets.build.catalogue import list_required
from assets.build.tiers import select_tables
from gold import source_lines
from lake.engines import engine
from pipelines.cli.main import main
from pipelines.cli.source_lines import REMEDIES, print_source_lines, read_lines
from tests.conftest import LandFiles

if TYPE_CHECKING:
    from lake.store import Lake

# Two steps of a training loop on an H200 with `with_stack=True`, without its operators:
#  7 def fetch(batch): …  x.to("cuda"), y.to("cuda")     10 def read_loss(loss): … loss.item()
# 12 def train_step(batch): … torch.cuda.synchronize() …
RECORDING = Path(__file__).parents[1] / "gold" / "recorded_stacks" / "mlp-r0.json.gz"
READ = select_tables(
    list_required(["gold.source_lines", "gold.time_breakdown", "gold.step_times", "gold.exposure", "silver.throughput"])
)


@pytest.fixture(scope="module")
def stacked(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    land_files = LandFiles.open(tmp_path_factory.mktemp("stacks"))
    land_files({"rank0.json.gz": RECORDING.read_bytes()}, "mlp", 'regime = "cc_off"\nworld_size = 1\n')
    polars = engine("polars")
    silver.materialise(land_files.lake, "mlp", polars, READ["silver"])
    gold.materialise(land_files.lake, "mlp", polars, READ["gold"])
    return land_files.lake


def list_revealed(lake: Lake) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["operation"], row["line"]): row for row in read_lines(lake, "mlp", reveal=True)}


def test_a_recording_names_the_functions_that_copy_wait_and_launch(stacked: Lake) -> None:
    found = list_revealed(stacked)
    copied = found["pageable_copy", "train.py(7): fetch"]
    assert (copied["calls_count"], copied["payload_bytes"], copied["evidence"]) == (4, 2 * (131_072 + 512), "measured")
    waited = found["synchronisation", "train.py(12): train_step"]
    assert waited["calls_count"] == 2, "torch.cuda.synchronize() is of the line that asks for it"
    assert found["synchronisation", "train.py(7): fetch"]["calls_count"] == 4
    assert ("synchronisation", "train.py(10): read_loss") in found
    assert max(found, key=lambda name: found[name]["calls_count"]) == ("launch", "train.py(12): train_step")
    lines = stacked.scan(source_lines.TABLE).collect()
    shares = lines.group_by("operation").agg(pl.col("share_fraction").sum())["share_fraction"]
    assert all(0 < share <= 1 + 1e-9 for share in shares)


def test_lines_are_sealed_until_they_are_revealed(stacked: Lake) -> None:
    rows = read_lines(stacked, "mlp", reveal=False)
    assert all(row["line"].startswith("sealed:1:") for row in rows)
    console = Console(record=True, width=200)
    print_source_lines(rows, console)
    text = console.export_text()
    assert "train.py" not in text
    assert "--reveal opens them" in text
    for table in ("gold", "silver"):
        files = (stacked.place.directory / table).rglob("*.parquet")
        assert not any(b"train.py" in file.read_bytes() for file in files)


def test_show_has_the_lines_beside_what_points_at_them_where_they_are_revealed(stacked: Lake) -> None:
    words = ["--lake", str(stacked.place), "show", "gold.source_lines", "--format", "json"]
    sealed, opened = (
        json.loads(CliRunner().invoke(main, [*words, *more], catch_exceptions=False).stdout)
        for more in ([], ["--reveal"])
    )
    assert [{name: row[name] for name in row if name != "label"} for row in opened] == sealed
    assert "train.py(7): fetch" in {row["label"] for row in opened}


def test_what_if_says_the_lines_and_what_to_change_beside_its_answers(stacked: Lake) -> None:
    words = ["--lake", str(stacked.place), "what-if", "mlp", "--set", "cuda_graphs=true", "--reveal"]
    done = CliRunner().invoke(main, words, catch_exceptions=False, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.stderr
    assert "cuda_graphs=true" in done.stdout
    assert "train.py(7): fetch" in done.stdout
    assert all(remedy in " ".join(done.stdout.split()) for remedy in REMEDIES.values())
    assert "measured" in done.stdout


def test_a_run_without_python_frames_says_nothing_of_lines() -> None:
    console = Console(record=True)
    print_source_lines([], console)
    assert not console.export_text()
