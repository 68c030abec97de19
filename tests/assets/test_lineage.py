"""The graph that people read is the graph that is computed."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from assets.build import comparisons, gold, silver
from assets.build.catalogue import TABLES
from assets.build.lineage import LANDING, UPSTREAM
from lake.engines import PolarsEngine
from tests.support.small_runs import OFF, TEE, trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from lake.frames import Frame
    from lake.store import Lake
    from lake.tables import Table
    from tests.conftest import LandFiles


def test_every_table_has_its_origin_and_none_comes_from_itself() -> None:
    assert UPSTREAM.keys() == TABLES.keys()
    assert {name for names in UPSTREAM.values() for name in names} <= {*TABLES, LANDING}
    TopologicalSorter(UPSTREAM).prepare()


def test_a_tier_reads_what_the_graph_says(lake: Lake, land_files: LandFiles) -> None:
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
    comparisons.build_pairs(lake)
    assert read == {name for table in gold.PAIR_TABLES for name in UPSTREAM[table.full_name]}
    read.clear()
    comparisons.build_families(lake)
    assert read == set(UPSTREAM["gold.scaling"])
