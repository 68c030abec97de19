from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
import sqlalchemy as sa

from assets.build.catalogue import TABLES, table
from assets.checks import backends, relations
from assets.checks.duckdb_backend import DuckDBBackend
from assets.checks.expectations import check_tables, checks
from assets.checks.relation import Relation, find_violations
from lake.connections import open_parallel
from lake.duckdb_dialect import URL, sharing
from lake.locations import Location
from lake.store import Lake
from tests.support.campaigns import is_soak
from tests.support.tampered_tables import change, copy_lake, count_broken, put

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tampered_tables import Change

TEE, BASELINE = "resnet50-sealed-w2", "resnet50-plain-w2"
SECRET = "Ada Lovelace's own words"


def first(column: str, value: Any) -> Change:
    """Put a value into the first row; `value` may be an expression."""
    is_first = pl.int_range(pl.len()) == 0
    known = value if isinstance(value, pl.Expr) else pl.lit(value)
    return lambda rows: rows.with_columns(pl.when(is_first).then(known).otherwise(pl.col(column)).alias(column))


def repeat_first(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([rows, rows.head(1)])


def nothing(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.clear()


def one_fewer(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.tail(-1)


def one_fewer_at_the_end(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.head(-1)


def row(**values: Any) -> Change:
    """One row, null wherever nothing is given."""
    return lambda rows: pl.DataFrame([{**dict.fromkeys(rows.columns), **values}], schema=rows.schema)


UNREADABLE = row(
    run_id=TEE, source_sha256="0" * 64, offset_bytes=0, length_bytes=1, reason=f"at {SECRET}", beginning=SECRET
)
# Each fault, in the table that it is planted in, and the one check that names it, with its count.
FAULTS: dict[str, tuple[str, Change, str, int]] = {
    "null key": ("silver.steps", first("step_number", None), "step_number_is_never_null", 1),
    "duplicate key": ("silver.crossings", repeat_first, "key_is_unique", 2),
    "negative duration": ("silver.steps", first("duration_ns", -1), "duration_ns_is_in_its_range", 1),
    "too much": ("gold.kernel_breakdown", first("share_fraction", 1.5), "share_fraction_is_in_its_range", 1),
    "unknown kind": ("silver.spans", first("kind", "dancing"), "kind_is_of_its_set", 1),
    "no number": ("gold.step_overhead", first("slowdown_ratio", float("nan")), "slowdown_ratio_is_finite", 1),
    "plaintext": ("silver.spans", first("label", SECRET), "label_is_sealed", 1),
    "a key's id alone": ("silver.runs", first("host", "sealed:1:k0000000:"), "host_is_sealed", 1),
    "no digest": ("silver.steps", first("source_sha256", "abc"), "source_sha256_is_a_digest", 1),
    "files": ("bronze.runs", first("rejected_files_count", 7), "files_are_kept_merged_or_rejected", 1),
    "events told": ("bronze.runs", first("events_count", 7), "counts_agree_with_source_files", 1),
    "lost event": ("bronze.trace_events", one_fewer, "events_are_those_that_landed", 1),
    "record": (
        "bronze.training_log",
        row(run_id=TEE, source_sha256="0" * 64, ordinal=0, offset_bytes=0, record="csv"),
        "records_are_those_that_landed",
        1,
    ),
    "rows told": ("bronze.source_files", first("rows_count", 7), "rows_are_in_the_tables", 1),
    "byte_range": ("bronze.unreadable", UNREADABLE, "byte_ranges_are_those_that_landed", 1),
    "lost count": ("silver.rule_counts", one_fewer_at_the_end, "landed_is_kept_merged_or_rejected", 1),
    "lost span": ("silver.spans", one_fewer, "spans_are_the_events_kept", 1),
    "reject": (
        "silver.rejects",
        row(run_id=TEE, level="event", source_sha256="0" * 64, ordinal=0, reason="bad"),
        "rejects_are_the_events_rejected",
        1,
    ),
    "lost period": ("silver.throughput", one_fewer, "periods_are_those_of_the_logs", 1),
    "collective out of nothing": ("silver.collectives", first("ordinal", 10**9), "collectives_are_spans", 1),
    "crossing out of nothing": ("silver.crossings", first("ordinal", 10**9), "crossings_are_spans", 1),
    "spans told": ("silver.runs", first("found_spans_count", 7), "counts_agree_with_tables", 1),
    "sum": ("gold.time_breakdown", first("compute_ns", pl.col("compute_ns") + 1), "parts_sum_to_the_step", 1),
    "lost step": ("gold.time_breakdown", one_fewer, "steps_are_those_of_silver", 1),
    "idle parts": ("gold.idle_breakdown", first("other_ns", pl.col("other_ns") + 1), "idle_parts_sum_to_the_whole", 1),
    "memory events": ("gold.memory_timeline", first("frees_count", 1), "memory_is_that_of_silver", 1),
    "copied bytes": ("gold.copy_bandwidth", first("copies_count", 99), "copies_are_the_gpu_spans", 1),
    "sequences": ("gold.kernel_sequences", first("sequences_count", 0), "sequences_are_of_the_gpu_spans", 1),
    "chain": ("gold.critical_path", first("host_ns", pl.col("host_ns") + 1), "chains_sum_to_the_step", 1),
    "waits": ("gold.queue_timeline", first("queued_ns", 10**15), "waits_are_those_of_the_queues", 1),
    "calls of no module": ("gold.module_time", first("calls_count", 10**6), "modules_are_those_of_silver", 1),
    "launched work": ("gold.operator_time", first("launched_count", 10**6), "operators_are_those_of_silver", 1),
    "kernel time": ("gold.kernel_breakdown", first("total_ns", pl.col("total_ns") + 1), "kernels_are_the_gpu_spans", 1),
    "violations": ("gold.sealing_coverage", first("violations_count", 99), "crossings_are_those_of_silver", 1),
    "energy of no step": (
        "gold.step_energy",
        row(
            run_id=TEE,
            timed_by="profile",
            rank=0,
            period="step",
            step_number=10**6,
            device_id=0,
            ts_ns=1,
            duration_ns=1,
            stands_for_count=1,
            is_warmup=False,
            samples_count=0,
            has_enough_readings=False,
            evidence="unobservable",
        ),
        "steps_are_those_of_their_clock",
        1,
    ),
    "step without a time": ("gold.step_times", first("step_ns", None), "steps_are_timed_or_explained", 1),
    "source without a row": ("gold.step_times", one_fewer, "steps_are_timed_or_explained", 1),
    "two fates": ("gold.sealing_coverage", first("plain_bytes", 99), "promises_have_one_fate", 1),
    "straggler": ("gold.stragglers", first("match_id", "of nobody"), "collectives_are_those_of_silver", 1),
    "baseline": ("gold.pairs", first("baseline_run_id", "nobody"), "runs_of_the_pair_exist", 1),
    "regime of a baseline": (
        "gold.step_overhead",
        first("baseline_regime", "hopper_ppcie"),
        "runs_of_the_pair_exist",
        1,
    ),
    "difference": ("gold.step_overhead", first("overhead_ns", 1), "overhead_is_that_of_the_steps", 1),
    "lost difference": ("gold.step_overhead", first("overhead_ns", None), "overhead_is_that_of_the_steps", 1),
    "delta": (
        "gold.overhead_breakdown",
        first("overhead_ns", pl.col("overhead_ns") + 1),
        "parts_sum_to_the_overhead",
        1,
    ),
}
# One fault of each table is also looked for among the rows of all runs; in the soak every one.
ASKED_OF_ALL_RUNS = {name: (name, how) for name, how, _, _ in FAULTS.values()}.values()


@pytest.fixture
def changeable_lake(recorded_lake: Lake, tmp_path: Path) -> Lake:
    """The recordings, to be tampered with."""
    return copy_lake(recorded_lake, tmp_path / "tampered")


@pytest.mark.parametrize("name", TABLES)
def test_everything_holds_on_the_recordings(recorded_lake: Lake, name: str) -> None:
    held = check_tables(recorded_lake, table(name), None)
    assert count_broken(held) == {}
    assert tuple(each.check for each in held) == checks(table(name))
    rows = recorded_lake.scan(table(name)).select(pl.len()).collect().item()
    assert {each.rows_count for each in held} == {rows}


@pytest.mark.parametrize(("name", "how", "check", "count"), FAULTS.values(), ids=FAULTS.keys())
def test_a_planted_fault_is_counted_by_the_check_that_names_it_and_by_no_other(
    changeable_lake: Lake, name: str, how: Change, check: str, count: int
) -> None:
    change(changeable_lake, table(name), TEE, how)
    assert count_broken(check_tables(changeable_lake, table(name), [TEE])) == {check: count}
    if is_soak() or (name, how) in ASKED_OF_ALL_RUNS:
        assert count_broken(check_tables(changeable_lake, table(name), None)) == {check: count}


def test_only_the_runs_in_question_are_looked_at(changeable_lake: Lake) -> None:
    change(changeable_lake, table("silver.spans"), TEE, one_fewer)
    held = check_tables(changeable_lake, table("silver.spans"), [BASELINE])
    assert count_broken(held) == {}
    assert (
        held[0].rows_count == changeable_lake.scan(table("silver.spans"), [BASELINE]).select(pl.len()).collect().item()
    )


def test_every_relation_is_broken_by_some_fault() -> None:
    names = {relation.name for relation in relations.RELATIONS}
    assert names - {check for _, _, check, _ in FAULTS.values()} == {
        "rows_belong_to_a_run",
        "overheads_are_those_of_the_pairs",
        "steps_are_those_of_the_runs",  # of gold.history: tests/assets/test_histories.py
    }


@pytest.mark.parametrize("name", ["silver.crossings", "silver.spans", "silver.steps", "gold.time_breakdown"])
def test_rows_of_no_run_are_all_counted(changeable_lake: Lake, name: str) -> None:
    change(changeable_lake, table("silver.runs"), TEE, nothing)
    rows = changeable_lake.scan(table(name), [TEE]).select(pl.len()).collect().item()
    assert count_broken(check_tables(changeable_lake, table(name), [TEE])) == {"rows_belong_to_a_run": rows}


def test_an_overhead_that_is_not_that_of_its_pair_is_found(changeable_lake: Lake) -> None:
    family, *_ = changeable_lake.snapshot(table("gold.scaling")).run_ids
    change(changeable_lake, table("gold.scaling"), family, first("overhead_ns", 1))
    assert count_broken(check_tables(changeable_lake, table("gold.scaling"), [family])) == {
        "overheads_are_those_of_the_pairs": 1
    }


def test_columns_of_another_kind_are_named_and_nothing_else_is_judged(changeable_lake: Lake) -> None:
    steps = table("silver.steps")
    rows = changeable_lake.scan(steps, [TEE]).collect().with_columns(pl.col("ts_ns").cast(pl.String)).to_arrow()
    put(changeable_lake, steps, TEE, rows)
    first_held, *others = check_tables(changeable_lake, steps, [TEE])
    assert (first_held.broken_count, first_held.samples) == (
        1,
        [{"column": "ts_ns VARCHAR where ts_ns BIGINT is declared"}],
    )
    assert {(each.is_held, each.broken_count, each.reason) for each in others} == {
        (False, 0, "not judged: the columns are not as declared")
    }


def test_a_missing_column_is_a_broken_check_and_no_error(changeable_lake: Lake) -> None:
    steps = table("silver.steps")
    put(changeable_lake, steps, TEE, changeable_lake.scan(steps, [TEE]).drop("ts_ns").collect().to_arrow())
    held = check_tables(changeable_lake, steps, [TEE])
    assert held[0].reason == "a data file does not have all declared columns"
    assert {each.is_held for each in held} == {False}


def test_samples_name_the_rows_and_are_few(changeable_lake: Lake) -> None:
    change(
        changeable_lake, table("silver.spans"), TEE, lambda rows: rows.with_columns(duration_ns=pl.lit(-1, pl.Int64))
    )
    (found,) = [each for each in check_tables(changeable_lake, table("silver.spans"), [TEE]) if not each.is_held]
    assert found.broken_count == found.rows_count > 5
    assert len(found.samples) == 5
    assert found.samples[0].keys() == {"run_id", "rank", "source_sha256", "ordinal", "duration_ns"}
    assert {sample["duration_ns"] for sample in found.samples} == {-1}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("silver.spans", first("label", SECRET)),
        ("bronze.source_files", lambda rows: repeat_first(first("file_name", SECRET)(rows).head(1))),
        ("bronze.source_files", first("outcome", SECRET)),
        ("bronze.unreadable", lambda rows: repeat_first(UNREADABLE(rows))),
        ("bronze.trace_events", lambda rows: repeat_first(first("name", SECRET)(rows))),
    ],
)
def test_plaintext_is_in_no_result_and_on_no_page(
    changeable_lake: Lake, tmp_path: Path, name: str, how: Change
) -> None:
    change(changeable_lake, table(name), TEE, how)
    held = check_tables(changeable_lake, table(name), [TEE], tmp_path / "docs")
    assert count_broken(held)
    assert SECRET not in repr(held)
    pages = [path for path in (tmp_path / "docs").rglob("*") if path.is_file()]
    assert pages == [held[0].page]
    assert SECRET not in pages[0].read_text("utf-8")


def test_a_page_shows_every_rule_fetches_nothing_and_is_replaced(changeable_lake: Lake, tmp_path: Path) -> None:
    steps, docs = table("silver.steps"), tmp_path / "docs"
    change(changeable_lake, steps, TEE, first("duration_ns", -1))
    pages = [
        {each.page for each in check_tables(changeable_lake, steps, run_ids, docs) if each.page}
        for run_ids in ([TEE], [TEE], [TEE, BASELINE], [BASELINE, TEE], None)
    ]
    assert pages == [
        {docs / "silver" / "steps" / f"{name}.html"} for name in (TEE, TEE, "_several", "_several", "_all")
    ]
    assert sorted(path.name for path in docs.rglob("*.*")) == ["_all.html", "_several.html", f"{TEE}.html"]
    text = (docs / "silver" / "steps" / f"{TEE}.html").read_text("utf-8")
    assert "duration_ns is at least 0" in text
    assert "1 of " in text
    assert "<script" not in text
    assert "url(" not in text


def test_the_dialect_gives_results_that_outlive_their_connection_and_columns_of_views() -> None:
    with open_parallel() as connection:
        connection.sql(
            "SELECT 'a' AS name, 1 AS slot, 2::BIGINT AS ts_ns, 0.5::DOUBLE AS w, true AS is_it"
        ).create_view("seen")
        engine = sa.create_engine(URL, **sharing(connection))
        with engine.connect() as session:
            rows: sa.CursorResult[Any] = session.execute(
                sa.select(sa.column("name")).select_from(sa.table("seen")).where(sa.column("slot") == 1)
            )
        assert rows.fetchall() == [("a",)]
        answer = sa.inspect(engine).get_columns("seen")
        assert {column["name"]: str(column["type"]) for column in answer} == {
            "name": "VARCHAR",
            "slot": "INTEGER",
            "ts_ns": "BIGINT",
            "w": "DOUBLE",
            "is_it": "BOOLEAN",
        }
        assert not sa.inspect(engine).has_table("unseen")


@pytest.mark.parametrize("relation", [one for table in TABLES.values() for one in relations.list_relations(table)])
def test_no_relation_is_broken_where_no_table_has_a_row(relation: Relation, tmp_path: Path) -> None:
    backend, empty = DuckDBBackend(open_parallel()), Lake(Location.of(str(tmp_path)))
    backend.read(empty, relation.table, ["run"])
    assert find_violations(backend, empty, relation, ["run"]) == (0, [])


@pytest.mark.parametrize("relation", [one for one in relations.RELATIONS if one.is_of_rows], ids=str)
def test_a_relation_of_rows_is_never_broken_where_its_table_has_none(relation: Relation, recorded_lake: Lake) -> None:
    backend = DuckDBBackend(open_parallel())
    backend.read(recorded_lake, relation.table, ["no-such-run"])
    assert any(recorded_lake.files(one, None) for one in relation.reads)
    # All runs of what it reads, none of its own.
    for other in relation.reads:
        backend.show(recorded_lake, other, None)
    assert backend.connection.execute(relation.query).fetchall() == []


def test_a_relation_counts_all_rows_that_break_it_and_shows_a_few(recorded_lake: Lake) -> None:
    backend = DuckDBBackend(open_parallel())
    spans = table("silver.spans")
    backend.read(recorded_lake, spans, [TEE])
    all_rows = Relation(name="none", sentence="none", table=spans, query="SELECT run_id, ordinal FROM checked")
    count, samples = find_violations(backend, recorded_lake, all_rows, [TEE])
    assert count == recorded_lake.snapshot(spans).partition(TEE).rows > 10_000
    assert [list(one) for one in samples] == [["run_id", "ordinal"]] * 5


def test_a_view_follows_the_runs_that_it_is_asked_for(recorded_lake: Lake) -> None:
    backend, steps = DuckDBBackend(open_parallel()), table("silver.steps")
    for run_ids in ([TEE], [BASELINE], [TEE, BASELINE], [TEE], ["no-such-run"], [TEE]):
        backend.show(recorded_lake, steps, run_ids)
        found = backend.connection.execute("SELECT DISTINCT run_id FROM silver.steps ORDER BY run_id").fetchall()
        assert [run_id for (run_id,) in found] == sorted(set(run_ids) - {"no-such-run"})


def test_a_run_without_rows_is_checked_without_a_query(recorded_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "count_violations", lambda *_: pytest.fail("the engine was asked"))
    found = check_tables(recorded_lake, table("silver.spans"), ["no-such-run"])
    assert [one.check for one in found] == list(checks(table("silver.spans")))
    assert {(one.is_held, one.rows_count, one.broken_count) for one in found} == {(True, 0, 0)}
