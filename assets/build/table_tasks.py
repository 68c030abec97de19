"""A run's tables made by executors, wave by wave: files are written there, and committed here in one transaction."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from assets.build.chunking import Chunk
    from lake.executors import Executors, Site
    from lake.snapshot import Written
    from lake.staging import Staged
    from lake.store import Lake
    from lake.tables import Table


@dataclass(frozen=True)
class TableOrder:
    """One table of a run, or some chunks of it, and where its files are to wait."""

    run_id: str
    table: str
    spool: str
    chunks: tuple[Chunk, ...] = ()
    # What was measured before, where it is not a table of the lake.
    rows: pa.Table | None = None


Wave = list[tuple["Table", list[tuple["Chunk", ...]]]]


def hand_out(
    executors: Executors,
    lake: Lake,
    run_id: str,
    work: Callable[[Site, TableOrder], list[Staged]],
    waves: Sequence[Wave],
    made_from: Callable[[Table], str],
    rows: dict[str, pa.Table] | None = None,
) -> list[Written]:
    """Make the tables of each wave side by side, and commit each as soon as its wave is done."""
    written = []
    for wave in waves:
        with ExitStack() as exits:
            stages = {table.name: exits.enter_context(lake.stage(table, run_id)) for table, _ in wave}
            orders = [
                TableOrder(run_id, table.name, str(stages[table.name].spool), portion, (rows or {}).get(table.name))
                for table, portions in wave
                for portion in portions
            ]
            for order, staged in zip(orders, executors.each(work, orders), strict=True):
                stages[order.table].keep(*staged)
            written += [lake.commit(stage, made_from(stage.table)) for stage in stages.values()]
    return written
