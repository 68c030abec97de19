"""One row per run that claims a TEE: its baseline without one, or why it has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.tables import RUN_ID, Scope, Table, text

if TYPE_CHECKING:
    from collections.abc import Mapping

WAYS = ("manifest", "workload")

TABLE = Table(
    tier="gold",
    name="pairs",
    grain="One row per run whose regime is not cc_off.",
    key=("run_id",),
    inputs=("silver.runs", "gold.time_breakdown"),
    scope=Scope.PAIR,
    columns=(
        RUN_ID,
        text("baseline_run_id", "Its baseline without a TEE; null where it has none.", nullable=True),
        text("regime", "Regime that the run claims; null where it claims none.", nullable=True),
        text(
            "paired_by",
            "manifest: the run names its baseline; workload: the two are equal in it.",
            nullable=True,
            one_of=WAYS,
        ),
        text("caveat", "What a reader of the pair should know, as a sentence.", nullable=True),
        text("reason", "Why there is no baseline, and what differs in the nearest one, as a sentence.", nullable=True),
    ),
)

Index = dict[str, dict[str, str | None]]


@dataclass(frozen=True)
class Pair:
    """A run and its baseline, or the reason why it has none."""

    run_id: str
    regime: str | None
    baseline_run_id: str | None = None
    paired_by: str | None = None
    caveat: str | None = None
    reason: str | None = None


def measure(pair: Pair) -> pa.Table:
    """The row of a pair."""
    row = {name: getattr(pair, name) for name in TABLE.column_names}
    return pa.Table.from_pylist([row], schema=TABLE.arrow_schema)


def pair_runs(index: Index) -> dict[str, Pair]:
    """Pair every run that claims a TEE: with the baseline that it names, else with an equal run without one."""
    return {run_id: _pair_run(run_id, run, index) for run_id, run in sorted(index.items()) if run["regime"] != "cc_off"}


def _pair_run(run_id: str, run: Mapping[str, str | None], index: Index) -> Pair:
    regime, named = run["regime"], run["baseline"]
    if regime is None:
        return Pair(run_id, None, reason="it claims no regime, so nothing says whether it was inside a TEE")
    if named is not None:
        if named not in index:
            return Pair(run_id, regime, reason=f"its manifest names {named}, which is not in the lake")
        if index[named]["regime"] != "cc_off":
            return Pair(run_id, regime, reason=f"its manifest names {named}, whose regime is {index[named]['regime']}")
        differing = _list_differing_fields(run["workload"], index[named]["workload"])
        caveat = f"the baseline differs in {', '.join(differing)}" if differing else None
        return Pair(run_id, regime, named, "manifest", caveat)
    candidates = [
        name
        for name, other in sorted(index.items())
        if other["regime"] == "cc_off" and other["repeat_of"] is None and other["workload"] is not None
    ]
    baselines = [name for name in candidates if index[name]["workload"] == run["workload"]]
    if baselines:
        caveat = f"{len(baselines)} runs are equal in workload; the first by name was taken" if baselines[1:] else None
        return Pair(run_id, regime, baselines[0], "workload", caveat)
    return Pair(run_id, regime, reason=_explain_unpaired(run, {name: index[name] for name in candidates}))


def _explain_unpaired(run: Mapping[str, str | None], candidates: Index) -> str:
    if run["workload"] is None:
        return "its manifest names neither a baseline nor a model"
    if not candidates:
        return "there is no run with regime cc_off that names its model"
    nearest = min(
        candidates, key=lambda name: (len(_list_differing_fields(run["workload"], candidates[name]["workload"])), name)
    )
    differing = _list_differing_fields(run["workload"], candidates[nearest]["workload"])
    return f"no run with regime cc_off has its workload; the nearest, {nearest}, differs in {', '.join(differing)}"


def _list_differing_fields(one: str | None, other: str | None) -> list[str]:
    """The fields in which two workloads differ."""
    fields = [dict(part.partition("=")[::2] for part in text.split("|") if part) for text in (one or "", other or "")]
    return [name for name in {**fields[0], **fields[1]} if fields[0].get(name, "") != fields[1].get(name, "")]
