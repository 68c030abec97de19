"""One row per point of a family of runs: how the overhead grows with ranks, bucket cap, messages and bytes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lake.tables import Scope, Table, float64, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

AXES = ("world_size", "bucket_cap_mib", "sealed_message_count", "sealed_mib")
# On an axis only runs that are equal in these are held against each other.
_HELD = {
    "world_size": ("bucket_cap_mib",),
    "bucket_cap_mib": ("world_size",),
    "sealed_message_count": (),
    "sealed_mib": (),
}
# Two places have a line whatever happened there: three are the fewest that can contradict one.
FEWEST_PLACES = 3
_MIB = 1 << 20

TABLE = Table(
    tier="gold",
    name="scaling",
    grain="One row per family of runs (equal but for ranks and bucket cap), regime, axis and run.",
    key=("axis", "tee_run_id"),
    inputs=("silver.runs", "gold.time_breakdown", "gold.sealing_coverage", "gold.step_overhead"),
    scope=Scope.FAMILY,
    partition_by=("family_id",),
    columns=(
        text("family_id", "Name of the family and its regime, such as `family-0123456789abcdef`."),
        text("family", "What the runs have in common, as `field=value` parts."),
        text("regime", "Regime of all of them."),
        text(
            "axis",
            "What the overhead is compared with: ranks, MiB of bucket cap, or messages or MiB to seal per rank and "
            "step.",
            one_of=AXES,
        ),
        text("held", "What the runs on this axis are equal in beside their family, as `field=value` parts."),
        text("tee_run_id", "The run that claims the TEE."),
        text("baseline_run_id", "Its baseline."),
        float64("axis_number", "Where the run stands on the axis."),
        int64("overhead_ns", "What the TEE adds to a step (overhead_ns of gold.step_overhead)."),
        float64("slowdown_ratio", "Ratio of the two.", minimum=0),
        int64(
            "sealed_message_count",
            "Messages per rank and step that must be sealed, rounded down.",
            nullable=True,
            minimum=0,
        ),
        int64("sealed_bytes", "Bytes per rank and step that must be sealed, rounded down.", nullable=True, minimum=0),
        int64("points_count", "Runs of the family on this axis, equal in what is held.", minimum=1),
        int64("places_count", "Places on the axis at which they stand.", minimum=1),
        int64(
            "slope_ns",
            "Overhead per unit of the axis, by least squares; null where the runs stand at fewer than three places.",
            nullable=True,
        ),
        int64("slope_low_ns", "Lower end of its 95 % interval.", nullable=True),
        int64("slope_high_ns", "Upper end.", nullable=True),
        text("evidence", "Where the overhead comes from; the slope is modelled from it.", one_of=EVIDENCE),
        text("reason", "Why there is no slope, as a sentence.", nullable=True),
    ),
)
# Two-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom; the normal one beyond.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_NORMAL = 1.96


def partition(family: str, regime: str) -> str:
    """The id under which a family's rows lie in the lake; no run's id is taken for it."""
    return f"family-{hashlib.sha256(f'{regime}|{family}'.encode()).hexdigest()[:16]}"


def measure(family: str, regime: str, points: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Fit a line through the overheads of a family on each axis that its runs know their place on."""
    rows = [row for axis in AXES for held, some in _groups(axis, points) for row in _on(axis, held, some)]
    named = {"family_id": partition(family, regime), "family": family, "regime": regime}
    return pa.Table.from_pylist([{**row, **named} for row in rows], schema=TABLE.arrow_schema)


def _groups(axis: str, points: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """The runs that may be held against each other on an axis: those that differ in nothing else that is told."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for point in points:
        held = "|".join(f"{name}={'' if point[name] is None else point[name]}" for name in _HELD[axis])
        found.setdefault(held, []).append(point)
    return sorted(found.items())


def _on(axis: str, held: str, points: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    placed = [(_place(axis, point), point) for point in points if point["overhead_ns"] is not None]
    known = [(place, point) for place, point in placed if place is not None]
    if not known:
        return []
    places = np.array([place for place, _ in known])
    line = _line(places, np.array([float(point["overhead_ns"]) for _, point in known]))
    return [
        {
            "axis": axis,
            "evidence": point["evidence"],
            "held": held,
            "places_count": len(set(places.tolist())),
            "axis_number": place,
            "points_count": len(known),
            **{name: point[name] for name in _CARRIED},
            **line,
        }
        for place, point in known
    ]


def _place(axis: str, point: Mapping[str, Any]) -> float | None:
    """Where a run stands; bytes in MiB, since the overhead of one byte is a fraction of a nanosecond."""
    value = point["sealed_bytes" if axis == "sealed_mib" else axis]
    return None if value is None else float(value) / (_MIB if axis == "sealed_mib" else 1)


_CARRIED = ("tee_run_id", "baseline_run_id", "overhead_ns", "slowdown_ratio", "sealed_message_count", "sealed_bytes")


def _line(places: np.ndarray[Any, Any], overheads: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Slope by least squares, with the interval that its residuals allow."""
    count = len(set(places.tolist()))
    if count < FEWEST_PLACES:
        where = "one place" if count == 1 else "two places"
        return _slope(None, None, f"the runs stand at {where} of this axis: a slope needs three")
    spread = places - places.mean()
    slope = float((spread * (overheads - overheads.mean())).sum() / (spread**2).sum())
    free = len(places) - 2
    residuals = overheads - overheads.mean() - slope * spread
    error = float(np.sqrt((residuals**2).sum() / free / (spread**2).sum()))
    return _slope(slope, error * (_STUDENT[free - 1] if free <= len(_STUDENT) else _NORMAL), None)


def _slope(slope: float | None, half: float | None, reason: str | None) -> dict[str, Any]:
    return {
        "slope_ns": None if slope is None else round(slope),
        "slope_low_ns": None if slope is None or half is None else round(slope - half),
        "slope_high_ns": None if slope is None or half is None else round(slope + half),
        "reason": reason,
    }
