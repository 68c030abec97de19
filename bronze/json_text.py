"""JSON that someone else wrote: parsed without a number rounded or a doubled key lost, or not at all."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


def parsed(text: str) -> Any:
    """The value of a JSON text; raises ValueError for anything else, however deep or long it is."""
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=str, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def parsed_object(text: str) -> dict[str, Any] | None:
    """An object; none for anything else."""
    try:
        found = parsed(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object; one whose key was there before is kept under a key of its own."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    found = {}
    for place, (key, value) in enumerate(pairs):
        found[key if key not in found else f"{key}#{place}"] = value
    return found
