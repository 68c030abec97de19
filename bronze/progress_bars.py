"""Epochs as progress bars tell them: a bar of training that is full says how many steps it had, and their mean rate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bronze import json_text
from bronze.decimals import fit_nanoseconds, parse_number
from bronze.lines import as_plain_text

_KEY, _MARK = "progress_bar", b"%|"
# Name, share, the bar itself, steps, time since its start, time that is left, and a rate: of a full bar the mean one.
_BAR = re.compile(
    r"(?P<name>[^|]{0,200}?):? {0,4}[0-9]{1,3}%\|[^|]{0,400}\| {0,16}(?P<done>[0-9]{1,12})/(?P<total>[0-9]{1,12})"
    r" \[(?P<elapsed>[0-9:]{4,12})<[0-9:?]{1,12}, {0,8}(?P<rate>[0-9.]{1,12}|\?)"
    r"(?P<unit>[a-zA-Z]{1,12}/s|s/[a-zA-Z]{1,12})(?P<more>[\],].*)"
)
# A numbered epoch, or nothing but training: bars that read, tokenize or cache what to train on are named so too.
_TRAINING = re.compile(
    r"(?i).*\bepoch\W{0,3}[0-9].*|\W*train(?:ing)?(?:\W+(?:model|loop|steps?|batch(?:es)?|loss\W*[-+.0-9e]{1,24}))?\W*"
)
_OTHER = re.compile(r"(?i)\b(?:val|eval|test|infer|predict|sanity)")
_EPOCH = re.compile(r"(?i)\bepoch\W{0,3}([0-9]{1,9})")
_LOSS = re.compile(r"\b(?:train_)?loss[=:] ?([-+.0-9eE]{1,24})")
_MOST_LINE = 1 << 12
_SECOND_NS = 1_000_000_000


@dataclass
class _Full:
    """A bar that is full, as it was first drawn so, and as it was drawn last."""

    key: tuple[int | None, int]
    since_s: int
    row: dict[str, Any] | None


class ProgressBars:
    """The bars of one source, in their order; one that is drawn again when it is full counts once."""

    def __init__(self) -> None:
        self._full: _Full | None = None

    def read(self, offset: int, data: bytes) -> list[dict[str, Any]]:
        """The rows of bars that are complete with this line."""
        bar = _BAR.match(as_plain_text(data)) if len(data) <= _MOST_LINE else None
        if bar is None or _OTHER.search(bar["name"]) or not _TRAINING.fullmatch(bar["name"]):
            return []
        epoch = _EPOCH.search(bar["name"])
        key = (None if epoch is None else int(epoch[1]), int(bar["total"]))
        if self._full is not None and self._full.key == key and bar["done"] == bar["total"]:
            # Drawn again at its end, with its mean rate; later than that it also holds what came after, as validation.
            if _count_seconds(bar["elapsed"]) <= self._full.since_s + 1:
                self._full.row = _make_row(offset, bar, key[0]) or self._full.row
            return []
        rows = self.finish()
        if bar["done"] == bar["total"]:
            self._full = _Full(key, _count_seconds(bar["elapsed"]), _make_row(offset, bar, key[0]))
        return rows

    def finish(self) -> list[dict[str, Any]]:
        """The row of the last bar that is full."""
        full, self._full = self._full, None
        return [full.row] if full is not None and full.row is not None else []


def may_be_bar(data: bytes) -> bool:
    """Whether bytes may hold a bar."""
    return _MARK in data


def has_full_bar(lines: list[bytes]) -> bool:
    """Whether a bar of training that is full is among the lines."""
    bars = ProgressBars()
    return any(bars.read(0, line) for line in lines if may_be_bar(line)) or bool(bars.finish())


def _make_row(offset: int, bar: re.Match[str], epoch: int | None) -> dict[str, Any] | None:
    """The row of a full bar; none where its rate is of its last steps alone, which the time since its start shows."""
    rate = Decimal(bar["rate"]) if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", bar["rate"]) else Decimal(0)
    if not rate:
        return None
    seconds = Decimal(bar["total"]) * rate if bar["unit"].startswith("s/") else Decimal(bar["total"]) / rate
    open_s = seconds * Decimal(10) ** -len(bar["rate"].partition(".")[2]) / 2 / rate
    elapsed = _count_seconds(bar["elapsed"])
    if not elapsed - open_s <= seconds <= elapsed + 1 + open_s:
        return None
    duration = fit_nanoseconds(round(seconds * _SECOND_NS))
    if duration is None:
        return None
    loss = _LOSS.search(bar["more"])
    row: dict[str, Any] = {"offset_bytes": offset, "record": "line", "record_key": _KEY, "epoch_number": epoch}
    row |= {"duration_ns": duration, "loss_number": None if loss is None else parse_number(loss[1])[0]}
    return {**row, "args": json_text.compact_json({"line": bar.string})}


def _count_seconds(clock: str) -> int:
    found = 0
    for part in clock.split(":"):
        found = found * 60 + int(part or 0)
    return found
