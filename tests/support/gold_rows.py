"""Silver rows as short literals, and one gold table made of them: shared by the tests of gold."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from unittest import SkipTest

import narwhals as nw
import polars as pl
import pytest

from lake.engines import PolarsEngine
from silver import (
    clock_offsets,
    collectives,
    crossings,
    device_samples,
    nonce_budgets,
    recordings,
    runs,
    spans,
    steps,
    throughput,
)
from tests.support.silver_rows import APART, RUN, rows_of, run_plan, sort_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from lake.frames import Frame
    from lake.tables import Table
    from tests.support.silver_rows import Bench

SILVER = (
    clock_offsets,
    collectives,
    crossings,
    device_samples,
    nonce_budgets,
    recordings,
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


@runtime_checkable
class AnswerByEngine(Protocol):
    """A module of gold that takes rows from an engine on the way, and gives it rows back."""

    TABLE: Table
    measure_by: Callable[..., Frame]


class InSlices:
    """A module of gold as it is used: a part of the answer slice of time by slice, the rest of the whole."""

    # Launches of tests lie on both sides of a cut, and work on another side than its launch. Where a plan is made
    # anew for each slice, two of them are enough: what slices make of a row is the same on every engine.
    BOUNDS = (0, 5, 100, 101, 125, 1 << 62)
    TWO_BOUNDS = (0, 100, 1 << 62)

    def __init__(self, table: Table, part: Callable[..., Frame], measure: Callable[..., Frame]) -> None:
        self.TABLE = table
        self.measure = lambda spans: measure(
            nw.concat([part(spans, low, high) for low, high in self.slice_time(spans)]), spans
        )

    @classmethod
    def slice_time(cls, spans: Frame) -> Iterable[tuple[int, int]]:
        """The slices that an engine is given."""
        return pairwise(cls.BOUNDS if nw.dependencies.is_polars_lazyframe(spans.to_native()) else cls.TWO_BOUNDS)


def measure_rows(bench: Bench, answer: Answer | AnswerByEngine, **rows: Rows) -> pl.DataFrame:
    """What a module of gold makes of rows of silver, named as its arguments are, in the order of its key."""
    result = {name: _fill_rows(TABLES[name], literal) for name, literal in rows.items()}
    if isinstance(bench, BatchEngine):
        return bench.answer(answer, result)
    if isinstance(bench, Recorder):
        bench.cases.setdefault(id(answer), []).append(result)
        bench = bench.engine
    return _measure(bench, answer, result)


def _measure(bench: Bench, answer: Answer | AnswerByEngine, rows: dict[str, Rows]) -> pl.DataFrame:
    frames = {name: bench.wrap(rows_of(TABLES[name], literal)) for name, literal in rows.items()}
    measure = partial(answer.measure_by, bench) if isinstance(answer, AnswerByEngine) else answer.measure
    return sort_rows(answer.TABLE, run_plan(bench, measure(**frames), answer.TABLE))


Cases = dict[int, list[dict[str, Rows]]]


class Recorder:
    """Stands for an engine in a test that is run only to learn which rows it will ask about: Polars answers it."""

    def __init__(self) -> None:
        self.engine = PolarsEngine()
        self.cases: Cases = {}

    def wrap(self, _: pa.Table) -> Frame:
        """A test that asks an engine as such is left at once: Hypothesis would try other rows after another error."""
        raise SkipTest("asked of an engine as such")


def record_cases(items: Iterable[pytest.Item]) -> Cases:
    """The rows that tests of gold will ask engines about, by the answer that they ask for: each test's once."""
    recorder = Recorder()
    seen = set()
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if not isinstance(item, pytest.Function) or parameters.get("engine", "polars") == "polars":
            continue
        arguments = {name: parameters[name] for name in item.fixturenames if name in parameters and name != "engine"}
        if (test := (item.obj, *map(id, arguments.values()))) not in seen:
            seen.add(test)
            # A test that needs more than parameters, or an engine as such, is planned by itself.
            with suppress(Exception):
                item.obj(**arguments, engine=recorder)
    return recorder.cases


class BatchEngine:
    """An engine that answers from one query per answer, over the rows of all tests, each as a run of its own."""

    def __init__(self, engine: Bench, cases: Cases) -> None:
        self.name, self.wrap, self.rows = engine.name, engine.wrap, engine.rows
        self._cases = cases
        self._answers: dict[int, pl.DataFrame] = {}

    def answer(self, answer: Answer | AnswerByEngine, rows: dict[str, Rows]) -> pl.DataFrame:
        """What the engine makes of the rows of one test, under the run that the test names."""
        cases = self._cases.get(id(answer), [])
        if rows not in cases or any(row["run_id"] != RUN for literal in rows.values() for row in literal):
            return _measure(self, answer, rows)
        if id(answer) not in self._answers:
            self._answers[id(answer)] = _measure(self, answer, _join(cases, _find_distance(answer)))
        place = cases.index(rows)
        own = self._answers[id(answer)].filter(pl.col("run_id") == _name(place)).with_columns(run_id=pl.lit(RUN))
        return own.with_columns(pl.col("rank") - place * _find_distance(answer)) if "rank" in own.columns else own


def _find_distance(answer: Answer | AnswerByEngine) -> int:
    """How far apart the ranks of two cases are: an answer that is asked of one run may look at ranks alone."""
    return APART if getattr(answer, "is_of_one_run", False) else 0


def _join(cases: list[dict[str, Rows]], distance: int) -> dict[str, Rows]:
    """The rows of all cases, each case a run; one that names runs itself is left out."""
    joined: dict[str, Rows] = {name: [] for name in cases[0]}
    for place, case in enumerate(cases):
        if all(row["run_id"] == RUN for literal in case.values() for row in literal):
            for name, literal in case.items():
                joined[name] += [_set_apart(row, place, place * distance) for row in literal]
    return joined


def _set_apart(row: dict[str, Any], place: int, distance: int) -> dict[str, Any]:
    ranks = {"rank": row["rank"] + distance} if row.get("rank") is not None else {}
    return {**row, "run_id": _name(place), **ranks}


def _name(place: int) -> str:
    return f"case-{place}"


def _fill_rows(table: Table, rows: Rows) -> Rows:
    """The rows of one run, of rank 0 unless they say; where events have a place in their source, no two share it."""
    has_place = "ordinal" in table.key
    is_ranked = any(column.name == "rank" and not column.nullable for column in table.columns)
    common = {"run_id": RUN, **({"rank": 0} if is_ranked else {})}
    return [{**common, **({"ordinal": place} if has_place else {}), **row} for place, row in enumerate(rows)]
