"""One made-up run with a known number of every trap: each is caught by the rule that names it, and counted exactly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from assets.build import silver
from bronze import source_files
from lake import engines
from silver import collectives, crossings, event_rules, rejects, rule_counts, runs, spans, steps
from tests.conftest import LandFiles
from tests.support.campaigns import pick_engines
from tests.support.traces import trace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lake.snapshot import Written
    from lake.store import Lake
    from lake.tables import Table

PRIVATE = "alice asks: why is layer 7 slow?"
COPY, ALL_REDUCE, ALL_GATHER = "Memcpy DtoD (Managed -> Device)", "ncclKernel_AllReduce_RING_LL_Sum_float", "allgather"


def event(phase: str, category: str, name: str, start: float | None, length: float | None, **more: Any) -> str:
    """The text of one event; times in microseconds, arguments by their source names."""
    times = {key: value for key, value in (("ts", start), ("dur", length)) if value is not None}
    return json.dumps({"ph": phase, "cat": category, "name": name, "pid": 1, "tid": 1, **times, **more})


def span(category: str, name: str, start: float, length: float, **arguments: Any) -> str:
    """The text of a complete event; GPU work lies on the track of a stream."""
    track = {"pid": 0, "tid": 7} if category.lower() in {"kernel", "memcpy", "gpu_memcpy"} else {}
    return event("X", category, name, start, length, **track, args=arguments)


GATHERED = {"Collective name": ALL_GATHER, "In msg nelems": 10, "Out msg nelems": 20, "dtype": "Float", "Group size": 2}
NO_INTERVALS = [
    event("M", "", "process_name", 0, None, args={"name": "python"}),
    event("s", "ac2g", "ac2g", 1100, None, id=1),
    event("f", "ac2g", "ac2g", 1110, None, id=1, bp="e"),
    event("i", "", "Record Window End", 3999, None, s="g"),
    event("C", "", "GPU 0 memory", 1500, None, args={"bytes": 1}),
]
REJECTED = {
    event("Z", "cpu_op", "nobody knows this phase", 1001, 1): "unknown_phase",
    event("X", "cpu_op", "no end", 1002, None): "no_time",
    event("X", "cpu_op", "never stamped", 0, 1): "zero_timestamp",
    event("X", "kernel", "backwards", 1003, -0.5): "negative_duration",
    event("X", "kernel", "for ever", 1004, 1e13): "overflow",
}
TWICE = span("cpu_op", "aten::add", 1050, 2.5, **{"External id": 3})
KEPT = [
    span("user_annotation", "ProfilerStep#0", 1000, 1000),
    span("user_annotation", "ProfilerStep#1", 2000, 1000),
    span("user_annotation", "ProfilerStep#2", 3000, 1000),
    TWICE,
    TWICE,
    span("user_annotation", PRIVATE, 1055, 1),
    # Older profilers capitalise.
    span("Runtime", "cudaLaunchKernel", 1100, 4, correlation=1),
    span("Kernel", "an_old_kernel", 1110, 5, correlation=1, stream=7),
    span("Runtime", "cudaMemcpyAsync", 1120, 4, correlation=2),
    span("Memcpy", "Memcpy HtoD (Pageable -> Device)", 1130, 5, correlation=2, bytes=64),
    # It starts before the call that launched it.
    span("cuda_runtime", "cudaLaunchKernel", 1200, 4, correlation=3),
    span("kernel", "too_early", 1199.999, 5, correlation=3),
    span("kernel", "whose_launch_nobody_saw", 1300, 5, correlation=99),
    # CC makes a pinned copy look like one on the device, and its asynchronous call wait.
    span("cuda_driver", "cuMemcpyHtoDAsync_v2", 2100, 40, correlation=4),
    span("gpu_memcpy", COPY, 2110, 8, correlation=4, bytes=4096),
    # Managed on both sides: whichever way it went, CC hides it.
    span("cuda_runtime", "cudaMemcpyAsync", 2150, 40, correlation=7),
    span("gpu_memcpy", "Memcpy DtoD (Managed -> Managed)", 2160, 8, correlation=7, bytes=4096),
    span("cuda_runtime", "cudaLaunchKernel", 2200, 4, correlation=5),
    span("kernel", ALL_REDUCE, 2210, 20, correlation=5),
    # One collective, four times over, and the wait for it.
    span("cpu_op", "record_param_comms", 2300, 4, **GATHERED),
    span("user_annotation", "nccl:_all_gather_base", 2301, 4),
    span("cuda_runtime", "cudaLaunchKernelExC", 2302, 4, correlation=6),
    span("kernel", "ncclDevKernel_AllGather_RING_LL", 2310, 20, correlation=6, **GATHERED),
    span("gpu_user_annotation", "nccl:_all_gather_base", 2310, 20),
    span("cpu_op", "record_param_comms", 2340, 4, **{"Collective name": "wait", "dtype": "Byte", "Group size": 2}),
]
FILES = {
    "rank0.json": trace(
        *NO_INTERVALS, *REJECTED, *KEPT, before='"distributedInfo": {"rank": 0, "world_size": 2, "backend": "nccl"}'
    ),
    "rank1.json": trace(
        span("user_annotation", "ProfilerStep#0", 1000, 1000),
        span("cpu_op", "aten::add", 1050, 2),
        before='"distributedInfo": {"rank": 1, "world_size": 2, "backend": "nccl"}',
    ),
}
MANIFESTS = {
    "on": 'regime = "hopper_spt_cc"\ncc_mode = "on"\nwarmup_steps_count = 1\n',
    "devtools": 'regime = "hopper_spt_cc"\ncc_mode = "devtools"\n',
}
EXPECTED = {
    ("merged", "metadata"): 1,
    ("merged", "flow_arrow"): 2,
    ("merged", "mark"): 2,
    ("merged", "duplicate"): 1,
    **{("rejected", rule): 1 for rule in REJECTED.values()},
    ("kept", "profiler_step"): 3,
    ("kept", "operator"): 3,
    ("kept", "own_annotation"): 1,
    ("kept", "launch_call"): 4,
    ("kept", "copy_call"): 3,
    ("kept", "unknown_on_gpu"): 3,
    ("kept", "memcpy"): 3,
    ("kept", "nccl_kernel"): 2,
    ("kept", "nccl_annotation"): 1,
    ("kept", "library_annotation_on_gpu"): 1,
    ("flagged", "unknown_on_gpu"): 3,
    ("flagged", "orphan"): 1,
    ("flagged", "before_launch"): 1,
    ("flagged", "relabelled_copy"): 1,
    ("flagged", "hidden_copy"): 1,
    ("flagged", "queued_work"): 3,
    ("flagged", "warmup_step"): 2,
}


@dataclass(frozen=True)
class Conformed:
    """Runs in silver, made by one engine."""

    lake: Lake
    written: dict[str, list[Written]]

    def rows(self, table: Table, run_id: str = "on", **where: object) -> list[dict[str, Any]]:
        """Rows of a run in the order of their key, those alone that have the values given."""
        found = self.lake.scan(table, [run_id]).sort(table.key)
        return found.filter(*(pl.col(name) == value for name, value in where.items())).collect().to_dicts()

    def source(self, rank: int) -> str:
        """The digest of a rank's file."""
        (row,) = self.rows(source_files.TABLE, rank=rank)
        return str(row["source_sha256"])

    def rules(self, run_id: str, rank: int) -> dict[tuple[str, str], int]:
        """What each rule did to a rank's file."""
        rows = self.rows(rule_counts.TABLE, run_id, rank=rank)
        return {(row["effect"], row["rule"]): row["events_count"] for row in rows}


def conform(root: Path, run_ids: Iterable[str], engine: str) -> Conformed:
    """Land runs in a lake of their own, and have an engine conform them."""
    land = LandFiles.open(root)
    written = {}
    for run_id in run_ids:
        land.write(FILES, run_id, MANIFESTS[run_id])
        land.materialise(run_id)
        written[run_id] = silver.materialise(land.lake, run_id, engines.engine(engine))
    return Conformed(land.lake, written)


@pytest.fixture(scope="module")
def conformed_runs(tmp_path_factory: pytest.TempPathFactory) -> Conformed:
    """The two runs as Polars made them."""
    return conform(tmp_path_factory.mktemp("polars"), MANIFESTS, "polars")


# -- the rules ----------------------------------------------------------------------------------------------------


def test_each_trap_is_caught_by_the_rule_that_names_it_and_counted_exactly(conformed_runs: Conformed) -> None:
    assert conformed_runs.rules("on", 0) == EXPECTED


def test_a_rank_without_gpu_rows_under_cc_is_said_to_be_unobservable(conformed_runs: Conformed) -> None:
    assert conformed_runs.rules("on", 1) == {
        ("kept", "profiler_step"): 1,
        ("kept", "operator"): 1,
        ("flagged", "warmup_step"): 1,
        ("flagged", "no_gpu_rows"): 1,
    }


def test_all_that_devtools_recorded_is_flagged_and_no_mode_is_mixed_up(conformed_runs: Conformed) -> None:
    flagged = {
        rule: count for (effect, rule), count in conformed_runs.rules("devtools", 1).items() if effect == "flagged"
    }
    assert flagged == {"devtools": 2}
    events = len(NO_INTERVALS) + len(REJECTED) + len(KEPT)
    assert conformed_runs.rules("devtools", 0)["flagged", "devtools"] == events
    assert ("flagged", "relabelled_copy") in conformed_runs.rules("devtools", 0), "devtools is CC too"
    shipped = {run_id: conformed_runs.rows(runs.TABLE, run_id)[0]["is_shipped_mode"] for run_id in MANIFESTS}
    assert shipped == {"on": True, "devtools": False}


# No trace can fall under them: tests/silver/test_nsight.py, test_nsys_ranks.py and test_site_patterns.py do.
OF_NSIGHT = {
    *("second_profile", "seen_elsewhere", "launch_and_kernel", "session_clock", "rounded_size"),
    *("graph_nodes", "idle_process", "no_process", "unknown_rank", "site_conflict"),
}


def test_no_rule_was_left_without_a_trap(conformed_runs: Conformed) -> None:
    found = {rule for run_id in MANIFESTS for rank in (0, 1) for _, rule in conformed_runs.rules(run_id, rank)}
    assert {rule.id for rule in event_rules.RULES} - OF_NSIGHT <= found


def test_each_count_bears_the_sentence_of_its_rule(conformed_runs: Conformed) -> None:
    sentences = {(rule.effect, rule.id): rule.sentence for rule in event_rules.RULES}
    for row in conformed_runs.rows(rule_counts.TABLE):
        expected = sentences.get((row["effect"], row["rule"]), row["sentence"])
        assert row["sentence"] == expected
        assert row["effect"] != "kept" or row["sentence"].endswith(f" by the pattern {row['rule']}.")


@pytest.mark.parametrize("run_id", MANIFESTS)
def test_landed_events_are_kept_merged_or_rejected_per_file(conformed_runs: Conformed, run_id: str) -> None:
    for file in conformed_runs.rows(source_files.TABLE, run_id):
        settled = [row for row in conformed_runs.rules(run_id, file["rank"]).items() if row[0][0] != "flagged"]
        assert sum(count for _, count in settled) == file["events_count"]
        kept = sum(count for (effect, _), count in settled if effect == "kept")
        assert kept == len(conformed_runs.rows(spans.TABLE, run_id, source_sha256=file["source_sha256"]))


def test_a_reject_keeps_its_source_its_place_and_its_reason(conformed_runs: Conformed) -> None:
    sentences = {rule.id: rule.sentence for rule in event_rules.RULES}
    found = [
        tuple(row[name] for name in ("level", "source_sha256", "rank", "ordinal", "offset_bytes", "rule", "reason"))
        for row in conformed_runs.rows(rejects.TABLE)
    ]
    data = FILES["rank0.json"]
    assert found == [
        ("event", conformed_runs.source(0), 0, place, data.index(text.encode()), rule, sentences[rule])
        for place, (text, rule) in enumerate(REJECTED.items(), len(NO_INTERVALS))
    ]


def test_a_reject_keeps_the_times_that_its_source_says(conformed_runs: Conformed) -> None:
    found = {row["rule"]: (row["ts_ns"], row["duration_ns"]) for row in conformed_runs.rows(rejects.TABLE)}
    assert found == {
        "unknown_phase": (1_001_000, 1_000),
        "no_time": (1_002_000, None),
        "zero_timestamp": (0, 1_000),
        "negative_duration": (1_003_000, -500),
        "overflow": (1_004_000, 10_000_000_000_000_000),
    }


# -- what the events meant ----------------------------------------------------------------------------------------


def test_categories_of_older_profilers_mean_what_they_do_today(conformed_runs: Conformed) -> None:
    found = {row["name"]: (row["category"], row["kind"]) for row in conformed_runs.rows(spans.TABLE, is_gpu=True)}
    assert found["an_old_kernel"] == ("kernel", "compute")
    assert found["Memcpy HtoD (Pageable -> Device)"] == ("gpu_memcpy", "copy")
    assert {row["category"] for row in conformed_runs.rows(spans.TABLE, name="cudaMemcpyAsync")} == {"cuda_runtime"}


def test_exact_duplicates_are_one_span_that_says_how_many_more_it_stands_for(conformed_runs: Conformed) -> None:
    (row,) = conformed_runs.rows(spans.TABLE, name="aten::add", rank=0)
    assert (row["duplicates_count"], row["ts_ns"], row["duration_ns"]) == (1, 1_050_000, 2_500)
    assert sum(row["duplicates_count"] for row in conformed_runs.rows(spans.TABLE)) == 1


def test_kernels_that_cannot_be_as_recorded_are_kept_as_recorded(conformed_runs: Conformed) -> None:
    (early,) = conformed_runs.rows(spans.TABLE, name="too_early")
    assert (early["ts_ns"], early["launch_ts_ns"], early["is_before_launch"]) == (1_199_999, 1_200_000, True)
    (orphan,) = conformed_runs.rows(spans.TABLE, name="whose_launch_nobody_saw")
    assert (orphan["launch_ts_ns"], orphan["is_orphan"], orphan["is_before_launch"]) == (None, True, False)


def test_a_collective_is_counted_once_whatever_its_kernel_is_called_and_a_wait_is_none(
    conformed_runs: Conformed,
) -> None:
    found = [
        tuple(row[name] for name in ("collective", "mention", "library", "buffer_bytes", "step_number"))
        for row in conformed_runs.rows(collectives.TABLE)
    ]
    assert found == [("all_reduce", "kernel", "nccl", None, 1), ("all_gather", "kernel", "nccl", 80, 1)]


def test_a_copy_that_cc_relabelled_is_taken_back_from_its_call_and_its_reported_label_is_kept(
    conformed_runs: Conformed,
) -> None:
    (row,) = conformed_runs.rows(spans.TABLE, name=COPY)
    labels = [row[name] for name in ("direction", "reported_direction", "memory", "is_relabelled")]
    assert labels == ["host_to_gpu", "on_gpu", "pinned", True]
    (crossing,) = conformed_runs.rows(crossings.TABLE, path="pinned")
    assert (crossing["ordinal"], crossing["sealed_by"], crossing["seal_evidence"]) == (
        row["ordinal"],
        "bounce_buffer",
        "modelled",
    )
    assert (crossing["payload_bytes"], crossing["wire_bytes"], crossing["violation"]) == (4096, 4096 + 28, None)


def test_calls_that_copy_under_cc_are_marked_as_no_copy_time(conformed_runs: Conformed) -> None:
    marked = {row["name"] for row in conformed_runs.rows(spans.TABLE, has_queued_work=True)}
    assert marked == {"cudaMemcpyAsync", "cuMemcpyHtoDAsync_v2"}


def test_the_steps_that_the_manifest_calls_warm_up_are_left_out_of_pairs(conformed_runs: Conformed) -> None:
    warm = {(row["rank"], row["step_number"]): row["is_warmup"] for row in conformed_runs.rows(steps.TABLE)}
    assert warm == {(0, 0): True, (0, 1): False, (0, 2): True, (1, 0): True}  # nothing runs in the last one of rank 0


def test_a_private_annotation_is_sealed_and_can_be_revealed(conformed_runs: Conformed) -> None:
    (row,) = conformed_runs.rows(spans.TABLE, pattern="own_annotation")
    assert row["name"] is None
    assert row["label"].startswith("sealed:1:")
    sealed = conformed_runs.lake.scan(spans.TABLE, ["on"]).filter(pl.col("pattern") == "own_annotation").collect()
    revealed = conformed_runs.lake.reveal(spans.TABLE, sealed.to_arrow().cast(spans.TABLE.arrow_schema))
    assert revealed.column("label").to_pylist() == [PRIVATE]


# That DuckDB makes the same of these rows, in the soak Spark too, is seen in tests/silver/test_engines_agree.py.
@pytest.mark.parametrize("name", pick_engines())
def test_the_same_files_give_the_same_rows_in_any_lake_whoever_conforms_them(
    conformed_runs: Conformed, tmp_path: Path, name: str
) -> None:
    anew = conform(tmp_path, MANIFESTS, name)
    for table in silver.TABLES:
        one, other = (found.lake.scan(table).sort(table.row_key).collect() for found in (conformed_runs, anew))
        sealed = [column.name for column in table.sealed]  # each lake has a keyring of its own
        assert one.drop(sealed).equals(other.drop(sealed)), table.full_name
