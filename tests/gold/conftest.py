"""Gold made of literal rows: on Spark all cases of a table at once, because Spark takes seconds to plan a query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lake.engines import engine as lake_engine
from tests.support.gold_rows import BatchedSpark, record_cases

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench


@pytest.fixture(scope="session", params=["polars", "duckdb", "spark"])
def engine(request: pytest.FixtureRequest) -> Bench:
    """Each engine in turn; Spark answers from one query per table over the rows of all tests."""
    if request.param == "spark":
        own = [item for item in request.session.items if item.path.parent == Path(__file__).parent]
        return BatchedSpark(request.getfixturevalue("spark"), record_cases(own))
    return lake_engine(request.param)
