"""One row per point of a family of runs: how the toll grows with ranks, bucket cap, messages and bytes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lake.tables import RUN_ID, Table, float64, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

AXES = ("world_size", "bucket_cap_mib", "sealed_message_count", "sealed_mib")
_MIB = 1 << 20

TABLE = Table(
    tier="gold",
    name="scaling",
    grain="One row per family of runs (equal but for ranks and bucket cap), regime, axis and run.",
    key=("axis", "tee_run_id"),
    columns=(
        RUN_ID,
        text("family", "What the runs have in common, as `field=value` parts."),
        text("regime", "Regime of all of them."),
        text(
            "axis",
            "What the toll is held against: ranks, MiB of bucket cap, or the messages or MiB to be sealed per rank and "
            "step.",
            one_of=AXES,
        ),
        text("tee_run_id", "The run that claims the TEE."),
        text("baseline_run_id", "Its twin."),
        float64("axis_number", "Where the run stands on the axis."),
        int64("toll_ns", "What the TEE adds to a step (overhead_ns of gold.step_overhead)."),
        float64("slowdown_ratio", "Ratio of the two.", minimum=0),
        int64(
            "sealed_message_count",
            "Messages per rank and step that must be sealed, rounded down.",
            nullable=True,
            minimum=0,
        ),
        int64("sealed_bytes", "Bytes per rank and step that must be sealed, rounded down.", nullable=True, minimum=0),
        int64("points_count", "Runs of the family on this axis.", minimum=1),
        int64(
            "slope_ns",
            "Toll per unit of the axis, by least squares; null where the runs stand at one place.",
            nullable=True,
        ),
        int64("slope_low_ns", "Lower end of its 95 % interval; null below 3 points.", nullable=True),
        int64("slope_high_ns", "Upper end.", nullable=True),
        text("evidence", "Where the toll comes from; the slope is modelled from it.", one_of=EVIDENCE),
        text("reason", "Why there is no slope or no interval, as a sentence.", nullable=True),
    ),
)
# Two-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom; the normal one beyond.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_NORMAL = 1.96


def partition(family: str, regime: str) -> str:
    """The id under which a family's rows lie in the lake; no run's id is taken for it."""
    return f"family-{hashlib.sha256(f'{regime}|{family}'.encode()).hexdigest()[:16]}"


def measure(family: str, regime: str, points: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Fit a line through the tolls of a family on each axis that its runs know their place on."""
    rows = [row for axis in AXES for row in _on(axis, points)]
    named = {"run_id": partition(family, regime), "family": family, "regime": regime}
    return pa.Table.from_pylist([{**row, **named} for row in rows], schema=TABLE.arrow_schema)


def _on(axis: str, points: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    placed = [(_place(axis, point), point) for point in points if point["toll_ns"] is not None]
    known = [(place, point) for place, point in placed if place is not None]
    if not known:
        return []
    places = np.array([place for place, _ in known])
    line = _line(places, np.array([float(point["toll_ns"]) for _, point in known]))
    return [
        {
            "axis": axis,
            "evidence": point["evidence"],
            "axis_number": place,
            "points_count": len(known),
            **{name: point[name] for name in _CARRIED},
            **line,
        }
        for place, point in known
    ]


def _place(axis: str, point: Mapping[str, Any]) -> float | None:
    """Where a run stands; bytes in MiB, since the toll of one byte is a fraction of a nanosecond."""
    value = point["sealed_bytes" if axis == "sealed_mib" else axis]
    return None if value is None else float(value) / (_MIB if axis == "sealed_mib" else 1)


_CARRIED = ("tee_run_id", "baseline_run_id", "toll_ns", "slowdown_ratio", "sealed_message_count", "sealed_bytes")


def _line(places: np.ndarray[Any, Any], tolls: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Slope by least squares, with the interval that its residuals allow."""
    spread = places - places.mean()
    if not spread.any():
        return _slope(None, None, "the runs stand at one place of this axis")
    slope = float((spread * (tolls - tolls.mean())).sum() / (spread**2).sum())
    free = len(places) - 2
    if free < 1:
        return _slope(slope, None, "two points have a slope and no interval")
    residuals = tolls - tolls.mean() - slope * spread
    error = float(np.sqrt((residuals**2).sum() / free / (spread**2).sum()))
    return _slope(slope, error * (_STUDENT[free - 1] if free <= len(_STUDENT) else _NORMAL), None)


def _slope(slope: float | None, half: float | None, reason: str | None) -> dict[str, Any]:
    return {
        "slope_ns": None if slope is None else round(slope),
        "slope_low_ns": None if slope is None or half is None else round(slope - half),
        "slope_high_ns": None if slope is None or half is None else round(slope + half),
        "reason": reason,
    }
