"""One changed snapshot as Markdown: what moved, by column and by row, old and new, absolute and relative."""

from __future__ import annotations

import difflib
import math
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.review.cells import (
    code,
    format_added,
    format_both,
    format_change,
    format_plus,
    is_place,
    label,
    line,
    unit,
)
from pipelines.review.text_tables import parse_table
from report.markdown import escape_markdown
from report.units import format_count, legible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipelines.review.text_tables import Key, Move, TableChange

FEW, ALL = 10, 1_000_000
_MOST_COLUMNS = 24
_MOST_GROUPS = 12
_LONGEST_LINE = 200
_MOST_LINES = 40
_TOO_MANY_LINES = 20_000


@dataclass(frozen=True)
class Reason:
    """A sentence that a commit gives for a snapshot that changed."""

    text: str
    commit: str
    subject: str


@dataclass(frozen=True)
class Reviewed:
    """One snapshot that a change touches, with all that is known about why."""

    path: str
    old_path: str
    title: str
    before: str | bytes | None
    after: str | bytes | None
    # What moved by key, where both texts are tables.
    change: TableChange | None = None
    reasons: tuple[Reason, ...] = ()
    commits: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    # Changed snapshots that this one is made from; what is made from it, and whether that changed as well.
    made_from: tuple[str, ...] = ()
    feeds: tuple[tuple[str, bool], ...] = ()
    # Why the gate refuses it.
    fault: str | None = None

    @property
    def is_renamed(self) -> bool:
        """Whether it lay elsewhere before."""
        return self.path != self.old_path

    @property
    def is_whitespace_only(self) -> bool:
        """Whether nothing but white space differs."""
        if not isinstance(self.before, str) or not isinstance(self.after, str):
            return False
        return self.before != self.after and self.before.split() == self.after.split()

    @property
    def vanished(self) -> bool:
        """Whether rows, columns or all of it are gone."""
        return self.after is None or (self.change is not None and self.change.vanished)

    @property
    def size(self) -> float:
        """The largest move in it, as a fraction; infinite where something came or went."""
        if self.change is None or self.vanished or self.change.rows_added or self.change.columns_added:
            return math.inf
        return max((move.size for move in self.change.moves), default=0)


def summary(item: Reviewed) -> str:
    """What became of it, in a few words."""
    if item.after is None:
        return f"**deleted** ({_extent(item.before)})"
    if item.before is None:
        return f"new ({_extent(item.after)})"
    parts = [f"renamed from {code(item.old_path)}"] if item.is_renamed else []
    if item.before == item.after:
        parts.append("the same text")
    elif item.is_whitespace_only:
        parts.append("only white space; no value moved")
    elif item.change is not None:
        parts += _counts(item.change)
    else:
        parts.append("another text")
    return "; ".join(parts)


def section(item: Reviewed, most: int = FEW) -> str:
    """All that a reviewer needs to say yes or no to one snapshot; `most` rows of each kind."""
    lines = [f"### {code(item.title)}", "", f"{summary(item)}."]
    if item.fault:
        lines += ["", f"**Not explained**: {escape_markdown(item.fault)}."]
    lines += ["", *_why(item)]
    if item.change is not None and not item.is_whitespace_only:
        lines += _table(item.change, most)
    elif item.before != item.after and None not in {item.before, item.after} and not item.is_whitespace_only:
        lines += ["", *_texts(item, most)]
    return "\n".join(lines) + "\n"


def _extent(side: str | bytes | None) -> str:
    """How much one side holds."""
    if not isinstance(side, str):
        return format_count(len(side or b""), "byte")
    table = parse_table(side)
    if table is None:
        return format_count(len(side.splitlines()), "line")
    return f"{format_count(len(table.rows), 'row')}, {format_count(len(table.names), 'column')}"


def _counts(change: TableChange) -> list[str]:
    """How many rows and columns moved, came and went."""
    rows, columns = {move.key for move in change.moves}, {move.column for move in change.moves}
    parts = []
    if change.moves:
        moved = f"{len(rows):,} of {format_count(change.rows_after, 'row')} moved"
        parts.append(f"{moved}, in {format_count(len(columns), 'column')}")
    parts += [f"**{format_count(len(change.rows_gone), 'row')} gone**"] if change.rows_gone else []
    parts += [f"{format_count(len(change.rows_added), 'row')} added"] if change.rows_added else []
    parts += [f"**{format_count(len(change.columns_gone), 'column')} gone**"] if change.columns_gone else []
    parts += [f"{format_count(len(change.columns_added), 'column')} added"] if change.columns_added else []
    parts += [f"{format_count(len(change.kinds), 'kind')} changed"] if change.kinds else []
    parts += ["another order"] if change.is_reordered else []
    return parts or ["written otherwise; no value moved"]


def _why(item: Reviewed) -> Iterator[str]:
    """The sentences of the commits, the code that they changed, and where else this is seen."""
    for reason in item.reasons:
        yield f"- reason: {escape_markdown(reason.text)} ({code(reason.commit)} {escape_markdown(reason.subject)})"
    given = {f"{reason.commit} {reason.subject}" for reason in item.reasons}
    yield from (f"- touched by: {escape_markdown(commit)}" for commit in item.commits if commit not in given)
    if item.code:
        rest = len(item.code) - FEW
        names = [code(name) for name in item.code[:FEW]] + ([f"{rest} more"] if rest > 0 else [])
        yield f"- changed in the same commits: {', '.join(names)}"
    if item.made_from:
        yield f"- made from, and changed too: {', '.join(map(code, item.made_from))}"
    moved = [code(name) for name, is_changed in item.feeds if is_changed]
    same = [code(name) for name, is_changed in item.feeds if not is_changed]
    if moved:
        yield f"- moved downstream: {', '.join(moved)}"
    if same:
        yield f"- downstream and as before: {', '.join(same)}"
    yield f"- file: {code(item.path)}"


def _table(change: TableChange, most: int) -> Iterator[str]:
    named = ", ".join(change.key)
    for what, keys in (("gone", change.rows_gone), ("added", change.rows_added)):
        if keys:
            yield f"\nRows {what} ({escape_markdown(named)}):\n"
            yield from (f"- {label(key)}" for key in keys[:most])
            yield from _describe_rest(len(keys) - most)
    for what, columns in (("gone", change.columns_gone), ("added", change.columns_added)):
        if columns:
            yield f"\nColumns {what}: {', '.join(map(code, columns))}"
    for name, old, new in change.kinds:
        yield f"\nKind of {code(name)}: {escape_markdown(old)} → {escape_markdown(new)}"
    if not change.moves:
        return
    if change.evidence:
        kinds = ", ".join(f"{escape_markdown(what)} ({count:,})" for what, count in change.evidence)
        yield f"\nThe rows that moved are {kinds}."
    yield "\n| column | rows moved | mean of those rows, before → after | change | relative |\n|---|---:|---|---:|---:|"
    yield from _columns(change)
    yield from _describe_shift(change.moves)
    shown = sorted(change.moves, key=lambda move: (is_place(move.column), -move.size, -abs(move.absolute or 0)))[:most]
    yield f"\n<details><summary>the largest moves ({len(shown):,} of {len(change.moves):,})</summary>\n"
    yield f"| {escape_markdown(named)} | column | before | after | change | relative |\n|---|---|---:|---:|---:|---:|"
    for move in shown:
        old, new = format_both(move)
        relative = "" if is_place(move.column) else format_change(move.relative)
        yield line(label(move.key), code(move.column), old, new, format_added(move), relative)
    yield "\n</details>"


def _columns(change: TableChange) -> Iterator[str]:
    """One line a column, and apart for what tells rows of a run apart, the largest relative change of a mean first."""
    group = _group(change)
    grouped: dict[tuple[str, str | None], list[Move]] = defaultdict(list)
    for move in change.moves:
        grouped[move.column, None if group is None else move.key[group]].append(move)
    lines = []
    for (column, within), mine in grouped.items():
        name = code(column) if within is None else f"{code(column)}, {escape_markdown(within)}"
        pairs = [move.numbers for move in mine if move.numbers is not None]
        if not pairs or is_place(column):
            lines.append((math.inf, line(name, f"{len(mine):,}", _count_moves(mine), "", "")))
            continue
        old, new = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
        relative = (new - old) / abs(old) if old else math.copysign(math.inf, new - old)
        apart = unit(column) if unit(column)(old) != unit(column)(new) else repr
        means = f"{apart(old)} → {apart(new)}" if old != new else f"{unit(column)(old)}, as before"
        lines.append(
            (
                abs(relative),
                line(name, f"{len(mine):,}", means, format_plus(new - old, column), format_change(relative)),
            )
        )
    lines.sort(key=lambda line: -line[0])
    yield from (line for _, line in lines[:_MOST_COLUMNS])
    yield from _describe_rest(len(lines) - _MOST_COLUMNS, "column")


def _group(change: TableChange) -> int | None:
    """The first part of the key, after the run, that names a few things: a mean over all of them would hide a shift."""
    for index in range(1, len(change.key)):
        found = {move.key[index] for move in change.moves}
        if 1 < len(found) <= _MOST_GROUPS and not any(value is None or value.isdigit() for value in found):
            return index
    return None


def _count_moves(moves: Sequence[Move]) -> str:
    """What values became what, where there is no mean: the commonest."""
    counts: dict[str, int] = defaultdict(int)
    for move in moves:
        counts[" → ".join(format_both(move))] += 1
    (common, times), *others = sorted(counts.items(), key=lambda entry: -entry[1])
    more = f", and {format_count(len(others), 'other change')}" if others else ""
    return f"{common} ({times:,}×){more}" if len(moves) > 1 else common  # noqa: RUF001


def _describe_shift(moves: Sequence[Move]) -> Iterator[str]:
    """Whether times only went elsewhere: the law that parts sum to the whole still holds, by row or by run."""
    times = [move for move in moves if move.column.endswith("_ns")]
    by_row: dict[Key, float] = defaultdict(float)
    by_run: dict[tuple[str | None, str], float] = defaultdict(float)
    for move in times:
        by_row[move.key] += math.nan if move.absolute is None else move.absolute
        by_run[move.key[0], move.column] += math.nan if move.absolute is None else move.absolute
    if times and not any(by_row.values()):
        yield "\nIn every row the moved times sum to what they did before: time went from one column to another."
    elif times and not any(by_run.values()):
        yield "\nIn every run each moved time sums to what it did before: time went from one row to another."


def _texts(item: Reviewed, most: int) -> Iterator[str]:
    """The lines of a text that is no table, as a diff; of what is no text, its size."""
    if not isinstance(item.before, str) or not isinstance(item.after, str):
        yield f"No texts to compare: {_extent(item.before)} → {_extent(item.after)}."
        return
    old_lines, new_lines = _lines(item.path, item.before), _lines(item.path, item.after)
    if old_lines == new_lines:
        yield "Drawn otherwise: every word and number in it is as before."
        return
    if max(len(old_lines), len(new_lines)) > _TOO_MANY_LINES:
        yield f"Too long to compare: {_extent(item.before)} → {_extent(item.after)}."
        return
    diff = [legible(line) for line in difflib.unified_diff(old_lines, new_lines, n=1, lineterm="")][2:]
    most_lines = _MOST_LINES if most == FEW else ALL
    shown = [line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…" for line in diff[:most_lines]]
    ticks = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, ticks + 1)
    yield from (f"{fence}diff", *shown, fence, *_describe_rest(len(diff) - most_lines, "line"))


def _lines(path: str, text: str) -> list[str]:
    """The lines of a text; of a picture, the words in it."""
    return re.findall(r">\s*([^<>]*[^<>\s])\s*<", text) if path.endswith(".svg") else text.splitlines()


def _describe_rest(count: int, noun: str = "row") -> Iterator[str]:
    if count > 0:
        yield f"\nand {count:,} more {noun}{'' if count == 1 else 's'}"
