"""Laws over generated runs: engines agree, the order of rows means nothing, chunks add up, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import pytest
from polars.testing import assert_frame_equal

from assets.build.chunking import part_of, plan_chunks
from assets.build.silver import TABLES
from lake.engines import PolarsEngine
from tests.support.campaigns import pick_size
from tests.support.generated_runs import BATCHES, join_batch, shuffle
from tests.support.silver_rows import Bronze, conform_chain, event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake.frames import Frame
    from tests.support.silver_rows import Bench, Silver

POLARS = PolarsEngine()


@cache
def _on_polars(number: int) -> Silver:
    return conform_chain(POLARS, join_batch(number))


# -- laws --------------------------------------------------------------------------------------------------


def _same(one: Silver, other: Silver) -> None:
    assert list(one.tables) == list(other.tables)
    for name, frame in one.tables.items():
        assert_frame_equal(frame, other.tables[name], check_exact=True)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_landed_events_are_kept_merged_or_rejected(batch: int) -> None:
    bronze, silver = join_batch(batch), _on_polars(batch)
    landed = Counter(bronze.events.column("source_sha256").to_pylist())
    settled: Counter[str] = Counter()
    for sha256, effect, count in silver.rows("rule_counts", "source_sha256", "effect", "events_count"):
        settled[sha256] += count if effect != "flagged" else 0
    assert settled == landed
    merged = sum(count for effect, count in silver.rows("rule_counts", "effect", "events_count") if effect == "merged")
    rejected = sum(level == "event" for (level,) in silver.rows("rejects", "level"))
    assert len(silver.tables["spans"]) + merged + rejected == bronze.events.num_rows


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_row_keeps_to_its_declaration(batch: int) -> None:
    for table in TABLES:
        frame = _on_polars(batch).tables[table.name]
        assert not frame.select({"run_id", *table.key}).is_duplicated().any(), table.full_name
        for column in table.columns:
            values = frame[column.name]
            where = f"{table.full_name}.{column.name}"
            assert column.nullable or not values.null_count(), where
            assert not column.one_of or set(values.drop_nulls()) <= set(column.one_of), where
            assert column.minimum is None or all(value >= column.minimum for value in values.drop_nulls()), where


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_order_of_rows_means_nothing(batch: int) -> None:
    _same(_on_polars(batch), conform_chain(POLARS, shuffle(join_batch(batch), batch)))


@pytest.fixture(scope="session")
def polars_silver_of_all(bronze_of_all: Bronze) -> Silver:
    """What Polars makes of the rows of all tests and of the generated runs."""
    made = conform_chain(POLARS, bronze_of_all)
    assert set(made.tables["runs"]["run_id"]) == set(bronze_of_all.runs.column("run_id").to_pylist())
    return made


def test_every_engine_makes_what_polars_makes_of_rows_in_another_order(
    silver_of_all: Silver, polars_silver_of_all: Silver
) -> None:
    _same(polars_silver_of_all, silver_of_all)


def _shares(events: Frame, counts: dict[int, int], most: int) -> Iterator[Frame]:
    for chunk in plan_chunks(counts, most):
        rows = chunk.of(events)
        yield rows if chunk.parts == 1 else rows.filter(part_of(chunk.parts) == chunk.part)


# Each chunk is a plan of its own: few events per chunk are tried with few runs, in the soak with all.
@pytest.mark.parametrize(
    ("batch", "runs", "most"), [(0, pick_size(8, 32), pick_size(12, 4)), (1, pick_size(8, 32), 9), (2, 32, 1000)]
)
def test_spans_made_in_chunks_are_those_made_at_once(batch: int, runs: int, most: int) -> None:
    bronze = join_batch(batch, runs)
    counts = Counter(bronze.events.column("rank").to_pylist())

    def shares(events: Frame) -> Iterator[Frame]:
        return _shares(events, dict(counts), most)

    _same(conform_chain(POLARS, bronze), conform_chain(POLARS, bronze, shares))


def test_every_event_falls_into_one_chunk(engine: Bench) -> None:
    ids = [None, 0, 1, -1, 7, -7, (1 << 63) - 1, -(1 << 63)]
    rows = [
        event("x", "cpu_op", ts_ns, 1, correlation_id=number, rank=rank)
        for number in ids
        for ts_ns in ids
        for rank in (0, 1, 2)
    ]
    events = Bronze.of(*rows).events
    shares = _shares(engine.wrap(events), {0: len(ids) ** 2, 1: 5, 2: 5}, 20)
    taken = [(row["rank"], row["ordinal"]) for share in shares for row in engine.rows(share).to_pylist()]
    assert sorted(taken) == sorted((row["rank"], row["ordinal"]) for row in events.to_pylist())
