"""HTML that is safe by construction: a text is escaped unless it was made here, and no attribute runs anything."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from report.units import legible

if TYPE_CHECKING:
    from collections.abc import Iterable

_EMPTY = {"meta", "link"}


class Markup(str):
    """A piece of HTML that we wrote ourselves; everything else is a text."""

    __slots__ = ()


def element(name: str, /, *inside: str, **facts: str | bool | None) -> Markup:
    """An element; of its attributes `class_` is `class`, underscores are hyphens, and None or False is left out."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(legible(value))}"')
        for key, value in facts.items()
        if value is not None and value is not False
    )
    closed = "" if name in _EMPTY else f"{join_markup(inside)}</{name}>"
    return Markup(f"<{name}{written}>{closed}")


def join_markup(parts: Iterable[str]) -> Markup:
    """Pieces one after another; a text among them is escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(legible(part)) for part in parts))


def data(name: str, value: Any) -> Markup:
    """Data for a script: JSON in which nothing can end the element that holds it, nor begin another."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(f'<script type="application/json" id="{escape(name)}">{text}</script>')


def table(caption: str, columns: Iterable[tuple[str, bool]], rows: Iterable[tuple[str | None, list[str]]]) -> Markup:
    """A table: columns are names and whether they hold numbers; a row may belong to a run, by which it is filtered."""
    named = list(columns)
    head = (element("th", name, scope="col", class_="number" if is_number else None) for name, is_number in named)
    body = [
        element(
            "tr",
            *(
                element("td", cell, class_="number" if is_number else None)
                for cell, (_, is_number) in zip(cells, named, strict=True)
            ),
            data_run=run,
        )
        for run, cells in rows
    ]
    drawn = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *body),
    )
    return element("div", drawn, class_="wide", tabindex="0", role="region", aria_label=caption)
