from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw
import pyarrow as pa
import pytest

from lake.engines import PolarsEngine
from lake.errors import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake.engines import Engine
    from lake.frames import Frame

SCHEMA = pa.schema([("number", pa.int64()), ("group", pa.string()), ("unread", pa.string())])


def share(*numbers: int) -> pa.Table:
    rows = [{"number": number, "group": "even" if number % 2 == 0 else "odd", "unread": "x"} for number in numbers]
    return pa.Table.from_pylist(rows, SCHEMA)


SHARES = [share(1, 2, 3, 4), share(), share(10, 12), share(-1, 7, 8)]


def summed(events: Frame) -> Frame:
    """A plan that filters, leaves a column unread, and uses its input twice."""
    positive = events.filter(nw.col("number") > 1)
    counts = events.group_by("group").agg(rows=nw.len().cast(nw.Int64))
    sums = positive.group_by("group").agg(sum=nw.col("number").sum().cast(nw.Int64))
    return sums.join(counts, on="group", how="left").select("group", "sum", "rows")


def test_one_plan_gives_of_each_share_what_it_gives_of_that_share_alone(engine: Engine) -> None:
    found = [sorted(rows.to_pylist(), key=lambda row: row["group"]) for rows in engine.each(summed, iter(SHARES))]
    assert found == [
        [{"group": "even", "sum": 6, "rows": 2}, {"group": "odd", "sum": 3, "rows": 2}],
        [],
        [{"group": "even", "sum": 22, "rows": 2}],
        [{"group": "even", "sum": 8, "rows": 1}, {"group": "odd", "sum": 7, "rows": 2}],
    ]


def test_polars_plans_once_for_all_shares_and_reads_none_before_its_turn() -> None:
    planned, read = [], []

    def plan(events: Frame) -> Frame:
        planned.append(events)
        return summed(events)

    def shares() -> Iterator[pa.Table]:
        for number, rows in enumerate(SHARES):
            read.append(number)
            yield rows

    found = PolarsEngine().each(plan, shares())
    assert read == []
    next(found)
    assert read == [0]
    assert len(list(found)) == len(SHARES) - 1
    assert len(planned) == 1


def test_a_share_of_other_columns_is_an_error_that_quotes_no_row() -> None:
    secret = pa.table({"number": ["a secret"], "group": ["even"], "unread": ["x"]})
    found = PolarsEngine().each(summed, [SHARES[0], secret])
    next(found)
    with pytest.raises(ContractBroken) as caught:
        next(found)
    assert "secret" not in str(caught.value)
