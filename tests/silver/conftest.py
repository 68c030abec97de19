"""Silver made of every test's literal rows: all at once, since Spark plans slowly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import LandFiles
from tests.support.campaigns import is_soak, pick_size
from tests.support.generated_runs import BATCHES, FIRST_PLACE, join_batch, shuffle
from tests.support.hostile_traces import CASES
from tests.support.silver_rows import Bronze, Silver, apart, conform_chain, take_run

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from tests.support.silver_rows import Bench

# Where the runs stand that were landed from files; the generated ones come before them.
LANDED_PLACE = 2 * FIRST_PLACE


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark that carries a test's rows."""
    config.addinivalue_line("markers", "given(*rows): the bronze rows of the run that the test looks at")


@pytest.fixture(scope="session")
def bronze_of_all(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: Bench) -> Bronze:
    """The rows of every test that has a mark `given`, of the generated runs and of the hostile files, side by side.

    Spark gets the hostile files in the soak alone: the more there is, the longer it takes.
    """
    runs = _adapt_given(request.session.items)
    assert len(runs) < FIRST_PLACE, "generated runs have the places from there on"
    batches = [join_batch(number) for number in range(pick_size(1, BATCHES))]
    is_landing = engine.name != "spark" or is_soak()
    landed = [_land_hostile_files(tmp_path_factory.mktemp("landed"))] if is_landing else []
    return Bronze.joined([*runs, *batches, *landed])


def _land_hostile_files(directory: Path) -> Bronze:
    """What bronze holds of every hostile trace, and of the run that has each trap: each a run of its own."""
    from tests.silver.test_planted_faults import FILES, MANIFESTS

    land = LandFiles.open(directory)
    cases = [*CASES.values(), *((manifest, FILES) for manifest in MANIFESTS.values())]
    for place, (manifest, files) in enumerate(cases, LANDED_PLACE):
        land.write(files, f"case-{place}", manifest)
        land.materialise(f"case-{place}")
    return Bronze.read(land.lake, range(LANDED_PLACE, LANDED_PLACE + len(cases)))


@pytest.fixture(scope="session")
def silver_of_all(request: pytest.FixtureRequest, engine: Bench) -> Silver:
    """What an engine makes of these rows, in another order; of the marked ones alone where no test asks for all.

    All go through one chain, each test's as a run with ranks and sources of its own. So no run may leak into
    another, and Spark, which takes a minute to plan the chain, has to plan it once.
    """
    items = request.session.items
    if not any("bronze_of_all" in getattr(item, "fixturenames", []) for item in items):
        return conform_chain(engine, Bronze.joined(_adapt_given(items)))
    return conform_chain(engine, shuffle(request.getfixturevalue("bronze_of_all"), 200))


@pytest.fixture(scope="session")
def everything(request: pytest.FixtureRequest, silver_of_all: Silver) -> dict[int, Silver]:
    """The silver tables of every test that has a mark `given`, by that mark."""
    marks = _list_marks(request.session.items)
    return {id(mark): _select_run(silver_of_all, place) for place, mark in enumerate(marks)}


def _list_marks(items: list[pytest.Item]) -> list[pytest.Mark]:
    """The marks `given`, each once: the mark of a test is one object, whatever engine the test runs on."""
    return list({id(mark): mark for item in items if (mark := item.get_closest_marker("given"))}.values())


def _adapt_given(items: list[pytest.Item]) -> list[Bronze]:
    return [Bronze.of(*mark.args, adapt=apart(place)) for place, mark in enumerate(_list_marks(items))]


@pytest.fixture
def found(request: pytest.FixtureRequest, everything: dict[int, Silver]) -> Silver:
    """The silver tables of the run that the test's mark `given` holds."""
    return everything[id(request.node.get_closest_marker("given"))]


def _select_run(everything: Silver, place: int) -> Silver:
    """What came of one test's rows, under the names that the test gave."""
    return Silver(_TablesOfRun(everything.tables, place))


class _TablesOfRun(dict[str, "pl.DataFrame"]):
    """Tables of one run among many, each taken when a test asks for it: most tests look at one or two."""

    def __init__(self, everything: dict[str, pl.DataFrame], place: int) -> None:
        super().__init__()
        self._everything, self._place = everything, place

    def __missing__(self, name: str) -> pl.DataFrame:
        self[name] = take_run(self._everything[name], self._place)
        return self[name]
