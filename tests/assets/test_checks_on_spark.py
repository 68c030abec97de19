"""Great Expectations on Spark: whatever DuckDB finds, and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from assets.build.catalogue import TABLES, table
from assets.checks.expectations import check_tables, list_rules
from assets.checks.rules import Must
from lake.cluster import Cluster
from lake.errors import DataDamaged, SourceUnavailable
from tests.support.campaigns import is_soak
from tests.support.tampered_tables import change, copy_lake, count_broken, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assets.checks.expectations import CheckResult
    from lake.store import Lake
    from lake.tables import Table
    from tests.support.tampered_tables import Change, count_broken

RUN, BASELINE = "resnet50-sealed-w2", "resnet50-plain-w2"
TOKEN = "sealed:1:k0000000:AAAA"
DIGEST = "0" * 64

pytestmark = pytest.mark.usefixtures("spark")


def at(number: int, column: str, value: Any) -> Change:
    """Put a value into one row."""
    is_there = pl.int_range(pl.len()) == number
    return lambda rows: rows.with_columns(pl.when(is_there).then(pl.lit(value)).otherwise(pl.col(column)).alias(column))


def all_of(*changes: Change) -> Change:
    """One change after the other."""

    def change_rows(rows: pl.DataFrame) -> pl.DataFrame:
        for one in changes:
            rows = one(rows)
        return rows

    return change_rows


def values(column: str, *given: Any) -> Change:
    """Put values into the first rows."""
    return all_of(*(at(number, column, value) for number, value in enumerate(given)))


def repeat_first_twice(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([rows, rows.head(1), rows.head(1)])


@dataclass(frozen=True)
class Fault:
    """Values that break a rule, values that look as if, and null, which breaks none but one."""

    must: Must
    change: Change
    counts: dict[str, int]


# Of every kind of rule, all faults of a table at once: a look at a table takes Spark seconds, whatever is in it.
# No two faults of a table share a cell; the rows that a fault adds are copies of one that breaks no other rule.
FAULTS: dict[str, tuple[Fault, ...]] = {
    "silver.steps": (
        Fault(Must.BE_PRESENT, values("duration_ns", None, None), {"duration_ns_is_never_null": 2}),
        Fault(
            Must.BE_WITHIN,
            all_of(at(2, "duration_ns", -1), at(3, "duration_ns", 0)),
            {"duration_ns_is_in_its_range": 1},
        ),
        Fault(
            Must.BE_UNIQUE,  # a null in the key
            lambda rows: pl.concat([at(3, "step_number", None)(rows), at(3, "step_number", None)(rows)[3:4]]),
            {"key_is_unique": 2, "step_number_is_never_null": 2},
        ),
    ),
    "silver.crossings": (Fault(Must.BE_UNIQUE, repeat_first_twice, {"key_is_unique": 3}),),
    "silver.spans": (
        Fault(
            Must.BE_ONE_OF,
            values("kind", "dancing", "COMPUTE", "", None),
            {"kind_is_of_its_set": 3, "kind_is_never_null": 1},
        ),
        Fault(
            Must.BE_SHAPED,  # a token
            values(
                *("label", TOKEN, None, f"{TOKEN}\n", f"\n{TOKEN}", f" {TOKEN}", TOKEN.upper(), f"{TOKEN}é"),
                *(f"{TOKEN}\nx", ""),
            ),
            {"label_is_sealed": 7},
        ),
        Fault(
            Must.BE_SHAPED,  # a digest
            values("source_sha256", DIGEST, f"{DIGEST}\n", f"{DIGEST}0", f"{'0' * 63}A", f"{'0' * 63}\u0660"),
            {"source_sha256_is_a_digest": 4},
        ),
    ),
    "gold.kernel_breakdown": (
        Fault(
            Must.BE_WITHIN,
            values("share_fraction", 1.5, -0.5, -0.0, 1.0, float("nan"), float("inf"), float("-inf")),
            {"share_fraction_is_in_its_range": 4},
        ),
        # Three of the same values are no numbers.
        Fault(Must.BE_FINITE, all_of(), {"share_fraction_is_finite": 3}),
    ),
}


@pytest.fixture
def changeable_lake(recorded_lake: Lake, tmp_path: Path) -> Lake:
    """The recordings, to be tampered with; files of one table are harmed as they lie there."""
    return copy_lake(recorded_lake, tmp_path / "tampered", table("silver.steps"))


def on_both(
    lake: Lake, name: str, run_ids: Sequence[str] | None = (RUN,), docs: Path | None = None
) -> tuple[list[CheckResult], list[CheckResult]]:
    """What DuckDB and what Spark finds."""
    theirs = check_tables(lake, table(name), run_ids, docs and docs / "duckdb")
    return theirs, check_tables(lake, table(name), run_ids, docs and docs / "spark", Cluster())


def describe_results(held: list[CheckResult]) -> list[tuple[str, bool, int, int, str | None]]:
    return [(one.check.name, one.is_held, one.rows_count, one.broken_count, one.reason) for one in held]


def collect_samples(held: list[CheckResult]) -> dict[str, set[str]]:
    """The samples of each broken check, in no order."""
    return {one.check.name: {repr(sorted(sample.items())) for sample in one.samples} for one in held if one.samples}


def tables_of_every_kind() -> list[str]:
    """Few tables that together have every kind of rule on every kind of column; all in the soak.

    One of them has no rows, and one is not kept by run.
    """
    if is_soak():
        return list(TABLES)
    kinds = {
        name: {(rule.must, declared.column(column).kind) for rule in list_rules(declared) for column in rule.columns}
        for name, declared in TABLES.items()
    }
    chosen = ["bronze.copy_rates", "gold.published"]
    missing = set[tuple[Must, str]]().union(*kinds.values()).difference(*(kinds[name] for name in chosen))
    while missing:
        chosen.append(max(kinds, key=lambda name: len(kinds[name] & missing)))
        missing -= kinds[chosen[-1]]
    return chosen


def test_tables_of_a_recording_hold_on_both_engines(recorded_lake: Lake) -> None:
    for name in tables_of_every_kind():
        theirs, ours = on_both(recorded_lake, name)
        assert describe_results(ours) == describe_results(theirs), name
        assert count_broken(ours) == {}, name
        promised = len(list_rules(table(name)))
        assert [one.engine for one in ours] == ["spark"] * promised + ["duckdb"] * (len(ours) - promised)
        assert {one.engine for one in theirs} == {"duckdb"}


def test_the_faults_are_of_every_kind() -> None:
    planted = {fault.must for faults in FAULTS.values() for fault in faults}
    assert planted | {Must.BE_DECLARED} == set(Must)
    for name, faults in FAULTS.items():
        of_rules = {rule.name: rule.must for rule in list_rules(table(name))}
        assert all(fault.must in {of_rules[check] for check in fault.counts} for fault in faults)
        assert sum(len(fault.counts) for fault in faults) == len({check for fault in faults for check in fault.counts})


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_the_same_on_both_engines(changeable_lake: Lake, name: str) -> None:
    change(changeable_lake, table(name), RUN, all_of(*(fault.change for fault in FAULTS[name])))
    theirs, ours = on_both(changeable_lake, name)
    of_rules = {rule.name for rule in list_rules(table(name))}
    counts = {check: count for fault in FAULTS[name] for check, count in fault.counts.items()}
    assert {check: count for check, count in count_broken(ours).items() if check in of_rules} == counts
    assert describe_results(ours) == describe_results(theirs)
    few = {one.check.name for one in ours if one.broken_count <= 5}
    assert {check: found for check, found in collect_samples(ours).items() if check in few} == {
        check: found for check, found in collect_samples(theirs).items() if check in few
    }
    assert {one.check.name: len(one.samples) for one in ours} == {one.check.name: len(one.samples) for one in theirs}
    assert any(one.samples for one in ours)


def of_another_kind(lake: Lake, where: Table, run_id: str, column: str, kind: pl.DataType) -> None:
    put(lake, where, run_id, lake.scan(where, [run_id]).collect().with_columns(pl.col(column).cast(kind)).to_arrow())


@pytest.mark.parametrize(("kind", "word"), [(pl.String(), "VARCHAR"), (pl.Int32(), "INTEGER"), (pl.Date(), "DATE")])
def test_columns_of_another_kind_are_named_by_what_the_files_hold(
    changeable_lake: Lake, kind: pl.DataType, word: str
) -> None:
    steps = table("silver.steps")
    rows = changeable_lake.scan(steps, [RUN]).collect()
    put(changeable_lake, steps, RUN, rows.with_columns(pl.lit(None).cast(kind).alias("aligned_ts_ns")).to_arrow())
    theirs, ours = on_both(changeable_lake, "silver.steps")
    assert describe_results(ours) == describe_results(theirs)
    assert ours[0].samples == theirs[0].samples
    assert ours[0].samples == [{"column": f"aligned_ts_ns {word} where aligned_ts_ns BIGINT is declared"}]


def test_a_missing_column_is_a_broken_check_and_no_error(changeable_lake: Lake) -> None:
    steps = table("silver.steps")
    put(changeable_lake, steps, RUN, changeable_lake.scan(steps, [RUN]).drop("ts_ns").collect().to_arrow())
    theirs, ours = on_both(changeable_lake, "silver.steps")
    assert describe_results(ours) == describe_results(theirs)
    assert ours[0].reason == "a data file does not have all declared columns"


def test_a_file_that_is_gone_is_named_by_both_engines(changeable_lake: Lake) -> None:
    steps = table("silver.steps")
    Path(changeable_lake.files(steps, [RUN])[0]).unlink()
    for spark in (None, Cluster()):
        with pytest.raises(DataDamaged, match=rf"^silver.steps, run {RUN}: data file \S+ is missing \("):
            check_tables(changeable_lake, steps, [RUN], spark=spark)


def test_a_file_that_an_engine_cannot_read_is_worth_another_try(changeable_lake: Lake) -> None:
    steps = table("silver.steps")
    path = Path(changeable_lake.files(steps, [RUN])[0])
    size = path.stat().st_size
    path.unlink()  # it is one file with that of the lake that all tests share
    path.write_bytes(b"\0" * size)
    for spark in (None, Cluster()):
        with pytest.raises(SourceUnavailable, match=r"^silver.steps could not be checked"):
            check_tables(changeable_lake, steps, [RUN], spark=spark)


@pytest.mark.parametrize("run_id", [RUN, BASELINE])
def test_one_file_among_many_with_a_column_of_another_kind_is_found(changeable_lake: Lake, run_id: str) -> None:
    steps = table("silver.steps")
    of_another_kind(changeable_lake, steps, run_id, "ts_ns", pl.String())
    first, *others = check_tables(changeable_lake, steps, None, spark=Cluster())
    assert (first.is_held, first.samples) == (False, [{"column": "ts_ns VARCHAR where ts_ns BIGINT is declared"}])
    assert {one.is_held for one in others} == {False}


def test_samples_are_few_and_pages_tell_what_they_tell_on_duckdb(changeable_lake: Lake, tmp_path: Path) -> None:
    secret = "Ada Lovelace's own words"
    how = all_of(lambda rows: rows.with_columns(duration_ns=pl.lit(-1, pl.Int64)), at(0, "label", secret))
    change(changeable_lake, table("silver.spans"), RUN, how)
    theirs, ours = on_both(changeable_lake, "silver.spans", docs=tmp_path)
    assert describe_results(ours) == describe_results(theirs)
    (found,) = [one for one in ours if one.check.name == "duration_ns_is_in_its_range"]
    assert found.broken_count == found.rows_count > 5
    assert [sample.keys() for sample in found.samples] == [
        {"run_id", "rank", "source_sha256", "ordinal", "duration_ns"}
    ] * 5
    assert secret not in repr(ours)
    pages = [
        (tmp_path / engine / "silver" / "spans" / f"{RUN}.html").read_text("utf-8") for engine in ("duckdb", "spark")
    ]
    assert secret not in pages[1]
    assert _words(pages[1]) == [word.replace("duckdb", "spark") for word in _words(pages[0])]
    assert "label holds nothing but tokens" in pages[1]


def _words(page: str) -> list[str]:
    """What a reader sees of a page, less the time of day."""
    texts = (re.sub(r"\d{4}-?\d\d-?\d\dT\S+", "", text).strip() for text in re.split(r"<[^>]*>|\n", page))
    return [text for text in texts if text]
