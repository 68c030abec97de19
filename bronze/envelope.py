"""What a trace says beside its events: the members of its outer object, as the texts that they are."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Self

from bronze.tolerant_parser import measure_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bronze.window import Window

_KEPT_BYTES = 4 << 20
_KEY = re.compile(rb'"((?:[^"\\]|\\.)*)"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_MOST_KEY_BYTES = 1 << 16
_STRUCTURE = re.compile(rb'["{}\[\]]')
_STRING_END = re.compile(rb'["\\]')
_SCALAR_END = re.compile(rb"[,}\]]")


class Envelope:
    """Members in the order of the source, doubled ones too; bounded, and what is left out is named."""

    def __init__(self) -> None:
        self._members: list[tuple[str, str]] = []
        self._bytes = 0

    def keep(self, key: str, value: str) -> bool:
        """Take a member in; false where the envelope is full."""
        self._bytes += len(key) + len(value)
        if self._bytes > _KEPT_BYTES:
            self._bytes -= len(key) + len(value)
            return False
        self._members.append((key, value))
        return True

    @property
    def members(self) -> tuple[tuple[str, str], ...]:
        """All members as the texts that they are."""
        return tuple(self._members)

    @classmethod
    def restore(cls, members: Iterable[tuple[str, str]]) -> Self:
        """An envelope of members that an earlier one kept."""
        made = cls()
        for key, value in members:
            made.keep(key, value)
        return made

    def get(self, key: str) -> Any:
        """The value of a member, the last one where it is doubled; none where it cannot be held."""
        for name, value in reversed(self._members):
            if name == key:
                try:
                    return json.loads(value)
                except (ValueError, RecursionError):
                    return None
        return None

    def to_text(self) -> str | None:
        """All members as one JSON object; none where there is none."""
        if not self._members:
            return None
        return "{" + ", ".join(f'"{key}": {value}' for key, value in self._members) + "}"


def next_key(window: Window) -> str | None:
    """The next key of the object, dropped with its colon; none where no key stands there."""
    window.fill(_MOST_KEY_BYTES)
    found = window.match(_KEY)
    if found is None:
        return None
    window.drop(found[1])
    key = found[2].decode("utf-8", "replace")
    try:
        json.loads(f'"{key}"')
    except ValueError:
        return json.dumps(key)[1:-1]  # it is no JSON as it stands: escape what is wrong with it
    return key


def next_value(window: Window, max_bytes: int) -> str | None:
    """The next value as its own text, dropped; none (and nothing dropped) where it is broken or too large."""
    length = measure_json(window, max_bytes)
    if length is None:
        return None
    value = window.copy(length).decode("utf-8", "replace")
    window.drop(length)
    return value


def skip_value(window: Window) -> int:
    """Pass over a value of any size by its brackets and quotes alone; give its length."""
    start, depth, is_text = window.offset, 0, False
    while True:
        window.fill(1 << 20)
        found = window.search(_STRING_END if is_text else _STRUCTURE if depth else _SCALAR_END)
        opened = None if depth or is_text else window.match(_STRUCTURE)
        if opened is not None and opened[0] == 0 and opened[2] not in b"}]":
            found = opened
        if found is None:
            if window.is_at_end:
                window.drop(len(window))
                return window.offset - start
            window.drop(len(window))
            continue
        mark = found[2]
        if is_text and mark == b"\\":
            window.drop(found[0])
            window.fill(2)
            window.drop(2)
            continue
        if not is_text and not depth and mark in b",}]":
            window.drop(found[0])
            return window.offset - start
        window.drop(found[1])
        if mark == b'"':
            is_text = not is_text
        else:
            depth += 1 if mark in b"{[" else -1
        if not depth and not is_text:
            return window.offset - start
