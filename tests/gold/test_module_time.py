from __future__ import annotations

import gzip
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.build import chunking, gold, silver
from assets.build.catalogue import list_required
from assets.build.tiers import select_tables
from gold import module_time
from gold.call_nesting import select_launched
from lake.engines import engine as lake_engine
from silver import spans, steps
from silver.patterns import MODULES, PATTERNS
from tests.conftest import LandFiles
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

END = 1 << 62
POLARS = lake_engine("polars")
# Two steps of a training loop on an H200 with `with_stack=True`.
RECORDING = Path(__file__).with_name("recorded_stacks") / "mlp-r0.json.gz"
Row = dict[str, Any]


def module(name: str, at: int, length: int, thread: str = "1") -> Row:
    """A module; one whose name has no number is a person's own, of which gold sees a token."""
    is_torch = name[-1].isdigit()
    known = {"category": "python_function", "ts_ns": at, "duration_ns": length, "thread_id": thread}
    plain = {"pattern": "torch_module", "name": f"nn.Module: {name}"}
    return known | (plain if is_torch else {"pattern": "own_module", "label": f"sealed:1:k:{name}"})


def call(at: int, length: int, correlation: int = 1, thread: str = "1") -> Row:
    known = {"category": "cuda_runtime", "pattern": "launch_call", "name": "cudaLaunchKernel", "thread_id": thread}
    return known | {"ts_ns": at, "duration_ns": length, "correlation_id": correlation}


def kernel(length: int, launch: int, correlation: int = 1) -> Row:
    known = {"category": "kernel", "is_gpu": True, "name": "k", "ts_ns": 900, "duration_ns": length}
    return known | {"launch_ts_ns": launch, "correlation_id": correlation}


def sum_modules(bench: Bench, *rows: Row, cuts: tuple[int, ...] = ()) -> dict[str, Row]:
    """The rows of one rank, by module."""
    known = [
        {"run_id": RUN, "rank": 0, "source_sha256": "s", "ordinal": place, **row} for place, row in enumerate(rows)
    ]
    spanned = bench.wrap(rows_of(spans.TABLE, known))
    sums = [module_time.SCHEMA.empty_table()]
    if bench.rows(module_time.find_ranks(spanned)).num_rows:
        sums = [
            module_time.sum_modules(
                bench.rows(module_time.select_calls(spanned, low, high)),
                bench.rows(select_launched(spanned, low, high)),
                low,
                high,
            )
            for low, high in pairwise([0, *sorted(set(cuts)), END])
        ]
    ranks = bench.wrap(rows_of(steps.TABLE, [{"run_id": RUN, "rank": 0}]))
    found = bench.rows(module_time.measure(bench.wrap(pa.concat_tables(sums)), ranks)).to_pylist()
    assert len({row["module"] for row in found}) == len(found)
    return {row["module"]: row for row in found}


def test_a_module_has_its_own_time_its_cuda_calls_and_the_work_that_it_launched(engine: Bench) -> None:
    found = sum_modules(
        engine,
        *(module("Sequential_0", 100, 50), module("Linear_0", 110, 30), call(115, 10), kernel(70, 115)),
        *(call(142, 3, 2), kernel(20, 142, 2), call(300, 7, 3), kernel(5, 300, 3)),
        module("Linear_0", 200, 20, "2"),
        cuts=(118, 143),
    )
    columns = ("module_class", "calls_count", "total_ns", "self_ns", "cuda_ns", "launched_count", "launched_ns")
    assert {name: tuple(row[column] for column in columns) for name, row in found.items()} == {
        "Sequential_0": ("Sequential", 1, 50, 20, 3, 1, 20),
        "Linear_0": ("Linear", 2, 50, 50, 10, 1, 70),
        "none": ("none", 0, 0, 0, 7, 1, 5),
    }
    assert {(row["evidence"], row["reason"]) for row in found.values()} == {("measured", None)}
    assert [found[name]["ordinal"] for name in ("Sequential_0", "Linear_0", "none")] == [0, 1, None]


def test_own_modules_are_numbered_by_their_first_calls_and_point_at_their_sealed_names() -> None:
    found = sum_modules(
        POLARS, *(module("Router", 100, 50), module("Expert", 110, 10), module("Expert", 130, 10)), cuts=(115, 132)
    )
    assert {name: (row["module_class"], row["ordinal"], row["source_sha256"]) for name, row in found.items()} == {
        "own_1": ("own", 0, "s"),
        "own_2": ("own", 1, "s"),
    }
    assert (found["own_2"]["calls_count"], found["own_1"]["self_ns"]) == (2, 30)
    assert "sealed" not in str(found), "no token of silver lies in gold, where no key opens it"


def test_a_rank_without_modules_has_a_reason(engine: Bench) -> None:
    (row,) = sum_modules(engine, call(10, 5), kernel(5, 10)).values()
    assert (row["module"], row["calls_count"], row["launched_count"], row["evidence"]) == ("none", 0, 0, "unobservable")
    assert row["reason"] == "no modules were recorded: the profiler was not asked for stacks"


@st.composite
def nested_rows(draw: st.DrawFn) -> list[Row]:
    """Modules and CUDA calls of two threads, within each other or apart, some of no length."""
    rows: list[Row] = [module("Sequential_0", 70, 1, "3")]

    def split(low: int, high: int, depth: int, thread: str) -> None:
        at = low
        while depth and at < high and draw(st.booleans()):
            begin = draw(st.integers(at, high))
            at = draw(st.integers(begin, high))
            name = draw(st.sampled_from(["Linear_0", "ReLU_0", "Router", ""]))
            rows.append(module(name, begin, at - begin, thread) if name else call(begin, at - begin, len(rows), thread))
            split(begin, at, depth - 1, thread)

    for thread in "12":
        split(1, 40, 4, thread)
    return rows


@given(nested_rows(), st.lists(st.integers(2, 75), max_size=3))
@settings(max_examples=100)
def test_own_times_equal_a_look_at_every_moment_however_time_is_chunked(rows: list[Row], cuts: list[int]) -> None:
    launching = [row for row in rows if row["category"] == "cuda_runtime"]
    work = [kernel(5, row["ts_ns"], row["correlation_id"]) for row in launching]
    own, cuda, launched = Counter[str](), Counter[str](), Counter[str]()
    for moment in range(1, 90):
        for thread in "123":
            running = find_running(rows, thread, moment)
            if running:
                inner = name_innermost(running)
                own[inner] += inner != "none"
                cuda[inner] += running[-1]["category"] == "cuda_runtime"
    for row in launching:
        around = find_running(rows, row["thread_id"], row["ts_ns"])
        if row["duration_ns"]:
            around = around[: around.index(row)]
        launched[name_innermost(around)] += 5
    found = sum_modules(POLARS, *rows, *work, cuts=tuple(cuts))
    named = {"own_1": "Router"}
    for told, wanted in (("self_ns", own), ("cuda_ns", cuda), ("launched_ns", launched)):
        assert {named.get(name, name): row[told] for name, row in found.items() if row[told]} == dict(+wanted), told
    assert sum(row["calls_count"] for row in found.values()) == len(rows) - len(launching)


def name_innermost(running: list[Row]) -> str:
    """The innermost module of what runs, as the oracle calls it."""
    modules = [row for row in running if row["category"] == "python_function"]
    text = (modules[-1].get("name") or modules[-1]["label"]) if modules else "none"
    return text.removeprefix("nn.Module: ").removeprefix("sealed:1:k:")


def find_running(rows: list[Row], thread: str, moment: int) -> list[Row]:
    """What runs on a thread at a moment, the innermost last."""
    found = [
        (row["ts_ns"], -row["duration_ns"], place, row)
        for place, row in enumerate(rows)
        if row["thread_id"] == thread and row["ts_ns"] <= moment < row["ts_ns"] + row["duration_ns"]
    ]
    return [row for *_, row in sorted(found, key=lambda one: one[:3])]


def test_a_recording_has_the_modules_that_its_file_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the modules are renamed to classes of a person's own: nothing of their names is in the clear."""
    document = json.loads(gzip.decompress(RECORDING.read_bytes()))
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    for event in events:
        for torch, own_name in (("Sequential_2", "SecretRouter_0"), ("Sequential_3", "SecretGate_0")):
            event["name"] = event["name"].replace(f"nn.Module: {torch}", f"nn.Module: {own_name}")
    land_files = LandFiles.open(tmp_path)
    text = json.dumps({**document, "traceEvents": events})
    land_files({"rank0.json": text.encode()}, "mlp", 'regime = "cc_off"\nworld_size = 1\n')
    tables = select_tables(list_required(["gold.module_time"]))
    silver.materialise(land_files.lake, "mlp", POLARS, tables["silver"])
    gold.materialise(land_files.lake, "mlp", POLARS, tables["gold"])
    found = {row["module"]: row for row in land_files.lake.scan(module_time.TABLE).collect().to_dicts()}
    monkeypatch.setattr(chunking, "SLICE_SPANS", 150)
    again = gold.materialise(land_files.lake, "mlp", POLARS, [module_time.TABLE])
    assert not again[0].is_changed, "shared out on disk by slices of time, the rows are the same"
    recorded = [event for event in events if event["name"].startswith("nn.Module: ")]
    numbers = {"SecretRouter_0": "own_1", "SecretGate_0": "own_2"}
    own = {numbers.get(name, name): time for name, time in _add_own_times(recorded).items()}
    assert {name: row["self_ns"] for name, row in found.items() if name != "none"} == own
    assert len(own) == 14
    launches = [event for event in events if event["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}]
    assert sum(row["launched_count"] for row in found.values()) == len(launches)
    assert found["Linear_0"]["launched_count"] > 0
    assert found["none"]["launched_count"] > 0, "what the backward pass launches is of another thread"
    files = [
        file for tier in ("silver", "gold") for file in (land_files.lake.place.directory / tier).rglob("*.parquet")
    ]
    assert files
    assert not any(b"Secret" in file.read_bytes() for file in files)
    (row,) = (
        land_files.lake.scan(spans.TABLE).filter(pl.col("ordinal") == found["own_1"]["ordinal"]).collect().to_dicts()
    )
    shown = land_files.lake.reveal(spans.TABLE, pa.Table.from_pylist([row], spans.TABLE.arrow_schema))
    assert shown.column("label").to_pylist() == ["nn.Module: SecretRouter_0"]


def _add_own_times(recorded: list[Row]) -> dict[str, int]:
    """Own time of each module by its file: its own less that of those whose innermost holder it is."""
    times = [(round(event["ts"] * 1000), round(event["dur"] * 1000), event["tid"], event["name"]) for event in recorded]
    own = Counter[str]()
    for at, length, thread, name in times:
        own[name.removeprefix("nn.Module: ")] += length
        around = [one for one in times if one[2] == thread and one[0] <= at and at + length <= one[0] + one[1]]
        holders = [one for one in around if one != (at, length, thread, name)]
        if holders:
            own[min(holders, key=lambda one: one[1])[3].removeprefix("nn.Module: ")] -= length
    return dict(own)


def test_the_classes_that_are_told_in_the_clear_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    (pattern,) = (entry.name for entry in PATTERNS.patterns if entry.id == MODULES[0])
    assert pattern is not None
    listed = set(pattern.partition("(")[2].partition(")")[0].split("|"))
    spaces = (torch.nn, torch.nn.parallel, torch.nn.modules)
    classes = {
        name
        for space in spaces
        for name in dir(space)
        if isinstance(getattr(space, name), type) and issubclass(getattr(space, name), torch.nn.Module)
    }
    assert listed == classes | {"FullyShardedDataParallel", "OptimizedModule"}


def test_what_outlasts_the_module_around_it_leaves_no_negative_time_and_no_more_than_there_was() -> None:
    found = sum_modules(POLARS, module("Linear_0", 10, 10), module("ReLU_0", 12, 20), call(14, 30))
    assert {name: (row["self_ns"], row["cuda_ns"]) for name, row in found.items()} == {
        "Linear_0": (2, 0),
        "ReLU_0": (20, 18),
        "none": (0, 0),
    }
