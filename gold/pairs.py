"""One row per run that claims a TEE or names a baseline: that baseline and the repeats of both, or why it has none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from gold.power import ENOUGH_RUNS
from lake.tables import RUN_ID, Scope, Table, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

WAYS = ("manifest", "workload")
# The regime of a run without a TEE.
OFF = "cc_off"
# A step of both runs must do the same work: a ratio of two steps that do not says nothing of either.
SAME_WORK = ("model", "parameters_count", "batch_size", "sequence_length", "world_size")

TABLE = Table(
    tier="gold",
    name="pairs",
    grain="One row per run whose regime is not cc_off, or that names a baseline, and per repeat of one.",
    key=("run_id",),
    inputs=("silver.runs", "gold.time_breakdown"),
    scope=Scope.PAIR,
    columns=(
        RUN_ID,
        text("baseline_run_id", "Its baseline; null where it has none.", nullable=True),
        text("regime", "Regime that the run claims; null where it claims none.", nullable=True),
        text(
            "baseline_regime",
            "Regime of the baseline. Where it is cc_off and the run's is not, the pair says what a TEE costs; else it "
            "is a difference between two runs.",
            nullable=True,
        ),
        text(
            "paired_by",
            "manifest: the run names its baseline; workload: the two are equal in it.",
            nullable=True,
            one_of=WAYS,
        ),
        text(
            "repeated_run_id",
            "Run that this one repeats (repeat_of): it counts as a run of that pair and has none of its own.",
            nullable=True,
        ),
        text("repeats", "Its repeats, which count in the pair, as run ids with commas.", nullable=True),
        text("baseline_repeats", "Repeats of the baseline, which count too.", nullable=True),
        text("caveat", "What a reader of the pair should know, as a sentence.", nullable=True),
        text("reason", "Why there is no baseline, and what differs in the nearest one, as a sentence.", nullable=True),
    ),
)

Index = dict[str, dict[str, str | None]]
# What two runs must share for the noise of one to say something of the other: the machine and its software.
MACHINE = (
    *("backend", "gpu", "driver_version", "cuda_version", "torch_version", "nccl_version", "host_cpu", "nodes_count"),
)
# No pool of noise reads more runs.
MOST_POOLED_RUNS = 64


@dataclass(frozen=True)
class Pair:
    """A run and its baseline with the repeats of both, or the reason why it has none."""

    run_id: str
    regime: str | None
    baseline_run_id: str | None = None
    paired_by: str | None = None
    caveat: str | None = None
    reason: str | None = None
    repeated_run_id: str | None = None
    repeats: tuple[str, ...] = ()
    baseline_repeats: tuple[str, ...] = ()
    baseline_regime: str | None = None

    @property
    def is_tee_overhead(self) -> bool:
        """Whether the pair says what a TEE costs: the run has one and its baseline has none."""
        return is_tee_overhead({"regime": self.regime, "baseline_regime": self.baseline_regime})

    @property
    def candidates(self) -> tuple[str, ...]:
        """The runs of the candidate, its own first."""
        return (self.run_id, *self.repeats)

    @property
    def baselines(self) -> tuple[str, ...]:
        """The runs of the baseline, the one that it is named by first; none where it has no baseline."""
        return () if self.baseline_run_id is None else (self.baseline_run_id, *self.baseline_repeats)


def measure(pair: Pair) -> pa.Table:
    """The row of a pair."""
    row = {name: getattr(pair, name) for name in TABLE.column_names}
    row |= {name: ", ".join(row[name]) or None for name in ("repeats", "baseline_repeats")}
    return pa.Table.from_pylist([row], schema=TABLE.arrow_schema)


def is_tee_overhead(row: Mapping[str, Any]) -> bool:
    """Whether a row of a pair says what a TEE costs; else it is a difference between two runs."""
    return row["regime"] not in {None, OFF} and row["baseline_regime"] == OFF


def pair_runs(index: Index) -> dict[str, Pair]:
    """Pair every run with the baseline that it names, of any regime; under a TEE else with an equal plain run.

    Repeats of either side are runs of the pair. A repeat of the candidate has no pair of its own: it would count twice.
    """
    groups, strangers = group_repeats(index), _find_strangers(index)
    found = {}
    for run_id, run in sorted(index.items()):
        first = groups[run_id][0]
        if run["regime"] == OFF and run["baseline"] is None and index[first]["baseline"] is None:
            continue
        if first != run_id:
            found[run_id] = _explain_repeat(run_id, first, index)
            continue
        pair = _pair_run(run_id, run, index)
        if pair.baseline_run_id is not None:
            others = tuple(name for name in groups[pair.baseline_run_id] if name != pair.baseline_run_id)
            pair = replace(pair, repeats=groups[run_id][1:], baseline_repeats=others)
            reason = None if pair.is_tee_overhead else explain_incomparable(index, pair)
            pair = pair if reason is None else Pair(run_id, pair.regime, reason=reason)
        found[run_id] = _mention_open(_mention_strangers(pair, run["repeat_of"], strangers), index)
    return found


def group_repeats(index: Index) -> dict[str, tuple[str, ...]]:
    """For every run, its group: the run that is repeated first, then its repeats; a run without repeats is alone."""
    firsts = {run_id: _find_first(run_id, index) for run_id in sorted(index)}
    members: dict[str, list[str]] = {}
    for run_id, first in firsts.items():
        members.setdefault(first, []).append(run_id)
    groups = {first: (first, *(name for name in names if name != first)) for first, names in members.items()}
    return {run_id: groups[first] for run_id, first in firsts.items()}


def _find_first(run_id: str, index: Index) -> str:
    """The run at the beginning of a chain of repeats; in a circle, the first by name."""
    seen = [run_id]
    while True:
        named = index[seen[-1]]["repeat_of"]
        if named is None or not _is_repeat(index[seen[-1]], index.get(named)):
            return seen[-1]
        if named in seen:
            return min(seen[seen.index(named) :])
        seen.append(named)


def _is_repeat(run: Mapping[str, str | None], named: Mapping[str, str | None] | None) -> bool:
    """A repeat has the regime and the workload of what it repeats; where either says none, it is believed."""
    if named is None or run["regime"] is None or run["regime"] != named["regime"]:
        return False
    return run["workload"] is None or named["workload"] is None or run["workload"] == named["workload"]


def _find_strangers(index: Index) -> dict[str, list[str]]:
    """For every run, those that claim to repeat it and differ from it in regime or workload."""
    found: dict[str, list[str]] = {}
    for run_id, run in sorted(index.items()):
        named = run["repeat_of"]
        if named in index and not _is_repeat(run, index[named]):
            found.setdefault(named, []).append(run_id)
    return found


def _mention_strangers(pair: Pair, repeat_of: str | None, strangers: Mapping[str, list[str]]) -> Pair:
    """Say which runs claim to repeat a side of the pair and do not count, and whether the run itself claims so."""
    caveats = (
        [f"it repeats {repeat_of}, which is not in the lake or differs in regime or workload"] if repeat_of else []
    )
    claiming = sorted(name for side in (pair.run_id, *pair.baselines[:1]) for name in strangers.get(side, ()))
    if claiming:
        caveats.append(f"no repeats, because regime or workload differ: {', '.join(claiming)}")
    return replace(pair, caveat="; ".join([*([pair.caveat] if pair.caveat else []), *caveats]) or None)


def _mention_open(pair: Pair, index: Index) -> Pair:
    """Say which runs of the pair are still open, and how far they have come: the pair will change with them."""
    names = (pair.run_id, *pair.repeats, *pair.baselines)
    told = [f"{name} is open: {so_far}" for name in names if (so_far := index[name].get("so_far"))]
    return replace(pair, caveat="; ".join([*([pair.caveat] if pair.caveat else []), *told]) or None) if told else pair


def _pair_run(run_id: str, run: Mapping[str, str | None], index: Index) -> Pair:
    regime, named = run["regime"], run["baseline"]
    if regime is None:
        return Pair(run_id, None, reason="it claims no regime, so nothing says whether it was inside a TEE")
    if named is not None:
        if named not in index:
            return Pair(run_id, regime, reason=f"its manifest names {named}, which is not in the lake")
        if index[named]["regime"] is None:
            reason = (
                f"its manifest names {named}, which claims no regime, so nothing says whether that was inside a TEE"
            )
            return Pair(run_id, regime, reason=reason)
        pair = Pair(run_id, regime, named, "manifest", baseline_regime=index[named]["regime"])
        return replace(pair, caveat=_describe_declared(pair, run, index))
    candidates = [
        name
        for name, other in sorted(index.items())
        if other["regime"] == OFF and other["repeat_of"] is None and other["workload"] is not None
    ]
    equal = [name for name in candidates if index[name]["workload"] == run["workload"]]
    if equal:
        caveat = None
        if equal[1:]:
            caveat = (
                f"{len(equal)} runs are equal in workload; the first by name was taken; with repeat_of in their "
                "manifests the others would count as its repeats"
            )
        return Pair(run_id, regime, equal[0], "workload", caveat, baseline_regime=OFF)
    return Pair(run_id, regime, reason=_explain_unpaired(run, {name: index[name] for name in candidates}))


def _explain_repeat(run_id: str, first: str, index: Index) -> Pair:
    """A repeat counts in the pair of the run that it repeats, or says that nothing is declared there."""
    regime = index[run_id]["regime"]
    if regime == OFF and index[first]["baseline"] is None:
        reason = f"it repeats {first}, which names no baseline: a pair is declared by the run that is repeated"
        return Pair(run_id, regime, reason=reason)
    return Pair(run_id, regime, reason=f"it repeats {first} and counts as a run of that pair", repeated_run_id=first)


def _describe_declared(pair: Pair, run: Mapping[str, str | None], index: Index) -> str | None:
    """In what a declared baseline differs; of two runs of one regime, options of the ring and unnamed models too."""
    other = index[str(pair.baseline_run_id)]
    if pair.is_tee_overhead:
        differing = _list_differing_fields(run["workload"], other["workload"])
    else:
        unnamed = describe_unnamed(index, (pair.run_id, str(pair.baseline_run_id)))
        if unnamed is not None:
            return unnamed
        differing = _list_differing_fields(*(f"{one['workload']}|{one['family']}" for one in (run, other)))
    return f"the baseline differs in {', '.join(differing)}" if differing else None


def describe_unnamed(index: Index, names: Sequence[str]) -> str | None:
    """Say which of some runs name no model; None where all do."""
    unnamed = [name for name in names if index[name]["workload"] is None]
    return f"no model named by {', '.join(unnamed)}: nothing says that both did the same work" if unnamed else None


def explain_incomparable(index: Index, pair: Pair) -> str | None:
    """Why no comparison of these runs says anything; None where one does."""
    shared = sorted(set(pair.candidates) & set(pair.baselines))
    if shared:
        return f"{', '.join(shared)} is on both sides: a run is not compared with itself"
    first = read_fields(index[pair.run_id]["workload"])
    for name in (*pair.baselines, *pair.repeats):
        fields = read_fields(index[name]["workload"])
        differing = [
            f"{field} {first[field]} against {fields[field]}"
            for field in SAME_WORK
            if first.get(field) and fields.get(field) and first[field] != fields[field]
        ]
        if differing:
            return f"a step of {pair.run_id} and one of {name} do not do the same work: {', '.join(differing)}"
    return None


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
    fields = [read_fields(one), read_fields(other)]
    return [name for name in {**fields[0], **fields[1]} if fields[0].get(name, "") != fields[1].get(name, "")]


def read_fields(text: str | None) -> dict[str, str]:
    """The fields of a workload or a family; those that are empty too."""
    return dict(part.partition("=")[::2] for part in (text or "").split("|") if part)


def find_noise_groups(found: Mapping[str, Pair], index: Index) -> dict[str, list[tuple[str, ...]]]:
    """For every pair with a side of fewer than 3 runs, groups of repeats on its hardware and software; bounded."""
    machines: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for group in sorted(set(group_repeats(index).values())):
        machine = _find_machine(index[group[0]]["workload"])
        if len(group) > 1 and machine is not None:
            machines.setdefault(machine, []).append(group)
    lent: dict[str, list[tuple[str, ...]]] = {}
    for run_id, pair in found.items():
        machine = _find_machine(index[run_id]["workload"])
        if machine in machines and 0 < min(len(pair.candidates), len(pair.baselines)) < ENOUGH_RUNS:
            lent[run_id] = _take_groups(machines[machine], {*pair.candidates, *pair.baselines})
    return lent


def _take_groups(groups: list[tuple[str, ...]], own: set[str]) -> list[tuple[str, ...]]:
    """The first groups that are no part of a pair, up to so many runs."""
    taken: list[tuple[str, ...]] = []
    count = 0
    for group in groups:
        if own.isdisjoint(group):
            count += len(group)
            if count > MOST_POOLED_RUNS:
                break
            taken.append(group)
    return taken


def _find_machine(workload: str | None) -> tuple[str, ...] | None:
    """The machine and software of a workload; None where it names no GPU and no CPU, because then nothing is shared."""
    fields = read_fields(workload)
    if not fields.get("gpu") and not fields.get("host_cpu"):
        return None
    return tuple(fields.get(name, "") for name in MACHINE)
