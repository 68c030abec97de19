"""Which lines of a run's own code copy, wait and launch: what `teetotal what-if RUN` says beside its remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from gold.source_lines import OPERATIONS, TABLE
from lake.sealing import abbreviate_token
from pipelines.cli.show import format_grid
from report.units import format_duration, format_percent
from silver import spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lake.store import Lake

    Row = dict[str, Any]

# What to change at a line that does this. Under CC a pinned copy waits as a pageable one does.
REMEDIES = {
    "pageable_copy": "fewer, larger copies; without CC from pinned memory (pin_memory=True) with non_blocking=True",
    "synchronisation": "read results of the GPU less often (.item(), .cpu(), synchronize)",
    "launch": "fewer, larger kernels: torch.compile, or the step as one CUDA graph",
}
_MOST_LINES = 3


def read_lines(lake: Lake, run_id: str, *, reveal: bool) -> list[Row]:
    """The lines that took most, some for each kind of call; named by tokens unless they are to be revealed."""
    rows = lake.scan(TABLE, [run_id]).collect().sort("total_ns", *TABLE.key, descending=[True, False, False, False])
    found = [row for name in OPERATIONS for row in rows.filter(operation=name).head(_MOST_LINES).to_dicts()]
    if not found:
        return []
    beside = ["run_id", "rank", *spans.TABLE.key]
    named = lake.scan(spans.TABLE, [run_id]).filter(pl.col("ordinal").is_in([row["ordinal"] for row in found]))
    labels = named.select(*beside, "label").collect().to_arrow()
    shown = (lake.reveal(spans.TABLE, labels) if reveal else labels).to_pylist()
    lines = {(row["source_sha256"], row["ordinal"]): row["label"] for row in shown}
    return [{**row, "line": lines.get((row["source_sha256"], row["ordinal"]))} for row in found]


def print_source_lines(rows: Sequence[Row], console: Console) -> None:
    """The lines for a person, and what to change at them; nothing where no trace has Python frames."""
    if not rows:
        return
    cells = [
        {
            "what": row["operation"].replace("_", " "),
            "line": abbreviate_token(row["line"] or ""),
            "calls": f"{row['calls_count']:,}",
            "time": format_duration(row["total_ns"]),
            "share": format_percent(row["share_fraction"]),
        }
        for row in rows
    ]
    console.print("\nwhere its own code copies, waits and launches (measured, on the host, under the profiler):")
    format_grid(console, list(cells[0]), cells, ("calls", "time", "share"))
    for name in sorted({row["operation"] for row in rows}, key=OPERATIONS.index):
        note = f"note: {name.replace('_', ' ')}: {REMEDIES[name]}"
        console.print(note, style="dim", highlight=False, markup=False)
    if any(row["line"] != abbreviate_token(row["line"] or "") for row in rows):
        console.print("lines are sealed: --reveal opens them", style="dim")
