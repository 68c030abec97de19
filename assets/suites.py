"""A table's rules as a Great Expectations suite, whichever engine counts: here and in the benches alone is it imported.

The suite asks for counts alone, and Great Expectations puts them into one query: every row is read once, whatever the
number of rules, and no value of a row is in a result or on a page of the Data Docs.
"""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import great_expectations as gx
from great_expectations.core.id_dict import BatchSpec
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.metric_function_types import MetricPartialFunctionTypes
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.metrics.metric_provider import metric_partial
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view.view import DefaultJinjaPageView
from great_expectations.validator.metric_configuration import MetricConfiguration

from assets.rules import Must

if TYPE_CHECKING:
    from collections.abc import Sequence

    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from great_expectations.validator.validator import ValidationDependencies

    from assets.rules import Rule
    from lake.store import Lake
    from lake.tables import Table

# One suite at a time: all of an engine share what it looks at.
LOCK = threading.Lock()
# What every engine counts, by the name that Great Expectations knows it by.
KINDS, BREAKING, SHARING_KEY = "columns.kinds", "rows.breaking", "rows.sharing_key"
BREAKING_KEYS = ("must", "columns", "arguments")
# What an engine counts over all rows; all that is counted so becomes one query.
counted = partial(
    metric_partial, partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN, domain_type=MetricDomainTypes.TABLE
)
_FETCHED = re.compile(
    r"<script\b.*?</script>|<style\b.*?</style>|<link\b[^>]*>|<img\b[^>]*>", re.DOTALL | re.IGNORECASE
)
_STYLE = "<style>body { font-family: sans-serif; margin: 2em } td { padding: 0.2em 1em; vertical-align: top }</style>"


class Bench(Protocol):
    """Where the rows of a table lie to be looked at: an engine of Great Expectations, over the data files."""

    name: str

    def look(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Lay some runs on the bench; gives the name and the kind of each column, as DuckDB calls it."""

    def validate(self, suite: gx.ExpectationSuite) -> ExpectationSuiteValidationResult:
        """Hold what lies there to a suite."""

    def samples(self, rule: Rule, names: Sequence[str], most: int) -> list[dict[str, Any]]:
        """Some rows that break a rule on rows, by these columns."""


class RuleIsKept(BatchExpectation):
    """Expect that no row (of a rule on columns: no column) breaks the rule."""

    must: str
    columns: list[str]
    arguments: list[Any]

    success_keys: ClassVar[tuple[str, ...]] = BREAKING_KEYS

    def get_validation_dependencies(self, *args: Any, **kwargs: Any) -> ValidationDependencies:
        found = super().get_validation_dependencies(*args, **kwargs)
        domain = {"batch_id": self.batch_id}
        found.set_metric_configuration("rows", MetricConfiguration("table.row_count", domain, {}))
        found.set_metric_configuration("breaking", self._metric(domain))
        return found

    def _metric(self, domain: dict[str, Any]) -> MetricConfiguration:
        if self.must == Must.BE_DECLARED:
            return MetricConfiguration(KINDS, domain, {})
        if self.must == Must.BE_UNIQUE:
            return MetricConfiguration(SHARING_KEY, domain, {"columns": self.columns})
        asked = {"must": self.must, "columns": self.columns, "arguments": self.arguments}
        return MetricConfiguration(BREAKING, domain, asked)

    def _validate(self, metrics: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        breaking = metrics["breaking"]
        if self.must == Must.BE_DECLARED:
            breaking = len(differing(breaking, self.columns, self.arguments))
        what = "columns" if self.must == Must.BE_DECLARED else f"of {metrics['rows']:,} rows"
        return {
            "success": breaking == 0,
            "result": {
                "observed_value": f"{breaking:,} {what} break it",
                "element_count": metrics["rows"],
                "unexpected_count": breaking,
            },
        }


def context() -> EphemeralDataContext:
    """Great Expectations without a project on disk, a progress bar or a word to anybody."""
    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(),
        progress_bars=ProgressBarsConfig(globally=False),
        analytics_enabled=False,
    )
    return gx.get_context(project_config=config, mode="ephemeral")


def suite(name: str, rules: Sequence[Rule]) -> gx.ExpectationSuite:
    """Rules as a suite of that name."""
    return gx.ExpectationSuite(name=name, expectations=[_expectation(rule) for rule in rules])


def _expectation(rule: Rule) -> RuleIsKept:
    return RuleIsKept(
        must=rule.must,
        columns=list(rule.columns),
        arguments=list(rule.arguments),
        severity=FailureSeverity(rule.severity),
        description=rule.sentence,
        meta={"rule": rule.name},
    )


def page(result: ExpectationSuiteValidationResult, run_ids: str, engine: str) -> str:
    """A result as a page of the Data Docs that fetches nothing: what it would load from elsewhere could read it."""
    result.meta["run_id"] = RunIdentifier(run_name=run_ids, run_time=datetime.now(UTC))
    # Not how each engine calls its batch.
    result.meta["batch_spec"] = BatchSpec(data_asset_name=result.suite_name, engine=engine)
    text: str = DefaultJinjaPageView().render(  # type: ignore[no-untyped-call]  # it is not annotated
        ValidationResultsPageRenderer().render(result)
    )
    return _FETCHED.sub("", text).replace("</head>", f"{_STYLE}</head>", 1)


def differing(found: Sequence[dict[str, Any]], names: Sequence[str], kinds: Sequence[Any]) -> list[str]:
    """Where the columns that are there and those declared differ, place by place."""
    there = [f"{column['name']} {column['type']}" for column in found]
    declared = [f"{name} {kind}" for name, kind in zip(names, kinds, strict=True)]
    longest = max(len(there), len(declared))
    pairs = zip(*(texts + ["nothing"] * (longest - len(texts)) for texts in (there, declared)), strict=True)
    return [f"{one} where {other} is declared" for one, other in pairs if one != other]
