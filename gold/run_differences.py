"""What differs between two groups of runs by what they say of themselves, and whether they can be compared at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold.pairs import Pair, group_repeats, read_fields
from silver.ring_settings import OPTIONS
from silver.runs import WORKLOAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gold.pairs import Index

# A step of both runs must do the same work: a ratio of two steps that do not says nothing of either.
SAME_WORK = ("model", "parameters_count", "batch_size", "sequence_length", "world_size")
SOFTWARE = ("driver_version", "cuda_version", "torch_version", "nccl_version")
_SETTINGS = ("regime", "cc_mode", "found_cc_mode", "world_size", "bucket_cap_mib", "warmup_steps_count")


def make_pair(index: Index, baseline: Sequence[str], candidate: Sequence[str]) -> Pair:
    """A pair of any two groups of runs; one run stands for its whole group of repeats, unless the other is of it."""
    groups = group_repeats(index)
    sides = [groups[names[0]] if len(names) == 1 else tuple(names) for names in (candidate, baseline)]
    if not set(sides[0]).isdisjoint(sides[1]):
        sides = [tuple(candidate), tuple(baseline)]
    (run_id, *repeats), (baseline_run_id, *others) = sides
    return Pair(
        run_id,
        index[run_id]["regime"],
        baseline_run_id,
        repeats=tuple(repeats),
        baseline_repeats=tuple(others),
        caveat=_describe_unnamed(index, (*sides[0], *sides[1])),
    )


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


def list_differences(
    candidates: Sequence[Mapping[str, Any]], baselines: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The fields of silver.runs in which two sides differ, software first; several values of a side stand together."""
    names = dict.fromkeys((*SOFTWARE, *_SETTINGS, *WORKLOAD, *OPTIONS))
    found = []
    for name in names:
        value, baseline = (_join_values(name, side) for side in (candidates, baselines))
        if value != baseline:
            found.append({"field": name, "baseline_value": baseline, "value": value})
    return found


def _join_values(name: str, runs: Iterable[Mapping[str, Any]]) -> str | None:
    values = (read_fields(run["family"]).get(name) if name in OPTIONS else run[name] for run in runs)
    return (
        ", ".join(
            dict.fromkeys(
                f"{value:g}" if isinstance(value, float) else str(value) for value in values if value not in {None, ""}
            )
        )
        or None
    )


def _describe_unnamed(index: Index, names: Sequence[str]) -> str | None:
    unnamed = [name for name in names if index[name]["workload"] is None]
    return f"no model named by {', '.join(unnamed)}: nothing says that both did the same work" if unnamed else None
