"""`run.toml`: what a run claims, as docs/manifest.md says; a field that is not known is left out, never guessed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from .errors import RecordingRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    Value = str | int | float | bool

MANIFEST = "run.toml"
SCHEMA = 1
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def check_run_id(run_id: str) -> str:
    """A run id that the landing zone takes."""
    if not _RUN_ID.fullmatch(run_id):
        raise RecordingRefused(
            f"run id: expected a letter or digit and then letters, digits, '_', '.' or '-', found {run_id!r}"
        )
    return run_id


def to_toml(claims: Mapping[str, Value | None], extra: Mapping[str, Value | None]) -> str:
    """The text of a manifest."""
    lines = [f"schema = {SCHEMA}", *_lines(claims)]
    kept = _lines(extra)
    return "\n".join([*lines, *(["", "[extra]", *kept] if kept else [])]) + "\n"


def _lines(values: Mapping[str, Value | None]) -> list[str]:
    return [f"{name} = {_literal(value)}" for name, value in values.items() if value is not None]


def _literal(value: Value) -> str:
    if isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
