"""What the entries of a table's Delta log say beside its rows: the statement of each commit, and whose it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lake.log_entries import list_versions, read_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake.locations import Location

_STATEMENT = "teetotal.statement"


def read_entries(place: Location, table: str, first: int | None) -> Iterator[tuple[int, bytes]]:
    """The entries of a table's log from one version on, without a gap; from the oldest that is there where none is."""
    root = place.child(*table.split("."))
    version = min(list_versions(root), default=0) if first is None else first
    while (data := read_entry(root, version)) is not None:
        yield version, data
        version += 1


def find_statement(entry: bytes) -> str | None:
    """The statement that a commit carries."""
    if _STATEMENT.encode() not in entry:
        return None
    for line in entry.splitlines():
        try:
            found = json.loads(line).get("commitInfo", {}).get(_STATEMENT)
        except (ValueError, AttributeError):
            continue
        if isinstance(found, str):
            return found
    return None
