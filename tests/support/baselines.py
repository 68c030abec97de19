"""Two runs as rows of gold.time_breakdown: shared by the tests of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold import time_breakdown
from gold.pairs import Pair
from gold.time_breakdown import PARTS
from tests.support.silver_rows import rows_of

if TYPE_CHECKING:
    import pyarrow as pa

PAIR = Pair("tee", "sw_per_hop_aesgcm", "plain", "manifest")


def cell(number: int, rank: int = 0, *, is_warmup: bool = False, **parts: int | None) -> dict[str, Any]:
    """One step; parts that are not named took no time."""
    known = {part: parts.get(part, 0) for part in PARTS}
    return {
        "rank": rank,
        "step_number": number,
        "is_warmup": is_warmup,
        "duration_ns": sum(length or 0 for length in known.values()),
        **{f"{part}_ns": length for part, length in known.items()},
    }


def steps(run_id: str, *cells: dict[str, Any]) -> pa.Table:
    """A run's table."""
    return rows_of(time_breakdown.TABLE, [{"run_id": run_id, "evidence": "measured", **row} for row in cells])


def steady(run_id: str, *durations: int) -> pa.Table:
    """A run of one rank whose steps are all compute."""
    return steps(run_id, *(cell(number, compute=length) for number, length in enumerate(durations)))
