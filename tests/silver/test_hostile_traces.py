"""Traces made to mislead: silver stays within its declarations, and nothing is lost.

That DuckDB makes of them what Polars makes, in the soak Spark too, is seen in tests/silver/test_engines_agree.py: they
plan a chain once for all rows of all tests.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from assets.build import silver
from lake import engines
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from silver import collectives, crossings, rejects, rule_counts, runs, spans, steps
from tests.conftest import LandFiles
from tests.support.campaigns import pick_engines
from tests.support.hostile_traces import ALONE, CASES, TOGETHER
from tests.support.silver_rows import Bronze, conform_chain, take_run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lake.tables import Table
    from tests.conftest import LandedRun


@dataclass(frozen=True)
class Conformed:
    """A run as it landed, and its silver tables: as the lake holds them, and as every engine made them."""

    landed: LandedRun
    tables: dict[str, pl.DataFrame]
    by_engine: dict[str, dict[str, pl.DataFrame]]

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """Rows of a table, by their key."""
        return self.tables[table.full_name].sort(table.key).to_dicts()


def beyond_declaration(table: Table, rows: pl.DataFrame) -> list[str]:
    """Every way in which rows are not what their table's declaration says."""
    is_twice = rows.select({"run_id", *table.key}).is_duplicated().any()
    faults = [f"{table.full_name}: a key occurs twice"] if is_twice else []
    for column in table.columns:
        values = rows[column.name]
        if values.null_count() and not column.nullable:
            faults.append(f"{table.full_name}.{column.name}: null")
        values = values.drop_nulls()
        if column.minimum is not None:
            faults += [f"{table.full_name}.{column.name}: {value}" for value in values if value < column.minimum]
        if column.maximum is not None:
            faults += [f"{table.full_name}.{column.name}: {value}" for value in values if value > column.maximum]
        if column.one_of:
            faults += [f"{table.full_name}.{column.name}: {value}" for value in values if value not in column.one_of]
    return faults


def beyond_laws(found: Mapping[str, pl.DataFrame], sources: pl.DataFrame) -> list[str]:
    """Every law that a run's tables break: nothing lost, nothing exposed for longer than it lasted."""
    counts = found[rule_counts.TABLE.full_name].filter(pl.col("effect") != "flagged")
    settled = Counter[str]()
    for source, count in counts.select("source_sha256", "events_count").iter_rows():
        settled[source] += count
    landed = {row["source_sha256"]: row["events_count"] for row in sources.to_dicts() if row["outcome"] == "kept"}
    faults = [
        f"{source[:8]}: {count} landed, {settled[source]} settled"
        for source, count in landed.items()
        if settled[source] != count
    ]
    longer = found[crossings.TABLE.full_name].filter(pl.col("exposed_ns") > pl.col("duration_ns"))
    faults += [f"crossing {row['ordinal']} is exposed for longer than it lasts" for row in longer.to_dicts()]
    met = found[collectives.TABLE.full_name].group_by("match_id").agg(pl.len(), ranks=pl.col("rank").n_unique())
    faults += [
        f"collective {row['match_id']}: {row['len']} rows of {row['ranks']} ranks"
        for row in met.filter(pl.col("len") != pl.col("ranks")).to_dicts()
    ]
    return faults


def beyond(tables: Mapping[str, pl.DataFrame], sources: pl.DataFrame) -> list[str]:
    """Every way in which a run's tables are not what their declarations and laws say."""
    faults = [fault for table in silver.TABLES for fault in beyond_declaration(table, tables[table.full_name])]
    return faults + beyond_laws(tables, sources)


class HostileRuns:
    """Runs of one lake, each a case; conformed when the first test asks for it."""

    def __init__(self, root: Path) -> None:
        keyring = KeyringFile(root / "keyring.json", is_made_on_first_use=True)
        self._lake = Lake(Location.of(root / "lake"), keyring)
        self._land = LandFiles(self._lake, LandingZone(Location.of(root / "landing")))

    def find(self, name: str) -> Conformed:
        """One of the cases."""
        return self.conform_alone(name) if name in ALONE else self.conform_together()[name]

    @cache  # noqa: B019 - one object in all
    def conform_alone(self, name: str) -> Conformed:
        """Land a case and conform it, in the soak with each engine."""
        (manifest, files), run_id = CASES[name], f"alone-{ALONE.index(name)}"
        landed, by_engine, digests = self._land(files, run_id, manifest), {}, []
        for engine in pick_engines():
            by_engine[engine], digest = self._materialise(run_id, engine)
            digests.append(digest)
        assert all(digest == digests[0] for digest in digests)
        return Conformed(landed, by_engine["polars"], by_engine)

    @cache  # noqa: B019 - one object in all
    def conform_together(self) -> dict[str, Conformed]:
        """Land all other cases and conform each with Polars, then all at once, in the soak with each engine."""
        run_ids = {name: f"case-{place}" for place, name in enumerate(TOGETHER)}
        landed = {name: self._land(CASES[name][1], run_id, CASES[name][0]) for name, run_id in run_ids.items()}
        tables = {name: self._materialise(run_id, "polars")[0] for name, run_id in run_ids.items()}
        bronze = Bronze.read(self._lake, range(len(TOGETHER)))
        made = {name: conform_chain(engines.engine(name), bronze) for name in pick_engines()}
        found = {}
        for place, name in enumerate(TOGETHER):
            by_engine = {
                engine: {table.full_name: take_run(some.tables[table.name], place) for table in silver.TABLES}
                for engine, some in made.items()
            }
            found[name] = Conformed(landed[name], tables[name], by_engine)
        return found

    def _materialise(self, run_id: str, engine: str) -> tuple[dict[str, pl.DataFrame], dict[str, str]]:
        written = silver.materialise(self._lake, run_id, engines.engine(engine))
        tables = {table.full_name: self._lake.scan(table, [run_id]).collect() for table in silver.TABLES}
        return tables, {each.table: each.content_sha256 for each in written}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> HostileRuns:
    """The cases, each conformed once for all tests."""
    return HostileRuns(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_trace_is_conformed_within_declarations_whoever_conforms_it(hostile: HostileRuns, name: str) -> None:
    found = hostile.find(name)
    assert beyond(found.tables, found.landed.files) == []
    for engine, tables in found.by_engine.items():
        assert beyond(tables, found.landed.files) == [], engine
        for table, rows in tables.items():
            assert_frame_equal(rows, found.by_engine["polars"][table])
    (run,) = found.rows(runs.TABLE)
    assert run["found_spans_count"] == len(found.rows(spans.TABLE))
    assert len(found.rows(steps.TABLE)) == run["found_steps_count"]


@pytest.mark.parametrize("name", TOGETHER)
def test_a_run_among_others_is_conformed_as_it_is_alone(hostile: HostileRuns, name: str) -> None:
    found = hostile.find(name)
    for table in silver.TABLES:
        # What is sensitive is sealed in the lake.
        columns = [column.name for column in table.columns if not column.sensitive and column.name != "run_id"]
        alone, among = (found.tables, found.by_engine["polars"])
        assert_frame_equal(
            alone[table.full_name].select(columns), among[table.full_name].select(columns), check_row_order=False
        )


# -- one decision at a time ---------------------------------------------------------------------------------------


def test_numbers_that_are_too_large_to_be_steps_or_sizes_are_neither(hostile: HostileRuns) -> None:
    found = hostile.find("names that are no names")
    assert [row["step_source"] for row in found.rows(steps.TABLE)] == ["inferred"]
    assert found.rows(collectives.TABLE) == []
    kept = {row["ordinal"]: row["name"] for row in found.rows(spans.TABLE)}
    assert all(name is None or name.startswith("tee::") for name in kept.values())


def test_a_kernel_is_launched_by_the_call_of_its_correlation_whatever_that_is(hostile: HostileRuns) -> None:
    found = hostile.find("correlations of every size, and twice")
    kernels = [row for row in found.rows(spans.TABLE) if row["is_gpu"]]
    assert [row["is_orphan"] for row in kernels] == [row["correlation_id"] is None for row in kernels]
    assert [row["launch_ts_ns"] for row in kernels if row["correlation_id"] == 0] == [9_000, 9_000]


def test_what_a_message_cannot_be_is_not_known_rather_than_wrong(hostile: HostileRuns) -> None:
    found = hostile.find("groups and messages that cannot be")
    sizes = [(row["group_size"], row["buffer_bytes"]) for row in found.rows(collectives.TABLE)]
    most = 1 << 17, (1 << 40) * 16
    assert sizes[:7] == [(None, 80), (None, 80), (None, 80), (2, None), (2, None), most, (2, None)]


def test_a_span_belongs_to_the_step_that_began_last_and_has_not_ended(hostile: HostileRuns) -> None:
    found = hostile.find("steps that overlap, on several threads")
    numbers = [row["step_number"] for row in found.rows(steps.TABLE)]
    assert numbers == list(range(5)), "numbers that repeat are replaced by places"
    kernels = [row["step_number"] for row in found.rows(spans.TABLE) if row["is_gpu"]]
    assert (kernels[0], kernels[-1]) == (None, None)
    assert None not in kernels[1:3]


def test_a_rank_with_two_traces_keeps_the_steps_and_hooks_of_both(hostile: HostileRuns) -> None:
    found = hostile.find("one rank twice, and worlds that differ")
    assert [(row["rank"], row["step_number"]) for row in found.rows(steps.TABLE)] == [(0, 0), (0, 1), (1, 0)]
    (run,) = found.rows(runs.TABLE)
    assert "more than one trace of rank 0" in run["conflicts"]
    assert "the traces differ (1, 4)" in run["conflicts"]


def test_refused_events_and_files_keep_their_places(hostile: HostileRuns) -> None:
    name = "events and files that are refused"
    found, (_, files) = hostile.find(name), CASES[name]
    sources = {row["source_sha256"]: row["file_name"] for row in found.landed.files.to_dicts()}
    refused = [
        (row["level"], sources[row["source_sha256"]], row["ordinal"], row["offset_bytes"])
        for row in found.rows(rejects.TABLE)
    ]
    assert sorted(refused) == [
        ("byte_range", "d.json", 0, files["d.json"].index(b'{"ph"')),
        ("event", "a.json", 0, files["a.json"].index(b'{"ph"')),
        ("file", "b.txt", 0, 0),
        ("file", "c.txt", 0, 0),
    ]


def test_a_kernel_on_the_stream_of_a_hooks_number_is_not_inside_the_hook(hostile: HostileRuns) -> None:
    found = hostile.find("hooks and their seals, each rank another way")
    broken = [(row["rank"], row["path"]) for row in found.rows(crossings.TABLE) if row["violation"]]
    assert [path for rank, path in broken if rank == 2] == ["nccl"]


@pytest.mark.parametrize("rank", [0, 1], ids=["after a hook within", "without a thread"])
def test_seals_inside_a_hook_are_its_own(hostile: HostileRuns, rank: int) -> None:
    found = hostile.find("hooks and their seals, each rank another way")
    hooks = [row for row in found.rows(crossings.TABLE) if row["rank"] == rank and row["buffer_bytes"] == 1000]
    assert [(row["sealed_message_count"], row["seal_ns"], row["violation"]) for row in hooks] == [(2, 10_000, None)]
