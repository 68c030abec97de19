"""Silver made of every test's literal rows: all at once, since Spark plans slowly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.support.silver_rows import APART, RUN, Bronze, Silver, apart, conformed

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark that carries a test's rows."""
    config.addinivalue_line("markers", "given(*rows): the bronze rows of the run that the test looks at")


@pytest.fixture(scope="session")
def everything(request: pytest.FixtureRequest, engine: Bench) -> dict[int, Silver]:
    """The silver tables of every test that has a mark `given`, by that mark.

    All rows go through one chain, each test's as a run with ranks and sources of its own. So no run may leak into
    another, and Spark, which takes half a minute to plan the chain, has to plan it once.
    """
    # The mark of a test is one object, whatever engine the test runs on.
    marks = {id(mark): mark for item in request.session.items if (mark := item.get_closest_marker("given"))}
    runs = (Bronze.of(*mark.args, adapt=apart(place)) for place, mark in enumerate(marks.values()))
    made = conformed(engine, Bronze.joined(runs))
    return {key: _returned(made, place) for place, key in enumerate(marks)}


@pytest.fixture
def found(request: pytest.FixtureRequest, everything: dict[int, Silver]) -> Silver:
    """The silver tables of the run that the test's mark `given` holds."""
    return everything[id(request.node.get_closest_marker("given"))]


def _returned(everything: Silver, place: int) -> Silver:
    """What came of one test's rows, under the names that the test gave."""
    return Silver({name: _own(frame, place) for name, frame in everything.tables.items()})


def _own(frame: pl.DataFrame, place: int) -> pl.DataFrame:
    mine = frame.filter(pl.col("run_id") == f"case-{place}").with_columns(run_id=pl.lit(RUN))
    if "source_sha256" in mine.columns:
        mine = mine.with_columns(pl.col("source_sha256").str.strip_prefix(f"case-{place}/"))
    for name in ("rank", "reference_rank"):
        if name in mine.columns:
            mine = mine.with_columns(pl.col(name) - place * APART)
    if "key_scope" in mine.columns:
        mine = mine.with_columns(
            key_scope=pl.col("key_scope").str.replace(r"^rank \d+", pl.format("rank {}", pl.col("rank")))
        )
    return mine
