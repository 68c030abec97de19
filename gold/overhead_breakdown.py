"""One row per pair and part of the time: what was added to it; the parts sum to the difference exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gold import comparison
from gold.step_matching import match_steps
from gold.time_breakdown import PARTS
from lake.tables import Scope, Table, float64, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gold.pairs import Pair

    Cells = Sequence[tuple[dict[str, Any], dict[str, Any]]]

# Parts that are one and the same work, whichever way a run records it: only their sum is compared between two modes.
# A hop is sealed, copied, sent, waited for, received and opened; what a plain ring copies, a sealed one seals.
GROUPS = {
    "hop": ("collective", "crypto", "transport", "wait"),
    "compute": ("compute", "memset"),
    "copy": ("copy", "blocking_copy"),
    "host": ("launch", "sync", "host"),
    "rest": ("idle", "unattributed"),
}
_GROUP_OF = {part: group for group, parts in GROUPS.items() for part in parts}

TABLE = Table(
    tier="gold",
    name="overhead_breakdown",
    grain="One row per pair and part of the time.",
    key=("part_ordinal",),
    inputs=("silver.runs", "gold.time_breakdown"),
    scope=Scope.PAIR,
    columns=(
        *comparison.SIDES,
        int64("part_ordinal", "Place of the part in the fixed priority, from 0.", minimum=0),
        text(
            "part_group",
            "Parts that are compared as one: a hop is sealing, sending, waiting for peers, receiving and opening.",
            one_of=tuple(GROUPS),
        ),
        int64(
            "group_overhead_ns",
            "What was added to the group: the sum over its parts; null where one of them was not observed.",
            nullable=True,
        ),
        text("part", "Part of gold.time_breakdown.", one_of=PARTS),
        int64(
            "step_ns",
            "Mean over matched ranks and steps of the run; the parts sum to the mean step.",
            nullable=True,
            minimum=0,
        ),
        int64("baseline_step_ns", "The same of its baseline.", nullable=True, minimum=0),
        int64(
            "overhead_ns",
            "The first less the second; the deltas sum to the difference of the mean steps.",
            nullable=True,
        ),
        float64("share_fraction", "Its share of that difference; null where the means are equal.", nullable=True),
        int64("cells_count", "Ranks times steps that were compared.", minimum=0),
        text("evidence", "measured on both sides, or unobservable on one.", one_of=EVIDENCE),
        text("reason", "Why there is no delta, as a sentence.", nullable=True),
    ),
)


def measure(pair: Pair, tee: pa.Table, baseline: pa.Table) -> pa.Table:
    """Take the mean of each part on both sides, rounded so that the parts still sum, and subtract."""
    cells = match_steps(tee, baseline).cells
    if not cells:
        return TABLE.arrow_schema.empty_table()
    blind = {part for part in PARTS for side in (0, 1) if any(cell[side][f"{part}_ns"] is None for cell in cells)}
    ours, baselines = (_means([cell[side] for cell in cells], blind) for side in (0, 1))
    total = sum(ours.values()) - sum(baselines.values())
    added = {
        group: None if blind.intersection(parts) else sum(ours[part] - baselines[part] for part in parts)
        for group, parts in GROUPS.items()
    }
    rows = []
    for ordinal, part in enumerate(PARTS):
        row: dict[str, Any] = {
            **comparison.name_sides(pair),
            "part_ordinal": ordinal,
            "part_group": _GROUP_OF[part],
            "group_overhead_ns": added[_GROUP_OF[part]],
            "part": part,
            "cells_count": len(cells),
        }
        if part in blind:
            row |= {"evidence": "unobservable", "reason": _reason(part, cells)}
        else:
            delta = ours[part] - baselines[part]
            row |= {
                "step_ns": ours[part],
                "baseline_step_ns": baselines[part],
                "overhead_ns": delta,
                "share_fraction": delta / total if total else None,
                "evidence": "measured",
            }
        rows.append({**dict.fromkeys(TABLE.column_names), **row})
    return pa.Table.from_pylist(rows, schema=TABLE.arrow_schema)


def average_part(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    """Mean of a part, or of a group of parts, over ranks and steps of one run; None where one was not observed."""
    parts = GROUPS.get(name) if name not in PARTS else (name,)
    steady = [row for row in rows if not row["is_warmup"]]
    values = [row[f"{part}_ns"] for row in steady for part in parts or ()]
    if not values or None in values:
        return None
    return float(sum(values) / len(steady))


def find_dominant_part(cells: Cells) -> tuple[str | None, float | None]:
    """The part that grew most, and its share of the whole difference."""
    deltas = {
        part: sum((tee[f"{part}_ns"] or 0) - (baseline[f"{part}_ns"] or 0) for tee, baseline in cells) for part in PARTS
    }
    total = sum(tee["duration_ns"] - baseline["duration_ns"] for tee, baseline in cells)
    if total <= 0:
        return None, None
    part = max(PARTS, key=lambda name: deltas[name])
    return part, deltas[part] / total


def _means(rows: Sequence[dict[str, Any]], blind: set[str]) -> dict[str, int]:
    """Mean of each part, rounded by the running total, so that the parts sum to the mean of the step.

    A part that one side could not observe goes into what is not attributed, on both sides.
    """
    sums = {part: 0 if part in blind else sum(row[f"{part}_ns"] for row in rows) for part in PARTS}
    sums["unattributed"] += sum(row["duration_ns"] for row in rows) - sum(sums.values())
    means, running = {}, 0
    for part in PARTS:
        means[part] = (running + sums[part]) // len(rows) - running // len(rows)
        running += sums[part]
    return means


def _reason(part: str, cells: Cells) -> str:
    sides = [
        name
        for side, name in enumerate(("the run", "its baseline"))
        if any(c[side][f"{part}_ns"] is None for c in cells)
    ]
    return f"not observed in {' and '.join(sides)}; it is part of what is not attributed"
