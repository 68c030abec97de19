"""JSON that someone else wrote: parsed without a number rounded or a doubled key lost, and written so again."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

_MOST_DEPTH = 100


def parse_json(text: str) -> Any:
    """The value of a JSON text; raises ValueError for anything else, however deep or long it is."""
    try:
        found = json.loads(text, parse_float=Decimal, parse_constant=str, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    level = [found]
    for _ in range(_MOST_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return found
    raise ValueError("it is nested too deeply")


def parse_object(text: str) -> dict[str, Any] | None:
    """An object; none for anything else."""
    try:
        found = parse_json(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def compact_json(members: dict[str, Any]) -> str | None:
    """Members as compact JSON text, decimals with the digits that they came with; none where there are none."""
    return write_json(members) if members else None


def write_json(value: Any) -> str:
    """A value as compact JSON text."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(str(key), ensure_ascii=False)}:{write_json(v)}" for key, v in value.items())
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(write_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object; one whose key was there before is kept under a key of its own."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    found = {}
    for place, (key, value) in enumerate(pairs):
        found[key if key not in found else f"{key}#{place}"] = value
    return found
