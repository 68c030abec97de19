"""Which tests share a process when several run side by side: those that share something that is slow to set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

_WIDE = {"module", "class", "package"}


def assign_groups(items: Iterable[pytest.Item]) -> None:
    """Mark each test that belongs to a group; the others go to whichever process is free."""
    for item in items:
        group = name_group(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))


def name_group(item: pytest.Item) -> str | None:
    """The group of a test: one cluster, one Spark session, one chain of tables per engine, one module's fixtures."""
    if item.nodeid.startswith("tests/spark/"):
        return "cluster"
    fixtures = getattr(item, "fixturenames", ())
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if "spark" in fixtures or parameters.get("engine") == "spark":
        return "spark"
    if "engine" in parameters:
        return f"engine-{parameters['engine']}"
    if "options" in fixtures:
        return "object-store"
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    if any(definition.scope in _WIDE for definitions in known.values() for definition in definitions):
        return item.nodeid.partition("::")[0]
    return None
