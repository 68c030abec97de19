"""Work is counted, not timed: commits, files and bytes of one run, whatever the machine does beside it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assets.build import bronze, chunking, comparisons, gold, silver
from assets.build.catalogue import list_required
from assets.build.tiers import TIERS, select_tables
from benchmarks.measuring import ROOT, tiers
from bronze import trace_events
from bronze.limits import Limits
from gold import pairs
from lake.engines import PolarsEngine, engine
from lake.errors import DataDamaged
from lake.landing_zone import LandingZone
from lake.store import Lake
from pipelines.settings import settings
from silver import spans
from tests.support.build_runs import build_runs
from tests.support.campaigns import is_soak, pick_size
from tests.support.small_runs import OFF, TEE, trace

if TYPE_CHECKING:
    import pyarrow as pa

    from lake.frames import Frame
    from lake.tables import Table

RUN = "resnet50-native-w2"


class Measured:
    """A lake on disk, and what a process of its own did to bring a run into it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        places = settings(str(home / "lake"), str(home / "landing"), environment={})
        self.lake, self.zone = Lake(places.lake, places.keyring), LandingZone(places.landing)

    def land(self, run_id: str, recording: Path | None = None, manifest: str = OFF) -> None:
        """A bundled recording, or a tiny run."""
        folder = self.home / "landing" / run_id
        if recording is not None:
            shutil.copytree(recording, folder)
            return
        folder.mkdir(parents=True)
        (folder / "rank0.json").write_bytes(trace(100))
        (folder / "run.toml").write_text(manifest)

    def tier(self, tier: str, run_id: str) -> dict[str, int]:
        """Bytes that one tier of a run asked for and wrote, in a process of its own."""
        answers: dict[str, int] = tiers(self.home, tier, run_id=run_id).answers
        return answers

    def files(self, table: Table, run_id: str) -> list[Path]:
        """The data files of a run."""
        return sorted((self.home / "lake" / table.path / f"run_id={run_id}").rglob("*.parquet"))

    def commits(self, table: Table) -> int:
        """How often a table was committed to."""
        return len(list((self.home / "lake" / table.path / "_delta_log").glob("*.json")))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Measured, dict[str, dict[str, int]]]:
    """One bundled run, brought in tier by tier."""
    made = Measured(tmp_path_factory.mktemp("work"))
    made.land(RUN, ROOT / "samples" / RUN)
    return made, {tier: made.tier(tier, RUN) for tier in TIERS}


# A table's first commit makes it.
ONCE = {2}


def test_a_run_commits_to_every_table_once(one: tuple[Measured, dict[str, dict[str, int]]]) -> None:
    made, _ = one
    commits = {table.full_name: made.commits(table) for tables in TIERS.values() for table in tables}
    assert set(commits.values()) == ONCE, commits


def test_what_was_brought_in_already_is_not_committed_again(one: tuple[Measured, dict[str, dict[str, int]]]) -> None:
    made, _ = one
    bronze.materialise(made.lake, made.zone, RUN, Limits())
    silver.materialise(made.lake, RUN, engine("polars"))
    gold.materialise(made.lake, RUN, engine("polars"))
    commits = {table.full_name: made.commits(table) for tables in TIERS.values() for table in tables}
    assert set(commits.values()) == ONCE, commits


def test_a_rank_is_one_file_of_events_and_one_of_spans(one: tuple[Measured, dict[str, dict[str, int]]]) -> None:
    made, _ = one
    assert [len(made.files(table, RUN)) for table in (trace_events.TABLE, spans.TABLE)] == [1, 1]


def test_a_tier_writes_its_tables_and_little_besides(one: tuple[Measured, dict[str, dict[str, int]]]) -> None:
    made, moved = one
    for tier, tables in TIERS.items():
        data = sum(path.stat().st_size for table in tables for path in made.files(table, RUN))
        logs = sum(
            path.stat().st_size for table in tables for path in (made.home / "lake" / table.path).rglob("*.json")
        )
        # The landed file is set aside once more while it is read.
        landed = sum(path.stat().st_size for path in (made.home / "landing" / RUN).iterdir())
        assert moved[tier]["written_bytes"] < 1.5 * (data + logs) + (landed if tier == "bronze" else 0), tier


def test_no_plan_of_silver_reads_a_large_table_more_than_three_times(
    one: tuple[Measured, dict[str, dict[str, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that says what it shares reads it once; before plans said so, crossings read the spans 19 times."""
    made, _ = one
    found: dict[str, int] = {}
    # The same plans, over what is in files; those of small runs are kept, over whatever is at hand.
    monkeypatch.setattr(chunking, "is_small", lambda _: False)

    class Counting(PolarsEngine):
        def rows(self, frame: Frame, *, is_small: bool = False, is_lean: bool = False) -> pa.Table:
            plan = frame.to_native().explain()
            for table in (trace_events.TABLE, spans.TABLE):
                times = len(re.findall(rf"Parquet SCAN \[[^\]]*/{table.path}/", plan))
                found[table.name] = max(found.get(table.name, 0), times)
            return super().rows(frame, is_small=is_small, is_lean=is_lean)

    silver.materialise(made.lake, RUN, Counting())
    assert found == {"trace_events": 3, "spans": 3}


def test_one_more_run_and_its_pair_read_no_file_of_other_runs(tmp_path: Path) -> None:
    made = Measured(tmp_path)
    others = [f"run-{number}" for number in range(pick_size(2, 4))]
    for run_id in (*others, "baseline"):
        made.land(run_id, manifest=OFF.replace('"m"', '"other"') if run_id in others else OFF)
    made.land("other-tee", manifest=TEE.replace('"m"', '"other"'))
    compared = [table.full_name for table in (*gold.PAIR_TABLES, *comparisons.COMPARISON_TABLES)]
    earlier = TIERS if is_soak() else select_tables(list_required(compared))
    build_runs(made.lake, made.zone, [*others, "baseline", "other-tee"], tables=earlier)
    for path in (made.home / "lake").rglob("*.parquet"):
        if "run_id=baseline" not in path.parts:
            path.unlink()
    made.land("one-more", manifest=TEE)
    build_runs(made.lake, made.zone, ["one-more"])
    (pair,) = made.lake.scan(pairs.TABLE, ["one-more"]).collect().to_dicts()
    assert pair["baseline_run_id"] == "baseline"
    with pytest.raises(DataDamaged, match="is missing"):  # the others are really gone
        made.lake.scan(spans.TABLE, others).collect()
