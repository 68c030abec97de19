from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw
import polars as pl
import pyarrow as pa
import pytest

from lake.engines import DuckDBEngine, PolarsEngine
from lake.errors import ContractBroken
from lake.frames import compute_once, cut_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake.engines import Engine
    from lake.frames import Frame

SCHEMA = pa.schema([("number", pa.int64()), ("group", pa.string()), ("unread", pa.string())])


def share(*numbers: int) -> pa.Table:
    rows = [{"number": number, "group": "even" if number % 2 == 0 else "odd", "unread": "x"} for number in numbers]
    return pa.Table.from_pylist(rows, SCHEMA)


SHARES = [share(1, 2, 3, 4), share(), share(10, 12), share(-1, 7, 8)]


def sum_events(events: Frame) -> Frame:
    """A plan that filters, leaves a column unread, and uses its input twice."""
    positive = events.filter(nw.col("number") > 1)
    counts = events.group_by("group").agg(rows=nw.len().cast(nw.Int64))
    sums = positive.group_by("group").agg(sum=nw.col("number").sum().cast(nw.Int64))
    return sums.join(counts, on="group", how="left").select("group", "sum", "rows")


def test_one_plan_gives_of_each_share_what_it_gives_of_that_share_alone(engine: Engine) -> None:
    found = [sorted(rows.to_pylist(), key=lambda row: row["group"]) for rows in engine.each(sum_events, iter(SHARES))]
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
        return sum_events(events)

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
    found = PolarsEngine().each(sum_events, [SHARES[0], secret])
    next(found)
    with pytest.raises(ContractBroken) as caught:
        next(found)
    assert "secret" not in str(caught.value)


def share_frames(rows: Frame) -> Frame:
    """A plan that shares a frame, and below it another."""
    below = compute_once(rows.with_columns(twice=nw.col("number") * 2))
    above = compute_once(below.filter(nw.col("number") > 1).join(below.select("number", other="group"), on="number"))
    return above.join(above.group_by("group").agg(most=nw.col("twice").max()), on="group", how="left")


def test_what_is_shared_is_the_same_rows_on_every_engine(engine: Engine) -> None:
    found = engine.rows(share_frames(engine.wrap(share(1, 2, 3, 4)))).select(["number", "other", "twice", "most"])
    assert sorted(found.to_pylist(), key=lambda row: row["number"]) == [
        {"number": 2, "other": "even", "twice": 4, "most": 8},
        {"number": 3, "other": "odd", "twice": 6, "most": 6},
        {"number": 4, "other": "even", "twice": 8, "most": 8},
    ]


@pytest.mark.parametrize("is_small", [True, False])
def test_polars_computes_what_is_shared_once_however_deep_it_lies(is_small: bool) -> None:
    times = []

    def noting(rows: pl.DataFrame) -> pl.DataFrame:
        times.append(rows.height)
        return rows

    source = pl.DataFrame(share(1, 2, 3, 4)).lazy().map_batches(noting)
    PolarsEngine().rows(share_frames(nw.from_native(source)), is_small=is_small)
    assert times == [4]


def test_a_plan_that_is_cut_has_the_same_rows_and_nothing_behind_them(engine: Engine) -> None:
    long = engine.wrap(share(1, 2, 3, 4))
    for _ in range(3):
        long = long.join(long.select("number"), on="number")
    cut = cut_plan(long)
    assert sorted(row["number"] for row in engine.rows(cut).to_pylist()) == [1, 2, 3, 4]
    assert "join" in _explain(engine, long)
    # Polars plans once, when it runs: its plan stays whole.
    assert ("join" in _explain(engine, cut)) == (engine.name == "polars")


def _explain(engine: Engine, frame: Frame) -> str:
    native = frame.to_native()
    return str(native._jdf.queryExecution().logical() if engine.name == "spark" else native.explain()).lower()


def test_a_fault_within_a_plan_that_is_cut_quotes_no_row() -> None:
    texts = DuckDBEngine().wrap(pa.table({"text": ["a secret"]}))
    with pytest.raises(ContractBroken) as caught:
        cut_plan(texts.select(number=nw.col("text").cast(nw.Int64)))
    assert "secret" not in str(caught.value)
