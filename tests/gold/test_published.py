from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path
from typing import Any

import pytest

from gold import published
from gold.published import COSTS, PUBLISHED, PUBLISHED_RUN, SLOWDOWNS, Published
from lake.contract import require_declared
from lake.errors import ContractBroken

FILE = Path(published.__file__).with_name("published.toml")
ROWS: dict[str, dict[str, Any]] = {row["entry_id"]: row for row in published.rows().to_pylist()}
SOURCE = '[[source]]\nid = "a"\nsource = "A"\nlink = "https://a.example"\nhardware = "H"\nevidence_class = "primary"\n'


def read(source: str, number: str) -> dict[str, Any]:
    """The row of a file with one number."""
    (row,) = Published(f"version = 1\n{source}numbers = [{{ {number} }}]\n".encode()).rows().to_pylist()
    return dict(row)


def test_the_numbers_are_as_declared_and_each_is_named_once() -> None:
    require_declared(published.TABLE, published.rows(), PUBLISHED_RUN)
    assert len(ROWS) == published.rows().num_rows > 100


def test_they_are_made_from_the_file() -> None:
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == PUBLISHED.sha256


def is_traceable(row: dict[str, Any]) -> bool:
    """Whether a number says where it can be read, and what was measured on what."""
    is_named = re.fullmatch(r"[a-z0-9][a-z0-9.-]*", row["entry_id"]) is not None
    is_linked = re.fullmatch(r"https://[a-z0-9.-]+/\S+", row["link"]) is not None
    return is_named and is_linked and all(row[name] for name in ("source", "hardware", "workload", "unit"))


def test_every_number_says_where_it_is_from() -> None:
    assert [name for name, row in ROWS.items() if not is_traceable(row)] == []


@pytest.mark.parametrize(
    ("entry_id", "ratio"),
    [
        ("lee-2501.11771-max", 41.6),
        ("wang-2410.15240-training-highest", 5.55),
        ("yang-ispass25-training-resnet50-b64-fp32", 1.315),
        ("tinfoil-h200-gemma-sft", 1.2195),
        ("tinfoil-b300-llama-lora", 1.4225),
        ("asad-2608.26575-dense-bf16", 1.1326),
        ("asad-2608.26575-graph-step", 1.0356),
        ("workshop-labs-2026-03-kimi-lora", 1.0917),
        ("phala-2409.03992-llama-8b", 1.0735),
        ("phala-2409.03992-llama-70b", 0.9988),
        ("arxiv-2505.16501-swapping-throughput-lowest", 1.45),
        ("sglang-15188-c1", 1.2254),
    ],
)
def test_slowdowns_are_given_in_one_way(entry_id: str, ratio: float) -> None:
    assert math.isclose(ROWS[entry_id]["slowdown_ratio"], ratio, abs_tol=5e-5)


@pytest.mark.parametrize(
    "entry_id",
    [
        "wang-2410.15240-communication-highest",
        "wang-2410.15240-fastrack",
        "tinfoil-b300-launch",
        "yang-ispass25-kernel-gemm",
        "phala-2409.03992-llama-8b-first-token",
        "nvidia-b300-blog-first-most",
        "schambach-2606.31408-tokens-highest",
    ],
)
def test_a_part_of_the_work_and_a_change_of_nobody_knows_what_are_no_slowdown(entry_id: str) -> None:
    assert ROWS[entry_id]["slowdown_ratio"] is None


def test_every_number_of_a_whole_workload_has_a_slowdown() -> None:
    has_ratio = {name: row["slowdown_ratio"] is not None for name, row in ROWS.items()}
    assert has_ratio == {name: row["metric"] in SLOWDOWNS for name, row in ROWS.items()}


def test_every_metric_is_in_use() -> None:
    assert {row["metric"] for row in ROWS.values()} == {*SLOWDOWNS, *COSTS}


def test_per_cent_is_in_per_cent_and_a_ratio_in_times() -> None:
    per_cent = {"time_increase", "throughput_loss", "throughput_gain_without", "runtime_reduction"}
    units = {(row["metric"], row["unit"]) for row in ROWS.values()}
    assert {unit for metric, unit in units if metric in per_cent} == {"%"}
    assert {unit for metric, unit in units if metric in {"slowdown", "cost_ratio", "rate_kept"}} == {"x"}


def test_what_was_emulated_is_not_called_measured_on_h100() -> None:
    emulated = [row for row in ROWS.values() if row["regime"] == "sw_per_hop_aesgcm"]
    assert {row["entry_id"].rpartition("-")[0] for row in emulated} >= {"lee-2501.11771"}
    assert all("emulated" in row["hardware"] and "H100" not in row["hardware"] for row in emulated)


def test_a_number_may_say_otherwise_than_its_source_and_adds_its_note() -> None:
    number = 'id = "n", workload = "w", metric = "memory", value = 1, unit = "MB"'
    source = SOURCE + 'regime = "cc_off"\nnote = "Of all."\n'
    row = read(source, f'{number}, hardware = "other", note = "Of one."')
    assert (row["hardware"], row["regime"], row["note"]) == ("other", "cc_off", "Of all. Of one.")
    assert read(SOURCE, number)["note"] is None


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ('metric = "slowdwn"', "a-n is of no known metric: 'slowdwn' .*mean 'slowdown'"),
        ('metric = "slowdown", regime = "cc_of"', "a-n: regime is 'cc_of' .*mean 'cc_off'"),
        ('metric = "slowdown", statistic = "medium"', "a-n: statistic is 'medium' .*mean 'median'"),
        ('metric = "slowdown", baselin = 2.0', "a-n says baselin .*mean 'baseline'"),
    ],
)
def test_a_word_that_the_table_does_not_know_is_refused(number: str, message: str) -> None:
    with pytest.raises(ContractBroken, match=message):
        read(SOURCE, f'id = "n", workload = "w", value = 1.0, unit = "x", {number}')
