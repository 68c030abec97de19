"""Silver made of every test's literal rows: all at once, since Spark plans slowly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.silver_rows import Bronze, Silver, apart, conform_chain, take_run

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
    made = conform_chain(engine, Bronze.joined(runs))
    return {key: _select_run(made, place) for place, key in enumerate(marks)}


@pytest.fixture
def found(request: pytest.FixtureRequest, everything: dict[int, Silver]) -> Silver:
    """The silver tables of the run that the test's mark `given` holds."""
    return everything[id(request.node.get_closest_marker("given"))]


def _select_run(everything: Silver, place: int) -> Silver:
    """What came of one test's rows, under the names that the test gave."""
    return Silver({name: take_run(frame, place) for name, frame in everything.tables.items()})
