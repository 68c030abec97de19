"""Silver rows as short literals, and one gold table made of them: shared by the tests of gold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from silver import (
    clock_offsets,
    collectives,
    crossings,
    device_samples,
    nonce_budgets,
    runs,
    spans,
    steps,
    throughput,
)
from tests.silver.rows import RUN, ordered, rows_of, settled

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from lake.frames import Frame
    from lake.tables import Table
    from tests.silver.rows import Bench

SILVER = (
    clock_offsets,
    collectives,
    crossings,
    device_samples,
    nonce_budgets,
    runs,
    spans,
    steps,
    throughput,
)
TABLES = {module.TABLE.name: module.TABLE for module in SILVER}
Rows = list[dict[str, Any]]


class Answer(Protocol):
    """A module of gold."""

    TABLE: Table
    measure: Callable[..., Frame]


def answered(bench: Bench, answer: Answer, **rows: Rows) -> pl.DataFrame:
    """What a module of gold makes of rows of silver, named as its arguments are, in the order of its key."""
    frames = {
        name: bench.wrap(rows_of(TABLES[name], [{"run_id": RUN, **row} for row in literal]))
        for name, literal in rows.items()
    }
    return ordered(answer.TABLE, settled(bench, answer.measure(**frames), answer.TABLE))
