"""What every engine that counts rule violations offers: one pass over the rows of a table, whatever its rules."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assets.checks.rules import Rule
    from lake.store import Lake
    from lake.tables import Table

# One table at a time: a backend shows one set of rows.
LOCK = threading.Lock()


@dataclass(frozen=True)
class Counts:
    """How many rows there are, and how many of them violate each rule, by its name."""

    rows: int
    violations: dict[str, int]


class Backend(Protocol):
    """An engine that reads the data files of one table and counts."""

    name: str

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Select the rows of some runs, or of all; give the name and the kind of each column, as DuckDB names it."""

    def count(self, rules: Sequence[Rule]) -> Counts:
        """Count the selected rows, and those that violate each of these rules."""

    def samples(self, rule: Rule, names: Sequence[str], most: int) -> list[dict[str, Any]]:
        """Some rows that violate a rule on rows, by these columns."""


def list_column_differences(found: Sequence[dict[str, Any]], rule: Rule) -> list[str]:
    """Where the columns that are there and those that the rule declares differ, position by position."""
    there = [f"{column['name']} {column['type']}" for column in found]
    declared = [f"{name} {kind}" for name, kind in zip(rule.columns, rule.arguments, strict=True)]
    longest = max(len(there), len(declared))
    pairs = zip(*(texts + ["nothing"] * (longest - len(texts)) for texts in (there, declared)), strict=True)
    return [f"{one} where {other} is declared" for one, other in pairs if one != other]
