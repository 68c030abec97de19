"""Gold made of literal rows: all cases of a table at once, but for Polars, since planning takes others seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lake.engines import engine as lake_engine
from lake.spark import SparkEngine
from tests.support.gold_rows import BatchEngine, record_cases

if TYPE_CHECKING:
    from tests.support.gold_rows import Cases
    from tests.support.silver_rows import Bench


@pytest.fixture(scope="session")
def cases(request: pytest.FixtureRequest) -> Cases:
    """The rows that all tests of gold ask about."""
    return record_cases(item for item in request.session.items if item.path.parent == Path(__file__).parent)


@pytest.fixture(scope="session", params=["polars", "duckdb", "spark"])
def engine(request: pytest.FixtureRequest) -> Bench:
    """Each engine in turn; all but Polars answer from one query per table over the rows of all tests."""
    if request.param == "polars":
        return lake_engine("polars")
    cases = request.getfixturevalue("cases")
    if request.param == "spark":
        return BatchEngine(SparkEngine(request.getfixturevalue("spark")), cases)
    return BatchEngine(lake_engine(request.param), cases)
