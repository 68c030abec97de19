"""Which tests share a process when several run side by side, and which part of the suite a test belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

# What is set up once for a module, and would be set up again in every process that runs one of its tests.
_WIDE_SCOPES = {"module", "class", "package"}
# Fixtures that every process would set up for itself, at the cost of many tests, and the group of what uses them.
_FIXTURE_GROUPS = {"options": "object-store", "compared_lake": "compared-lake"}
_BROWSER_FIXTURES = {"page", "context", "browser"}
# The parts that continuous integration runs as jobs of their own; all other tests are a fourth.
PARTS = {
    "spark": "needs a Spark session or a cluster",
    "browser": "drives the web interface or the report in a browser",
    "collector": "trains and records with torch",
}


def assign_groups(items: Iterable[pytest.Item]) -> None:
    """Mark each test with its part, and with the group whose tests run in one process, where it has one."""
    for item in items:
        part, group = name_part(item), name_group(item)
        if part is not None:
            item.add_marker(part)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))


def name_part(item: pytest.Item) -> str | None:
    """The part that a test belongs to, by what it needs."""
    if item.nodeid.startswith("tests/spark/") or _needs_spark(item):
        return "spark"
    if item.nodeid.startswith("tests/collector/"):
        return "collector"
    return "browser" if _BROWSER_FIXTURES & set(_fixtures(item)) else None


def name_group(item: pytest.Item) -> str | None:
    """The group of a test: one cluster, one Spark session, one chain of tables per engine, one module's fixtures."""
    if item.nodeid.startswith("tests/spark/"):
        return "cluster"
    if _needs_spark(item):
        return "spark"
    if item.nodeid.startswith("tests/gold/") and _parameters(item).get("engine") == "duckdb":
        return "spark"  # both ask about the rows of all tests, which are collected once
    if "engine" in _parameters(item):
        return f"engine-{_parameters(item)['engine']}"
    for name, group in _FIXTURE_GROUPS.items():
        if name in _fixtures(item):
            return group
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    if any(definition.scope in _WIDE_SCOPES for definitions in known.values() for definition in definitions):
        return item.nodeid.partition("::")[0]
    return None


def _needs_spark(item: pytest.Item) -> bool:
    return "spark" in _fixtures(item) or _parameters(item).get("engine") == "spark"


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return getattr(getattr(item, "callspec", None), "params", {})
