"""Tables held to their word: what is promised, and whether the rows of some runs keep it."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb

from assets.checks import relations
from assets.checks.backends import LOCK, list_column_differences
from assets.checks.relation import Relation, find_violations
from assets.checks.rules import Check, Must, Rule, list_rules, list_sample_columns
from lake.connections import open_parallel
from lake.errors import ContractBroken, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from assets.checks.backends import Backend
    from assets.checks.duckdb_backend import DuckDBBackend
    from lake.cluster import Cluster
    from lake.store import Lake
    from lake.tables import Table

__all__ = [
    "Check",
    "CheckResult",
    "Rule",
    "check_name",
    "check_tables",
    "checks",
    "group_by_check",
    "list_rules",
    "tables_read",
]

MOST_SAMPLES = 5
# All that a declaration promises is one asset check: each costs Dagster more than it costs to count it.
_DECLARED = "rows_are_as_declared"
_SEALED = "secrets_are_sealed"
_UNJUDGED = "not judged: the columns are not as declared"


@dataclass(frozen=True)
class CheckResult:
    """What became of one check: how many rows there were, how many broke it, and some of those."""

    check: Check
    is_held: bool
    rows_count: int
    broken_count: int
    # Who looked.
    engine: str
    samples: list[dict[str, Any]] = field(default_factory=list)
    # Why there is no count.
    reason: str | None = None
    # The page of the Data Docs that shows the suite.
    page: Path | None = None


@cache
def checks(table: Table) -> tuple[Check, ...]:
    """All that a table is held to: what its declaration promises, and how it relates to other tables."""
    return (*list_rules(table), *relations.list_relations(table))


def check_name(check: Check) -> str:
    """The asset check that a promise belongs to: the declaration's, or its own where it relates tables."""
    if not isinstance(check, Rule):
        return check.name
    return _SEALED if check.must is Must.BE_SHAPED and check.is_blocking else _DECLARED


def group_by_check(table: Table) -> dict[str, list[Check]]:
    """The asset checks of a table, and the promises that each is made up of."""
    found: dict[str, list[Check]] = defaultdict(list)
    for check in checks(table):
        found[check_name(check)].append(check)
    return found


def tables_read(promises: Iterable[Check]) -> tuple[Table, ...]:
    """The other tables that an asset check reads."""
    read = [table for check in promises if isinstance(check, Relation) for table in check.reads]
    return tuple(dict.fromkeys(read))


def check_tables(
    lake: Lake,
    table: Table,
    run_ids: Sequence[str] | None,
    docs: Path | None = None,
    spark: Cluster | None = None,
    *,
    is_documented: bool = False,
) -> list[CheckResult]:
    """Hold all rows of some runs, or of the whole table, to every check, in the order of `checks`.

    Rules are counted on DuckDB, or on Spark where one is given; relations are queries of ours, always on DuckDB.
    Where a rule fails, or where `is_documented` says so, Great Expectations validates the same rows and writes a page
    of the Data Docs. It is imported only then, because that takes seconds.
    """
    with LOCK:
        backend = _on_duckdb() if spark is None else _on_spark(spark)
        try:
            columns = backend.select(lake, table, run_ids)
        except ContractBroken as error:  # the log, or a data file, lacks a declared column
            return _describe_unreadable(table, error, backend.name)
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            raise _describe_unchecked(table, str(error)) from error
        declared = list_rules(table)
        others = list_column_differences(columns, declared[0])
        # Of columns that are others than declared, nothing else can be asked.
        judged = declared[:1] if others else declared
        counts = backend.count(judged)
        violations = {declared[0].name: len(others), **counts.violations}
        page = None
        if docs is not None and (is_documented or any(violations.values())):
            page = _document(backend, table, judged, run_ids, docs)
        held = [_judge_counts(backend, table, rule, counts.rows, violations[rule.name], page) for rule in judged]
        if others:
            held[0].samples.extend({"column": text} for text in others[:MOST_SAMPLES])
        else:
            held += _check_relations(backend, lake, table, run_ids, counts.rows)
    unjudged = checks(table)[len(held) :]
    return held + [
        CheckResult(check, False, counts.rows, 0, backend.name, reason=_UNJUDGED, page=page) for check in unjudged
    ]


@cache
def _on_duckdb() -> DuckDBBackend:
    """The one that the process keeps; hold `LOCK` while it is in use."""
    from assets.checks.duckdb_backend import DuckDBBackend

    return DuckDBBackend(open_parallel())


def _on_spark(spark: Cluster) -> Backend:
    session = spark.session()  # without pyspark, this says so
    from assets.checks.spark_backend import SparkBackend

    return SparkBackend(session)


def _judge_counts(backend: Backend, table: Table, rule: Rule, rows: int, count: int, page: Path | None) -> CheckResult:
    """What became of one rule, with samples of the rows that violate it."""
    names = list_sample_columns(table, rule) if count and rule.must is not Must.BE_DECLARED else ()
    samples = backend.samples(rule, names, MOST_SAMPLES) if names else []
    return CheckResult(rule, count == 0, rows, count, backend.name, samples, page=page)


def _document(
    backend: Backend, table: Table, judged: Sequence[Rule], run_ids: Sequence[str] | None, docs: Path
) -> Path:
    """Have Great Expectations validate the rows, and write what it says as a page."""
    from assets.checks import suites

    result = suites.validate_table(backend, table, judged)
    failed = next((each for each in result.results if "unexpected_count" not in each.result), None)
    if failed is not None:
        raise _describe_unchecked(table, _first_line(failed.exception_info))
    return _write(docs, table, run_ids, suites.render_page(result, _join_run_ids(run_ids), backend.name))


def _check_relations(
    backend: Backend, lake: Lake, table: Table, run_ids: Sequence[str] | None, rows_count: int
) -> Iterator[CheckResult]:
    """Ask how the rows relate to other tables, of a DuckDB that shows them too."""
    asked, related = _on_duckdb(), relations.list_relations(table)
    if related and backend is not asked:
        asked.select(lake, table, run_ids)
    for relation in related:
        # Where no table has a row, none can break a relation: a run without a trace has dozens of such.
        is_void = backend.is_empty and (
            relation.is_of_rows or not any(lake.files(one, run_ids) for one in relation.reads)
        )
        count, samples = (0, []) if is_void else find_violations(asked, lake, relation, run_ids)
        yield CheckResult(relation, count == 0, rows_count, count, asked.name, samples)


def _describe_unreadable(table: Table, error: ContractBroken, engine: str) -> list[CheckResult]:
    """A table that cannot be read as it is declared breaks the first rule; the others were not judged."""
    first, *rest = checks(table)
    return [
        CheckResult(first, is_held=False, rows_count=0, broken_count=1, engine=engine, reason=error.what),
        *(
            CheckResult(check, is_held=False, rows_count=0, broken_count=0, engine=engine, reason=_UNJUDGED)
            for check in rest
        ),
    ]


def _describe_unchecked(table: Table, why: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"{table.full_name} could not be checked: {why}",
        "a file of the lake could not be read; if the lake has just changed, check again",
    )


def _first_line(exception_info: Any) -> str:
    """What went wrong, out of Great Expectations' two ways to say it."""
    found = exception_info if "exception_message" in exception_info else next(iter(exception_info.values()), {})
    lines = str(found.get("exception_message", "no reason given")).splitlines()
    return lines[0][:300]


def _join_run_ids(run_ids: Sequence[str] | None) -> str:
    return "all runs" if run_ids is None else ", ".join(run_ids)


def _write(docs: Path, table: Table, run_ids: Sequence[str] | None, text: str) -> Path:
    """Put a page in its place, whole: one per table and run, and one for several runs, which the next replaces."""
    # No run's id begins with an underscore.
    name = "_all" if run_ids is None else run_ids[0] if len(run_ids) == 1 else "_several"
    folder = docs / table.tier / table.name
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".{name}.{uuid.uuid4().hex}.part"
    aside.write_text(text, "utf-8")
    return aside.replace(folder / f"{name}.html")
