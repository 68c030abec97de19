"""Runs that have nothing but logs and readings, from their files to the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assets.build import gold, silver
from assets.build.catalogue import table as declared
from assets.checks.expectations import check_tables
from gold import pairs, step_overhead, throughput_overhead
from lake.engines import engine
from pipelines.cli.verdicts import format_verdicts
from tests.support.build_runs import build_comparisons
from tests.support.campaigns import pick_engines

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.conftest import LandFiles

OFF = 'regime = "cc_off"\nmodel = "m"\n'
TEE = 'regime = "hopper_spt_cc"\ncc_mode = "on"\nmodel = "m"\n'
QUERY = b"==============NVSMI CONF-COMPUTE LOG==============\n\n    CC State                   : ON\n"


def table(*rates: float) -> bytes:
    lines = [f"{1_700_000_000 + 10 * at}.5,{at + 1},{rate},0.5,64\n" for at, rate in enumerate(rates)]
    return ("Timestamps,Epoch,Thput (img/s),Epoch Loss,Bsize\n" + "".join(lines)).encode()


JOB = b':::MLLOG {"key": "epoch_start", "time_ms": 1}\nnode:1:1 [0] NCCL INFO CC Off, Multi-GPU CC Off\n'


@pytest.mark.parametrize(
    ("name", "files"),
    [("bronze.training_log", {"log.csv": table(90, 100)}), ("bronze.collective_records", {"job.log": JOB})],
)
def test_a_file_whose_rows_are_all_lost_breaks_a_promise(
    lake: Lake, land_files: LandFiles, name: str, files: dict[str, bytes]
) -> None:
    landed, sources = land_files(files).files["rows_count"].item(), declared("bronze.source_files")
    assert [each for each in check_tables(lake, sources, ["run-1"]) if not each.is_held] == []
    lost = declared(name)
    lake.replace(lost, "run-1", lost.arrow_schema.empty_table(), "0" * 64)
    (broken,) = (each for each in check_tables(lake, sources, ["run-1"]) if not each.is_held)
    assert (broken.check.name, broken.broken_count) == ("rows_are_in_the_tables", 1)
    assert broken.samples[0]["rows_count"] == landed == 2
    assert broken.samples[0]["found_count"] == (0 if name == "bronze.training_log" else 1)


@pytest.mark.parametrize("name", pick_engines())
def test_a_log_and_a_query_give_an_overhead_and_say_what_is_unobservable(
    lake: Lake, land_files: LandFiles, name: str
) -> None:
    for run_id, manifest, rates in (("off", OFF, (90, 100, 101, 99)), ("tee", TEE, (70, 80, 81, 79))):
        land_files({"log.csv": table(*rates), "cc.txt": QUERY if run_id == "tee" else b""}, run_id, manifest)
        silver.materialise(lake, run_id, engine(name))
        gold.materialise(lake, run_id, engine(name))
    build_comparisons(lake)
    assert lake.scan(pairs.TABLE).select("run_id", "baseline_run_id").collect().rows() == [("tee", "off")]
    (row,) = lake.scan(throughput_overhead.TABLE).collect().to_dicts()
    times = [sum(1 / rate for rate in rates) for rates in ((70, 80, 81, 79), (90, 100, 101, 99))]
    assert (row["slowdown_ratio"], row["periods_count"]) == (pytest.approx(times[0] / times[1]), 4)
    assert (row["verdict_class"], row["evidence"]) == ("inconclusive", "measured")
    assert "unobservable" in row["unobservable"]
    assert lake.scan(step_overhead.TABLE).select("verdict_class").collect().item() == "inconclusive"
    said = list(format_verdicts(lake, ["tee"]))
    assert said[1] == "tee (hopper_spt_cc) against off"
    assert said[2].startswith(
        "  by its training log: nothing can be concluded from one run per side: 1.26x, no interval; "
    )
    assert said[3:] == [f"  {row['unobservable']}"]
