"""Silver rows as short literals, and one gold table made of them: shared by the tests of gold."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import narwhals as nw

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
from tests.support.silver_rows import RUN, ordered, rows_of, settled

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from lake.frames import Frame
    from lake.tables import Table
    from tests.support.silver_rows import Bench

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


class InSlices:
    """A module of gold as it is used: a part of the answer slice of time by slice, the rest of the whole."""

    # Launches of tests lie on both sides of a cut, and work on another side than its launch.
    BOUNDS = (0, 5, 100, 101, 125, 1 << 62)

    def __init__(self, table: Table, part: Callable[..., Frame], measure: Callable[..., Frame]) -> None:
        self.TABLE = table
        self.measure = lambda spans: measure(
            nw.concat([part(spans, low, high) for low, high in pairwise(self.BOUNDS)]), spans
        )


def answered(bench: Bench, answer: Answer, **rows: Rows) -> pl.DataFrame:
    """What a module of gold makes of rows of silver, named as its arguments are, in the order of its key."""
    frames = {name: bench.wrap(rows_of(TABLES[name], _told(TABLES[name], literal))) for name, literal in rows.items()}
    return ordered(answer.TABLE, settled(bench, answer.measure(**frames), answer.TABLE))


def _told(table: Table, rows: Rows) -> Rows:
    """The rows of one run; where events have a place in their source, no two have the same."""
    has_place = "ordinal" in table.key
    return [{"run_id": RUN, **({"ordinal": place} if has_place else {}), **row} for place, row in enumerate(rows)]
