"""Training runs as Dagster's partitions: known by their ids, launched in ranges of neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assets.specs import TRAINING_RUNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import dagster as dg

_FIRST = "dagster/asset_partition_range_start"
_LAST = "dagster/asset_partition_range_end"


def list_known(instance: dg.DagsterInstance) -> list[str]:
    """The runs that Dagster knows, in its order."""
    return list(instance.get_dynamic_partitions(str(TRAINING_RUNS.name)))


def register_runs(instance: dg.DagsterInstance, run_ids: Iterable[str]) -> None:
    """Make runs known; those that are known already stay where they are."""
    before = set(list_known(instance))
    instance.add_dynamic_partitions(str(TRAINING_RUNS.name), [run_id for run_id in run_ids if run_id not in before])


def find_ranges(run_ids: Iterable[str], order: Sequence[str]) -> list[list[str]]:
    """Runs that are neighbours in Dagster's order, together: each range is one launch, whatever it holds."""
    wanted = set(run_ids)
    found: list[list[str]] = []
    was_wanted = False
    for run_id in order:
        if run_id in wanted and was_wanted:
            found[-1].append(run_id)
        elif run_id in wanted:
            found.append([run_id])
        was_wanted = run_id in wanted
    return found


def make_range_tags(neighbours: Sequence[str]) -> dict[str, str]:
    """What tells Dagster that a launch is for a range of partitions."""
    return {_FIRST: neighbours[0], _LAST: neighbours[-1]}
