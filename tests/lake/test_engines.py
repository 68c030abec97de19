from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
import pyarrow as pa
import pytest

from lake.engines import DuckDBEngine, PolarsEngine
from lake.errors import ContractBroken
from lake.frames import compute_once, cut_plan
from lake.kept_plans import KeptPlans
from lake.spark import SparkEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

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
    # A plan that is kept is one of these, over what stands in for its inputs.
    PolarsEngine().compute(share_frames, nw.from_native(source), is_small=is_small)
    assert times == [4, 4]


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


def count_above(events: Frame, limits: Frame, *, group: str, is_odd: bool = False) -> Frame:
    """A plan of two inputs and of what it is told."""
    chosen = events.filter(nw.col("group") == group, (nw.col("number") % 2 != 0) == is_odd)
    return (
        chosen.join(limits, on="group").filter(nw.col("number") > nw.col("limit")).select(found=nw.len().cast(nw.Int64))
    )


LIMITS = pa.table({"group": ["even", "odd"], "limit": [2, 1]})


def count_in(engine: Engine, events: pa.Table, group: str, *, is_odd: bool = False) -> int:
    frames = (engine.wrap(events), engine.wrap(LIMITS))
    found = engine.compute(count_above, *frames, is_small=True, group=group, is_odd=is_odd)
    return int(found.column("found")[0].as_py())


def test_a_plan_that_is_kept_gives_of_other_rows_what_they_hold(engine: Engine) -> None:
    assert [count_in(engine, rows, group="even") for rows in SHARES] == [1, 0, 2, 1]
    assert [count_in(engine, rows, group="odd", is_odd=True) for rows in SHARES] == [1, 0, 0, 1]


def test_polars_plans_once_for_each_function_its_columns_and_what_it_is_told() -> None:
    planned: list[tuple[str, list[str]]] = []

    def plan(events: Frame, *, column: str) -> Frame:
        planned.append((column, events.collect_schema().names()))
        return events.select(nw.col(column).sum())

    engine, wider = PolarsEngine(), SHARES[0].append_column("more", pa.array([1, 2, 3, 4]))
    found = [
        engine.compute(plan, engine.wrap(rows), is_small=True, column=column).column(column)[0].as_py()
        for rows, column in [(SHARES[0], "number"), (SHARES[2], "number"), (wider, "number"), (wider, "more")]
    ]
    assert found == [10, 22, 10, 10]
    assert planned == [("number", SCHEMA.names), ("number", wider.schema.names), ("more", wider.schema.names)]


def test_threads_that_run_one_plan_at_once_each_see_their_own_rows() -> None:
    engine, both = PolarsEngine(), Barrier(2)

    def wait(rows: pl.DataFrame) -> pl.DataFrame:
        both.wait(timeout=60)  # neither goes on before the other is in the midst of its run
        return rows

    def plan(events: Frame) -> Frame:
        waiting: Frame = nw.from_native(events.to_native().map_batches(wait))
        return waiting.select(nw.col("number").sum())

    def add_up(rows: pa.Table) -> int:
        return int(engine.compute(plan, engine.wrap(rows), is_small=True).column("number")[0].as_py())

    with ThreadPoolExecutor(2) as pool:
        assert [list(pool.map(add_up, [SHARES[0], SHARES[2]])) for _ in range(3)] == [[10, 22]] * 3


def test_a_plan_that_failed_serves_the_next_and_holds_no_rows() -> None:
    plans, frame = KeptPlans(), pl.DataFrame({"number": [1, 2, 3]}).lazy()
    with pytest.raises(RuntimeError), plans.take(lambda rows: rows, [frame], {}):
        raise RuntimeError
    held = weakref.ref(frame)
    with plans.take(sum_numbers, [frame], {}) as planned:
        assert planned.to_native().collect().item() == 6
    del frame
    assert held() is None
    with plans.take(sum_numbers, [pl.DataFrame({"number": [5]}).lazy()], {}) as again:
        assert again is planned
        assert again.to_native().collect().item() == 5


def sum_numbers(rows: Frame) -> Frame:
    return rows.select(nw.col("number").sum())


def test_what_pyspark_asks_java_for_at_every_column_is_looked_up_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from py4j.clientserver import JavaClient
    from py4j.protocol import REFLECTION_COMMAND_NAME
    from pyspark.sql import Window, functions

    def plan_column() -> None:
        window = Window.partitionBy("run").orderBy("at")
        functions.coalesce(functions.sum("at").over(window), functions.lit(1)).cast("long")

    SparkEngine(spark)
    plan_column()
    sent: list[str] = []
    send = JavaClient.send_command

    def note(client: JavaClient, command: str, *args: Any, **how: Any) -> Any:
        sent.append(command)
        return send(client, command, *args, **how)

    monkeypatch.setattr(JavaClient, "send_command", note)
    plan_column()
    assert len(sent) > 5
    assert not [command for command in sent if command.startswith(REFLECTION_COMMAND_NAME)]
