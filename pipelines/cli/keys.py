"""`teetotal keys`: which keys there are and where their tokens lie, and sealing again what older keys sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assets.build.catalogue import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake.keyring import Keyring
    from lake.snapshot import Written
    from lake.store import Lake


def list_keys(lake: Lake, keyring: Keyring) -> list[dict[str, str]]:
    """One line per key of the keyring or of the lake, with the number of partitions that hold its tokens."""
    found = [key_id for ids in _partitions(lake).values() for key_id in ids]
    lines = [
        {
            "key": key.key_id,
            "created": key.created,
            "active": "yes" if key.key_id == keyring.active_id else "",
            "partitions": f"{found.count(key.key_id):,}",
        }
        for key in keyring.keys
    ]
    strangers = sorted(set(found) - {key.key_id for key in keyring.keys})
    lines += [
        {"key": key_id, "created": "not in this keyring", "active": "", "partitions": f"{found.count(key_id):,}"}
        for key_id in strangers
    ]
    return lines


def reseal_tables(lake: Lake, keyring: Keyring) -> Iterator[Written]:
    """Seal again, one commit each, every partition with tokens of another key than the active one."""
    for (name, run_id), ids in _partitions(lake).items():
        if ids != {keyring.active_id}:
            yield lake.reseal(TABLES[name], run_id)


def _partitions(lake: Lake) -> dict[tuple[str, str], set[str]]:
    """The ids of the keys in every partition with sealed columns: by table and run."""
    return {
        (name, run_id): ids for name, table in TABLES.items() for run_id, ids in sorted(lake.sealed_with(table).items())
    }
