"""Texts of others on their way to a terminal or a spreadsheet: shown as they are, never acted on."""

from __future__ import annotations

import re
import unicodedata

# What a spreadsheet takes for a formula when a cell begins with it (OWASP, "CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_LAYOUT = "\t\r\n"
# Control characters, marks of direction and other invisible ones, halves of pairs, and ends of lines.
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# The texts that `make_csv_safe` changes, and a few that it does not, for engines of regular expressions (RE2).
CSV_UNSAFE = r"^[=+\-@\t\r]|[\p{Cf}\p{Zl}\p{Zp}]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"


def make_printable(text: str) -> str:
    """A text in one line: what would steer a terminal or turn the direction of letters is shown as its escape."""
    return text if text.isprintable() else "".join(map(_show_char, text))


def make_csv_safe(text: str) -> str:
    """A text as a cell of a CSV: one that begins like a formula gets a single quote in front, a number does not."""
    shown = text if text.isprintable() else "".join(char if char in _LAYOUT else _show_char(char) for char in text)
    return f"'{shown}" if shown.startswith(_FORMULA) and not _NUMBER.fullmatch(shown) else shown


def _show_char(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii") if unicodedata.category(char) in _UNSEEN else char
