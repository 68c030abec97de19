"""What the entries of a table's Delta log say beside its rows: the statement of each commit, and whose it was."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake.locations import Location

_ENTRY = re.compile(r"([0-9]{20})\.json")
_STATEMENT = "teetotal.statement"


def list_versions(place: Location, table: str) -> list[int]:
    """The versions of a table whose log entries are still there."""
    log = _log_of(table)
    listed = (entry["path"] for page in obstore.list(place.store, log) for entry in page)
    found = (_ENTRY.fullmatch(path.removeprefix(f"{log}/")) for path in listed)
    return sorted(int(match[1]) for match in found if match)


def read_entry(place: Location, table: str, version: int) -> bytes | None:
    """One entry of a table's log; none where it is not there."""
    name = f"{_log_of(table)}/{version:020}.json"
    try:
        if place.is_local:
            return (place.directory / name).read_bytes()
        return bytes(obstore.get(place.store, name).bytes())
    except (FileNotFoundError, NotFoundError):
        return None


def read_entries(place: Location, table: str, first: int | None) -> Iterator[tuple[int, bytes]]:
    """The entries of a table's log from one version on, without a gap; from the oldest that is there where none is."""
    version = next(iter(list_versions(place, table)), 0) if first is None else first
    while (data := read_entry(place, table, version)) is not None:
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


def _log_of(table: str) -> str:
    return f"{table.replace('.', '/')}/_delta_log"
