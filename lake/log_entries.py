"""The files of a table's Delta log, on this disk or in an object store: which commits there are, and what each did."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from obstore.exceptions import NotFoundError

from lake.cut_off import fetch_object, list_objects
from lake.datafiles import run_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake.locations import Location

# A store answers many requests in the time of one.
_SIDE_BY_SIDE = 16
_FOLDER = "_delta_log"


class UnknownLog(Exception):
    """The log holds what we never write, or is not whole: Delta can read it, or says what is wrong."""


def list_versions(root: Location, after: int = -1) -> list[int]:
    """The versions of a table, after one, whose log entries are there."""
    if root.is_local:
        try:
            names = [path.name for path in (root.directory / _FOLDER).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
    else:
        listed = list_objects(root.store, _FOLDER, offset=f"{_FOLDER}/{after + 1:020}")
        names = [item["path"].rpartition("/")[2] for item in listed]
    split = (name.partition(".") for name in names)
    found = (int(number) for number, _, kind in split if kind == "json" and number.isdecimal())
    return sorted(version for version in found if version > after)


def read_log_file(root: Location, name: str) -> bytes | None:
    """One file of a table's log; none where it is not there."""
    try:
        if root.is_local:
            return (root.directory / _FOLDER / name).read_bytes()
        return fetch_object(root.store, f"{_FOLDER}/{name}")
    except (FileNotFoundError, NotFoundError):
        return None


def read_entry(root: Location, version: int) -> bytes | None:
    """The log entry of one commit; none where it is not there."""
    return read_log_file(root, f"{version:020}.json")


def read_entries(root: Location, after: int) -> list[bytes]:
    """The entries of all commits after one version; `UnknownLog` where one of them is missing."""
    versions = list_versions(root, after)
    if versions != list(range(after + 1, after + 1 + len(versions))):
        raise UnknownLog
    read = partial(read_entry, root)
    if root.is_local or len(versions) < 2:
        found = list(map(read, versions))
    else:
        with ThreadPoolExecutor(min(len(versions), _SIDE_BY_SIDE), thread_name_prefix="log") as pool:
            found = list(pool.map(read, versions))
    entries = [entry for entry in found if entry is not None]
    if len(entries) < len(versions):
        raise UnknownLog  # old entries are being deleted at this moment
    return entries


def list_actions(entry: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a commit did, each action with its kind; its own description, which is the longest line, is left out."""
    for line in entry.splitlines():
        if not line.startswith(b'{"commitInfo"'):
            yield from json.loads(line).items()


def list_changed_partitions(entry: bytes) -> set[str]:
    """The partitions that a commit changed, by their files or marks; `UnknownLog` where it changed the table itself."""
    changed = set()
    for kind, said in list_actions(entry):
        if kind in {"add", "remove"}:
            changed.add(run_of(said["path"]))
        elif kind == "txn":
            changed.add(said["appId"].partition("@")[0])
        else:
            raise UnknownLog
    return changed
