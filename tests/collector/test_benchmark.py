"""What the benchmark records on a machine without a GPU lands, conforms and yields pairs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

from assets.build.catalogue import TABLES, list_required
from assets.build.tiers import select_tables
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from tests.support.build_runs import build_runs, make_own_tables
from tests.support.campaigns import is_soak
from tests.support.ranks import ROOT

# Gradients of four megabytes under a cap of one: four buckets or five, parts of a quarter of a megabyte.
BENCH = (
    *("bench", "--models", "tiny", "--worlds", "3", "--modes", "plain,sealed", "--repeats", "1"),
    *("--variants", "chains=2+pipelined+direct,bucket_cap_mib=1+pipelined"),
    *("--warmup", "1", "--bare", "2", "--steps", "2", "--hop-seconds", "0.1", "--device", "cpu"),
)
PLAIN, SEALED, AGAIN = "tiny-plain-w3", "tiny-sealed-w3", "tiny-plain-w3-again1"
DIRECT = "tiny-sealed-w3-chains2-pipelined-direct"
CAPPED = "tiny-sealed-w3-bucket-cap-mib1-pipelined"
CAPPED_BASELINE = "tiny-plain-w3-bucket-cap-mib1-pipelined"
# Tables that the tests below read, those of the landing aside. All others are made of one run, to see that they can be.
READ = (
    *("silver.runs", "silver.throughput", "silver.crossings", "gold.time_breakdown"),
    *("gold.pairs", "gold.step_overhead", "gold.throughput_overhead"),
)


@dataclass(frozen=True)
class Recorded:
    """The benchmark's own words, and the lake that its recordings made."""

    bench: dict[str, Any]
    printed: str
    lake: Lake

    def rows(self, table: str, run_id: str) -> pl.DataFrame:
        """A table's rows of one run."""
        return self.lake.scan(TABLES[table], [run_id]).collect()


@pytest.fixture(scope="module")
def benchmark_result(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    home = tmp_path_factory.mktemp("bench")
    words = [sys.executable, "-m", "collector", *BENCH, "--out", str(home)]
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lake = Lake(Location.of(home / "lake"), KeyringFile(home / "keyring.json", is_made_on_first_use=True))
    zone = LandingZone(Location.of(home / "landing"))
    runs = sorted(path.name for path in (home / "landing").iterdir())
    make_own_tables(lake, zone, runs if is_soak() else [SEALED])
    build_runs(lake, zone, runs, tables=select_tables(list_required(READ)))
    return Recorded(json.loads((home / "bench.json").read_text("utf-8")), done.stdout, lake)


def test_the_benchmark_records_every_configuration_and_prints_its_tables(benchmark_result: Recorded) -> None:
    assert benchmark_result.bench["faults"] == {}
    assert {*benchmark_result.bench["results"]} == {PLAIN, SEALED, AGAIN, DIRECT, CAPPED, CAPPED_BASELINE}
    assert "| tiny | 3 | - |" in benchmark_result.printed
    assert "no run was inside a TEE" in benchmark_result.printed
    sealed = {name for name, found in benchmark_result.bench["results"].items() if "hops" in found}
    assert sealed == {SEALED, DIRECT, CAPPED}
    assert all(f"\n| {name} | " in benchmark_result.printed for name in sealed)


def test_every_file_that_the_collector_writes_is_read(benchmark_result: Recorded) -> None:
    files = benchmark_result.rows("bronze.source_files", SEALED).select("file_name", "outcome").rows()
    names = {f"steps-r{rank}.csv" for rank in range(3)} | {f"{SEALED}-r{rank}.json.gz" for rank in range(3)}
    assert {name for name, _ in files} >= names
    assert {outcome for _, outcome in files} == {"kept"}


def test_steps_without_the_profiler_are_compared_by_the_loops_own_clock(benchmark_result: Recorded) -> None:
    (overhead,) = benchmark_result.rows("gold.throughput_overhead", SEALED).to_dicts()
    assert (overhead["period"], overhead["periods_count"], overhead["compared_by"]) == ("step", 2, "duration")
    phases = benchmark_result.rows("bronze.training_log", SEALED).group_by("phase").len().sort("phase").rows()
    assert phases == [("bare", 6), ("recorded", 6), ("settling", 3), ("warmup", 3)]
    kept = benchmark_result.rows("silver.throughput", SEALED).filter(~pl.col("is_warmup"))
    assert kept.group_by("rank").len().sort("rank").rows() == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.parametrize("run_id", [DIRECT, CAPPED, CAPPED_BASELINE])
def test_buckets_are_reduced_on_a_thread_that_runs_no_backward(benchmark_result: Recorded, run_id: str) -> None:
    for _, events in read_functions(benchmark_result, run_id).group_by("rank"):
        hooks, backward = split_functions(events)
        assert set(hooks["thread_id"]).isdisjoint(backward["thread_id"])


def test_backward_goes_on_while_the_ring_reduces_a_bucket(benchmark_result: Recorded) -> None:
    # Of any rank: on a busy machine, one rank's buckets may have gone around before its next function began.
    ends = pl.col("ts_ns") + pl.col("duration_ns")
    beside = 0
    for run_id in (DIRECT, CAPPED, CAPPED_BASELINE):
        for _, events in read_functions(benchmark_result, run_id).group_by("rank"):
            hooks, backward = split_functions(events)
            began = hooks.join_where(backward, pl.col("ts_ns") < pl.col("ts_ns_right"), pl.col("ts_ns_right") < ends)
            beside += began.height
    assert beside > 0, "no function of backward began while a bucket was on its way"


def read_functions(result: Recorded, run_id: str) -> pl.DataFrame:
    """What the ranks of one run recorded as intervals."""
    return result.rows("bronze.trace_events", run_id).filter(pl.col("phase") == "X")


def split_functions(events: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A rank's reductions of buckets, and its functions of backward."""
    hooks = events.filter(pl.col("name").str.starts_with("tee::all_reduce#"))
    backward = events.filter(pl.col("name").str.starts_with("autograd::engine::evaluate_function"))
    assert not hooks.is_empty()
    assert not backward.is_empty()
    return hooks, backward


def test_a_sealed_run_and_its_baseline_are_a_pair_that_knows_the_noise_of_its_repeats(
    benchmark_result: Recorded,
) -> None:
    (pair,) = benchmark_result.rows("gold.pairs", SEALED).to_dicts()
    assert (pair["baseline_run_id"], pair["paired_by"], pair["caveat"], pair["reason"]) == (
        PLAIN,
        "manifest",
        None,
        None,
    )
    (overhead,) = benchmark_result.rows("gold.step_overhead", SEALED).to_dicts()
    assert overhead["slowdown_ratio"] > 0
    assert (overhead["runs_count"], overhead["baseline_runs_count"]) == (1, 2)
    assert overhead["run_noise_fraction"] is not None
    assert overhead["verdict_class"] == "inconclusive"


@pytest.mark.parametrize(("run_id", "baseline"), [(DIRECT, PLAIN), (CAPPED, CAPPED_BASELINE)])
def test_variants_pair_with_the_plain_ring_of_the_same_bucket_cap(
    benchmark_result: Recorded, run_id: str, baseline: str
) -> None:
    (pair,) = benchmark_result.rows("gold.pairs", run_id).to_dicts()
    assert (pair["baseline_run_id"], pair["caveat"]) == (baseline, None)


@pytest.mark.parametrize("run_id", [SEALED, DIRECT, CAPPED])
def test_every_hop_of_a_sealed_run_is_seen_sealed(benchmark_result: Recorded, run_id: str) -> None:
    found = benchmark_result.rows("silver.crossings", run_id)
    hops = found.filter(found["path"] == "hook")
    assert len(hops) > 0
    assert hops["violation"].drop_nulls().to_list() == []
    assert set(hops["sealed_by"]) == {"software_hook"}
    assert set(hops["seal_evidence"]) == {"measured"}
    assert hops["sealed_message_count"].to_list() == hops["message_count"].to_list()
    assert min(hops["seal_ns"]) > 0
    assert min(hops["open_ns"]) > 0
    (said,) = benchmark_result.rows("silver.runs", run_id).to_dicts()
    assert (said["agreement"], said["contradictions"], said["conflicts"]) == ("agrees", None, None)


@pytest.mark.parametrize("run_id", [PLAIN, SEALED, DIRECT, CAPPED])
def test_all_ranks_together_send_each_bucket_around_however_it_is_cut(benchmark_result: Recorded, run_id: str) -> None:
    """Four thirds of the bucket a rank, by the hops' own sizes."""
    found = benchmark_result.rows("silver.crossings", run_id)
    hops = found.filter(found["path"] == "hook")
    assert 3 * hops["payload_bytes"].sum() == 4 * hops["buffer_bytes"].sum()
    assert set(hops["size_evidence"]) == {"measured"}


def test_the_plain_baseline_seals_nothing(benchmark_result: Recorded) -> None:
    found = benchmark_result.rows("silver.crossings", PLAIN)
    assert set(found.filter(found["path"] == "hook")["sealed_by"]) == {"none"}
    assert benchmark_result.rows("gold.time_breakdown", PLAIN)["crypto_whole_ns"].sum() == 0


def test_the_plain_ring_records_a_copy_wherever_the_sealed_one_seals_or_opens_to_its_place(
    benchmark_result: Recorded,
) -> None:
    """A hop has the same spans in both modes; of what is opened, the plain ring adds the first half where it lies."""
    spans = {}
    for run_id in (PLAIN, SEALED):
        events = benchmark_result.rows("bronze.trace_events", run_id).filter(pl.col("phase") == "X")
        named = events.with_columns(pl.col("name").str.extract("^tee::([a-z_]+)#").alias("span"))
        sized = named.with_columns(pl.col("name").str.extract("#([0-9]+)$").cast(pl.Int64).alias("bytes"))
        counted = sized.drop_nulls("span").group_by("span").agg(pl.len(), pl.col("bytes").sum())
        spans[run_id] = {name: (count, size) for name, count, size in counted.rows()}
    plain, sealed = spans[PLAIN], spans[SEALED]
    assert plain["send"] == sealed["send"]
    assert plain["copy_out"] == sealed["seal"]
    assert [2 * value for value in plain["copy_in"]] == [*sealed["open"]]
    assert {"seal", "open"}.isdisjoint(plain)
    assert {"copy_out", "copy_in"}.isdisjoint(sealed)


def test_the_time_that_sealing_took_is_in_the_breakdown_of_every_step(benchmark_result: Recorded) -> None:
    found = benchmark_result.rows("gold.time_breakdown", SEALED)
    assert len(found) == 3 * 2
    assert min(found["crypto_whole_ns"]) > 0


def test_the_manifest_says_what_recording_itself_cost(benchmark_result: Recorded) -> None:
    (said,) = benchmark_result.rows("silver.runs", SEALED).to_dicts()
    assert said["recording_slowdown_ratio"] > 0
    assert (said["model"], said["parameters_count"], said["world_size"]) == ("tiny", 1055754, 3)
    assert (said["regime"], said["backend"], said["bucket_cap_mib"]) == ("sw_per_hop_aesgcm", "gloo", 25.0)
