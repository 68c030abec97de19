"""Training runs as Dagster's partitions: known by their ids, launched in ranges of neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assets.specs import TRAINING_RUNS
from bronze import manifest, runs
from lake.errors import EvidenceRejected, LakeError
from lake.identity import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import dagster as dg

    from lake.landing_zone import LandingZone

# The table that a manifest is read into.
MANIFEST_TABLE = runs.TABLE
# Dagster's list of launches shows tags that are not its own, in the order of their names.
_SHOWN = "partition"
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
    """What tells Dagster that a launch is for a range of partitions, and a person which they are."""
    first, last = neighbours[0], neighbours[-1]
    shown = first if first == last else f"{first} to {last} ({len(neighbours)})"
    return {_SHOWN: shown, _FIRST: first, _LAST: last}


def plan_launches(zone: LandingZone, run_ids: Iterable[str], order: Sequence[str]) -> Iterator[tuple[list[str], bool]]:
    """Ranges to launch, each with whether its manifests can be read.

    One that cannot be read fails in the first table: a launch of all tables would show every one of them as failed.
    """
    wanted = list(run_ids)
    broken = {run_id for run_id in wanted if not _has_readable_manifest(zone, run_id)}
    for some, is_readable in (([name for name in wanted if name not in broken], True), (broken, False)):
        for neighbours in find_ranges(some, order):
            yield neighbours, is_readable


def _has_readable_manifest(zone: LandingZone, run_id: str) -> bool:
    """Whether a launch has more to do than to say what is wrong with the manifest."""
    try:
        manifest.parse(zone.manifest(run_id), f"{run_id}/{MANIFEST}")
    except EvidenceRejected:
        return False
    except LakeError:  # it could not be reached now: the launch tries again
        return True
    return True
