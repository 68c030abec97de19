"""The graph that people read is the graph that is computed."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from assets.build import chunking, comparisons, gold, histories, silver
from assets.build.catalogue import (
    LANDING,
    TABLES,
    UPSTREAM,
    find_inputs,
    find_tables,
    find_transform,
    select,
    sort_tables,
)
from bronze import land, training_log
from lake import engines
from lake.engines import PolarsEngine
from lake.errors import ContractBroken
from lake.keyring import KeyringFile
from lake.store import Lake
from lake.tables import RUN_ID, Kind, Scope, Table
from silver import steps, throughput
from tests.support.build_runs import build_pairs
from tests.support.campaigns import pick_engines
from tests.support.small_runs import OFF, TEE, trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lake.frames import Frame
    from tests.conftest import LandFiles


EMPTY_WITHOUT_FIRST_INPUT = [name for name, table in TABLES.items() if table.is_empty_without_first_input]
_NO_NUMBERS = {Kind.TEXT: "a", Kind.BOOL: True}


def make_row(table: Table) -> pa.Table:
    """One row that has a value in every column."""
    row = {
        one.name: one.one_of[0] if one.one_of else _NO_NUMBERS.get(one.kind, max(one.minimum or 0, 1))
        for one in table.columns
    }
    return pa.Table.from_pylist([row], table.arrow_schema)


def declare(name: str, *inputs: str) -> Table:
    """A table of one column, made from others."""
    return Table("gold", name, "One row per run.", ("run_id",), (RUN_ID,), inputs=inputs)


def test_a_tier_is_made_from_the_tier_before_it_or_from_itself() -> None:
    origins = {"bronze": {"landing"}, "silver": {"bronze", "silver"}, "gold": {"silver", "gold"}}
    for name, inputs in UPSTREAM.items():
        tier = name.partition(".")[0]
        assert {one.partition(".")[0] for one in inputs} <= origins[tier], name
        assert inputs or TABLES[name].scope is Scope.LAKE, f"{name} is made from nothing"


def test_a_table_comes_after_all_that_it_is_made_from() -> None:
    order = [LANDING, *TABLES]
    for name, inputs in UPSTREAM.items():
        assert all(order.index(one) < order.index(name) for one in inputs), name


def test_what_bronze_lands_is_what_its_modules_declare() -> None:
    assert sorted(table.full_name for table in land.TABLES) == sorted(table.full_name for table in select("bronze"))


def test_tables_of_one_wave_do_not_need_each_other() -> None:
    first, second, third = declare("a"), declare("b", "gold.a"), declare("c", "gold.a", "silver.spans")
    assert sort_tables([third, second, first]) == [[first], [second, third]]


def test_tables_that_are_made_from_each_other_are_refused() -> None:
    with pytest.raises(ContractBroken, match=r"made from each other in a circle: gold\.\w from gold\.\w from gold\.\w"):
        sort_tables([declare("a", "gold.b"), declare("b", "gold.a")])


def test_an_input_that_is_no_table_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ContractBroken, match=r"gold\.a is made from silver\.span, which is no table") as refused:
        find_inputs([*TABLES.values(), declare("a", "silver.span")])
    assert "silver.spans" in str(refused.value)


def test_a_module_that_declares_a_table_is_found_and_one_that_imports_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "tier_on_trial"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "steps.py").write_text("from silver.steps import TABLE\n")
    (package / "importing.py").write_text("from silver.spans import TABLE\n")
    (package / "words.py").write_text("TABLE = 'a text'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_tables(import_module("tier_on_trial")) == [steps.TABLE]


@pytest.mark.parametrize("table", [*select("silver"), *select("gold")], ids=lambda table: table.full_name)
def test_a_table_has_a_transform_beside_its_declaration(table: Table) -> None:
    if table.scope is not Scope.LAKE:  # what others have published is given, not computed
        assert callable(find_transform(table))


def test_a_tier_reads_what_the_graph_says(lake: Lake, land_files: LandFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    # A run with rows in all that it lacks here.
    monkeypatch.setattr(chunking, "has_no_source", lambda *_: False)
    read: set[str] = set()

    class Noting(PolarsEngine):
        def read(self, lake: Lake, table: Table, run_ids: Sequence[str]) -> Frame:
            read.add(table.full_name)
            return super().read(lake, table, run_ids)

    land_files({"rank0.json": trace(100)}, "off", OFF)
    for tier, tables in ((silver, silver.TABLES), (gold, gold.RUN_TABLES)):
        read.clear()
        tier.materialise(lake, "off", Noting())
        names = {table.full_name for table in tables}
        upstream = {name for table in names for name in UPSTREAM[table]}
        # What a tier has just made it may have at hand.
        assert read - upstream == set()
        # This one is read only where a run has a file of its kind.
        assert upstream - names - read <= {"bronze.nsys_events"}


def test_comparisons_read_what_the_graph_says(
    lake: Lake, land_files: LandFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id, manifest in (("off", OFF), ("tee", TEE)):
        land_files({"rank0.json": trace(100)}, run_id, manifest)
        silver.materialise(lake, run_id, PolarsEngine())
        gold.materialise(lake, run_id, PolarsEngine())
    read: set[str] = set()
    scan = type(lake).scan

    def noting(self: Lake, table: Table, run_ids: Sequence[str] | None = None) -> object:
        read.add(table.full_name)
        return scan(self, table, run_ids)

    monkeypatch.setattr(type(lake), "scan", noting)
    build_pairs(lake)
    assert read == {name for table in gold.PAIR_TABLES for name in UPSTREAM[table.full_name]}
    read.clear()
    comparisons.build_families(lake)
    assert read == set(UPSTREAM["gold.scaling"])
    read.clear()
    histories.build_histories(lake)
    assert read == set(UPSTREAM["gold.history"])


@pytest.mark.parametrize("engine_name", pick_engines())
@pytest.mark.parametrize("name", EMPTY_WITHOUT_FIRST_INPUT)
def test_a_table_declared_empty_without_its_first_input_is(name: str, engine_name: str) -> None:
    """What is then left unplanned would have been no row, whatever the other inputs hold."""
    engine = engines.engine(engine_name)
    first, *others = (TABLES[one] for one in TABLES[name].inputs)
    inputs = [first.arrow_schema.empty_table(), *map(make_row, others)]
    made = engine.compute(find_transform(TABLES[name]), *map(engine.wrap, inputs), is_small=True)
    assert made.num_rows == 0
    assert made.schema.names == TABLES[name].arrow_schema.names


def test_tables_of_data_that_most_runs_lack_are_not_planned_for_them() -> None:
    assert {name.partition(".")[2] for name in EMPTY_WITHOUT_FIRST_INPUT} >= {
        "attestations",
        "throughput",
        "device_samples",
    }


def test_files_whose_rows_the_log_does_not_count_are_read(lake: Lake, land_files: LandFiles) -> None:
    """Delta's statistics are optional, and whoever rewrites a table may leave them out."""
    land_files({"steps.csv": b"step,duration\n0,1\n1,1\n"})
    log = lake.log(training_log.TABLE)
    for path in log.glob("*.json"):
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for line in lines:
            line.get("add", {}).pop("stats", None)
        path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    again = Lake(lake.place, KeyringFile(lake.place.directory.parent / "keyring.json", is_made_on_first_use=True))
    assert again.snapshot(training_log.TABLE).partition("run-1").rows == 0
    silver.materialise(again, "run-1", PolarsEngine())
    assert again.snapshot(throughput.TABLE).partition("run-1").rows == 2


def test_an_input_of_another_version_is_not_taken_for_an_empty_one(lake: Lake) -> None:
    other = pa.table({"run_id": ["run-1"], "of_another_version": [1]})
    write_deltalake(lake.uri(training_log.TABLE), other, partition_by=["run_id"])
    assert lake.snapshot(training_log.TABLE).outdated
    assert not chunking.has_no_source(lake, throughput.TABLE, "run-1")
