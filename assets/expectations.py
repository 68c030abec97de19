"""Tables held to their word: what is promised, and whether the rows of some runs keep it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from assets import relations
from assets.rules import Check, Must, Rule, rules, shown
from lake.connections import all_cores
from lake.errors import ContractBroken, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from great_expectations.core import ExpectationSuiteValidationResult

    from assets.duckdb_bench import DuckDBBench
    from assets.suites import Bench
    from lake.cluster import Cluster
    from lake.store import Lake
    from lake.tables import Table

__all__ = ["Check", "Held", "Rule", "checks", "hold", "rules"]

MOST_SAMPLES = 5
_UNJUDGED = "not judged: the columns are not as declared"


@dataclass(frozen=True)
class Held:
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


def checks(table: Table) -> tuple[Check, ...]:
    """All that a table is held to: what its declaration promises, and how it relates to other tables."""
    return (*rules(table), *relations.of(table))


def hold(
    lake: Lake, table: Table, run_ids: Sequence[str] | None, docs: Path | None = None, spark: Cluster | None = None
) -> list[Held]:
    """Hold all rows of some runs, or of the whole table, to every check, in the order of `checks`.

    Rules are looked at on DuckDB, or on Spark where one is given; relations are queries of ours, always on DuckDB.
    Great Expectations is imported here, when there is something to check: that takes seconds.
    """
    from assets import suites

    with suites.LOCK:
        bench = _on_duckdb() if spark is None else _on_spark(spark)
        try:
            columns = bench.look(lake, table, run_ids)
        except ContractBroken as error:  # the log, or a data file, lacks a declared column
            return _unreadable(table, error, bench.name)
        promised = rules(table)
        others = suites.differing(columns, promised[0].columns, promised[0].arguments)
        # Of columns that are others than declared, nothing else can be asked.
        held = _kept(bench, table, promised[:1] if others else promised, run_ids, docs)
        rows_count, page = held[0].rows_count, held[0].page
        if others:
            held[0].samples.extend({"column": text} for text in others[:MOST_SAMPLES])
        else:
            held += _related(bench, lake, table, run_ids, rows_count)
    unjudged = checks(table)[len(held) :]
    return held + [Held(check, False, rows_count, 0, bench.name, reason=_UNJUDGED, page=page) for check in unjudged]


@cache
def _on_duckdb() -> DuckDBBench:
    """The one that the process keeps; hold `suites.LOCK` while it is in use."""
    from assets.duckdb_bench import DuckDBBench

    return DuckDBBench(all_cores())


def _on_spark(spark: Cluster) -> Bench:
    session = spark.session()  # without pyspark, this says so
    from assets.spark_bench import SparkBench

    return SparkBench(session)


def _kept(
    bench: Bench, table: Table, judged: tuple[Rule, ...], run_ids: Sequence[str] | None, docs: Path | None
) -> list[Held]:
    """Run rules as a suite, and fetch samples of the rows that break one."""
    from assets import suites

    result = bench.validate(suites.suite(table.full_name, judged))
    counts = dict(_counts(table, result))
    page = None if docs is None else _write(docs, table, run_ids, suites.page(result, _named(run_ids), bench.name))
    held = []
    for rule in judged:
        rows_count, count = counts[rule.name]
        names = shown(table, rule) if count and rule.must is not Must.BE_DECLARED else ()
        samples = bench.samples(rule, names, MOST_SAMPLES) if names else []
        held.append(Held(rule, count == 0, rows_count, count, bench.name, samples, page=page))
    return held


def _related(bench: Bench, lake: Lake, table: Table, run_ids: Sequence[str] | None, rows_count: int) -> Iterator[Held]:
    """Ask how the rows relate to other tables, of a DuckDB that shows them too."""
    asked, related = _on_duckdb(), relations.of(table)
    if related and bench is not asked:
        asked.look(lake, table, run_ids)
    for relation in related:
        count, samples = relations.broken(asked.connection, lake, relation, run_ids)
        yield Held(relation, count == 0, rows_count, count, asked.name, samples)


def _unreadable(table: Table, error: ContractBroken, engine: str) -> list[Held]:
    """A table that cannot be read as it is declared breaks the first rule; the others were not judged."""
    first, *rest = checks(table)
    return [
        Held(first, is_held=False, rows_count=0, broken_count=1, engine=engine, reason=error.what),
        *(Held(check, is_held=False, rows_count=0, broken_count=0, engine=engine, reason=_UNJUDGED) for check in rest),
    ]


def _counts(table: Table, result: ExpectationSuiteValidationResult) -> Iterator[tuple[str, tuple[int, int]]]:
    """Of each rule, how many rows there were and how many broke it; one that could not be asked is an error."""
    for each in result.results:
        if "unexpected_count" not in each.result:
            raise SourceUnavailable(
                f"{table.full_name} could not be checked: {_first_line(each.exception_info)}",
                "a file of the lake could not be read; if the lake has just changed, check again",
            )
        meta = each.expectation_config.meta if each.expectation_config else {}
        yield meta["rule"], (each.result["element_count"], each.result["unexpected_count"])


def _first_line(told: Any) -> str:
    """What went wrong, out of Great Expectations' two ways to say it."""
    found = told if "exception_message" in told else next(iter(told.values()), {})
    lines = str(found.get("exception_message", "no reason given")).splitlines()
    return lines[0][:300]


def _named(run_ids: Sequence[str] | None) -> str:
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
