"""One row per number that others have published: to lay beside ours, never to be mixed with them."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from lake.errors import ContractBroken, nearest
from lake.tables import Kind, Scope, Table, float64, text
from silver.runs import TABLE as RUNS

COLLECTION = "published"
REGIMES = RUNS.column("regime").one_of
CLASSES = ("primary", "secondary", "computed")
STATISTICS = ("value", "approximate", "mean", "median", "lowest", "highest")
Rule = Callable[[float, float | None], float | None]


def _from_baseline(value: float, baseline: float | None) -> float | None:
    return None if baseline is None else value / baseline


def _to_baseline(value: float, baseline: float | None) -> float | None:
    return None if baseline is None else baseline / value


def _none(_value: float, _baseline: float | None) -> float | None:
    return None


# Metrics of whole workloads, each with the rule that makes a slowdown ratio of it: how many times longer the same work
# takes, which is also how many times less of it is done in the same time.
SLOWDOWNS: dict[str, Rule] = {
    "slowdown": lambda value, _: value,
    "time_increase": lambda value, _: 1 + value / 100,
    "throughput_loss": lambda value, _: 1 / (1 - value / 100),
    "throughput_gain_without": lambda value, _: 1 + value / 100,
    "step_time": _from_baseline,
    "run_time": _from_baseline,
    "throughput": _to_baseline,
}
# Costs of a part of the work, and changes that do not say of what: no slowdown of a workload follows from them.
COSTS = (
    "attestation_time",
    "bandwidth",
    "bandwidth_kept",
    "call_time",
    "cipher_rate",
    "collective_overhead",
    "copy_latency",
    "cost_ratio",
    "first_token_time",
    "first_token_time_increase",
    "kernel_time",
    "latency",
    "latency_reduction_without",
    "memory",
    "rate_kept",
    "runtime_reduction",
    "unspecified_change",
    "unspecified_overhead",
)
RULES: dict[str, Rule] = {**SLOWDOWNS, **dict.fromkeys(COSTS, _none)}
METRICS = tuple(RULES)

TABLE = Table(
    tier="gold",
    name="published",
    grain="One row per published number; none of them is ours, and none goes into a measured one.",
    key=("entry_id",),
    scope=Scope.LAKE,
    partition_by=("collection_id",),
    columns=(
        text("collection_id", "Always `published`: the collection that the number is part of.", one_of=(COLLECTION,)),
        text("entry_id", "Name of the number: its source, then what it is."),
        text("source", "Who published it."),
        text("link", "Where it can be read."),
        text("hardware", "On what they measured, as far as they say."),
        text("regime", "How their links were secured; null where it is not clear.", nullable=True, one_of=REGIMES),
        text("workload", "What ran."),
        text("metric", "What the number says.", one_of=METRICS),
        text("statistic", "Which of several observations it is.", one_of=STATISTICS),
        float64("value_number", "Their number with the TEE, in their unit."),
        float64("baseline_number", "Their number without, in the same unit.", nullable=True),
        text("unit", "Unit of both."),
        float64(
            "slowdown_ratio",
            "Their number as times the time without a TEE: 1.22 is 22 % more time, or 18 % less throughput. Null where "
            "it is about a part of the work only, or does not say of what it is.",
            nullable=True,
            minimum=0,
        ),
        text(
            "evidence_class",
            "primary: seen in their own text or data; secondary: seen where others quote them; computed: by us, from "
            "their data.",
            one_of=CLASSES,
        ),
        text("note", "What to know before it is used.", nullable=True),
    ),
)
_FILE = Path(__file__).with_name("published.toml")
_SOURCE = {"id", "source", "link", "note", "numbers"}
_NUMBER = {"id", "workload", "metric", "value", "baseline", "unit", "statistic", "note"}
# What a source says once for all its numbers, and a number may say otherwise.
_EITHER = {"hardware", "regime", "evidence_class"}


class Published:
    """The file as it is, and its rows."""

    def __init__(self, data: bytes) -> None:
        document: dict[str, Any] = tomllib.loads(data.decode())
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.version: int = document["version"]
        self.entries = [_entry(source, number) for source in document["source"] for number in source.get("numbers", ())]

    def rows(self) -> pa.Table:
        """All numbers, in the order of the file."""
        return pa.Table.from_pylist(self.entries, schema=TABLE.arrow_schema)


def _entry(source: dict[str, Any], number: dict[str, Any]) -> dict[str, Any]:
    """One row: what the number says, else what its source says of all its numbers."""
    entry_id = f"{source['id']}-{number['id']}"
    unknown = {*(source.keys() - _SOURCE), *(number.keys() - _NUMBER)} - _EITHER
    if unknown:
        names = {*_SOURCE, *_NUMBER, *_EITHER}
        raise ContractBroken(f"{entry_id} says {', '.join(sorted(unknown))}", nearest(min(unknown), names))
    said = {**{name: source[name] for name in _EITHER & source.keys()}, **number}
    if said["metric"] not in RULES:
        raise ContractBroken(f"{entry_id} is of no known metric: {said['metric']!r}", nearest(said["metric"], METRICS))
    value, baseline = float(said["value"]), None if "baseline" not in said else float(said["baseline"])
    entry = {
        "collection_id": COLLECTION,
        "entry_id": entry_id,
        "source": source["source"],
        "link": source["link"],
        "value_number": value,
        "baseline_number": baseline,
        "slowdown_ratio": RULES[said["metric"]](value, baseline),
        "statistic": said.get("statistic", "value"),
        "note": " ".join(each["note"] for each in (source, number) if "note" in each) or None,
        **{name: said.get(name) for name in ("hardware", "regime", "workload", "metric", "unit", "evidence_class")},
    }
    for column in TABLE.columns:
        if column.kind is Kind.TEXT and column.one_of and entry[column.name] not in {*column.one_of, None}:
            found = str(entry[column.name])
            raise ContractBroken(f"{entry_id}: {column.name} is {found!r}", nearest(found, column.one_of))
    return entry


PUBLISHED = Published(_FILE.read_bytes())


def rows() -> pa.Table:
    """The numbers as they stand in the file; what they were made from is `PUBLISHED.sha256`."""
    return PUBLISHED.rows()
