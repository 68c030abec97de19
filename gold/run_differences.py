"""What differs between two groups of runs by what they say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold.pairs import Pair, describe_unnamed, group_repeats, read_fields
from silver.ring_settings import OPTIONS
from silver.runs import WORKLOAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gold.pairs import Index

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
        baseline_regime=index[baseline_run_id]["regime"],
        caveat=describe_unnamed(index, (*sides[0], *sides[1])),
    )


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
