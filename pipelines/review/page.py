"""The review of a change's snapshots, as one Markdown page: verdicts first, then a line and a section per snapshot."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.review.cells import code, format_both, format_change, line
from pipelines.review.section import ALL, FEW, Reviewed, section, summary
from pipelines.review.text_tables import Move, parse_table
from report.colours import WORDS
from report.markdown import escape_markdown
from report.units import format_count, format_percent, format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

# By this a program finds its own comment again, to replace it.
MARK = "<!-- teetotal snapshot review -->"
# A comment on GitHub has at most 65,536 characters; what they stand for may take several bytes each.
MOST_CHARACTERS = 60_000
# The tables whose rows are the answer itself: each pair is told, moved or not.
_ANSWERS = ("gold.step_overhead", "gold.throughput_overhead")
_MOST_FLIPS = 30
_HOW = (
    "Each changed snapshot needs a line in a commit's message: `Snapshot-Reason: gold.step_overhead: which decision "
    "moved it, and why the new value is right`. Without a name it speaks for all that its commit touches; what "
    "vanishes must be named (CONTRIBUTING.md)."
)


@dataclass(frozen=True)
class Review:
    """A change as far as snapshots see it."""

    compared: str
    changed: tuple[Reviewed, ...]
    # Snapshots whose test is gone, each with what is missing.
    orphans: tuple[tuple[str, str], ...] = ()
    # Reasons that name nothing that changed, and other things that do not stop a change.
    notes: tuple[str, ...] = ()

    @property
    def faults(self) -> list[str]:
        """Why the gate stays shut, a sentence each."""
        return [
            *(f"{item.title}: {item.fault}" for item in self.changed if item.fault),
            *(f"{path}: {what}" for path, what in self.orphans),
        ]


def page(review: Review, *, is_full: bool = False) -> str:
    """The whole review; what would not fit into a comment is counted, the largest moves come first."""
    if not review.changed and not review.orphans:
        return f"{MARK}\n## Snapshot review: no snapshot changed\n\nCompared: {escape_markdown(review.compared)}.\n"
    head = "\n".join([MARK, *_head(review), *_verdicts(review), *_overview(review, ALL if is_full else 100)]) + "\n"
    ordered = sorted(review.changed, key=_order)
    if is_full:
        return "\n".join([head, *(section(item, ALL) for item in ordered)])
    shown, room = [], MOST_CHARACTERS - len(head.encode())
    for item in ordered:
        text = next((text for text in (section(item, FEW), section(item, 3)) if len(text.encode()) < room), None)
        if text is not None:
            shown.append(text)
            room -= len(text.encode()) + 1
    left = len(ordered) - len(shown)
    more = (
        [f"{format_count(left, 'section')} left out here: `python -m pipelines.review --full` has all.\n"]
        if left
        else []
    )
    return _cut_to_limit("\n".join([head, *shown, *more]))


def _head(review: Review) -> Iterator[str]:
    count = len(review.changed)
    yield f"## Snapshot review: {format_count(count, 'snapshot')} changed"
    yield f"\nCompared: {escape_markdown(review.compared)}."
    by_fault: dict[str, list[str]] = defaultdict(list)
    for item in review.changed:
        if item.fault:
            by_fault[item.fault].append(code(item.title))
    for path, what in review.orphans:
        by_fault[what].append(code(path))
    if by_fault:
        yield "\n**Not to be merged yet:**\n"
        yield from (f"- {escape_markdown(fault)}: {', '.join(_choose_few(names))}" for fault, names in by_fault.items())
        yield f"\n{_HOW}"
    elif count:
        yield "\nEvery change has its reason."
    for note in review.notes[:_MOST_FLIPS]:
        yield f"\nNote: {escape_markdown(note)}."


def _verdicts(review: Review) -> Iterator[str]:
    """Which answers moved and which flipped; that none did is told as well."""
    yield "\n### Verdicts\n"
    lines = [line for item in review.changed for line in _answers(item)]
    lines += [line for item in review.changed if item.title not in _ANSWERS for line in _flips(item)]
    yield from (f"- {line}" for line in lines[:_MOST_FLIPS])
    if len(lines) > _MOST_FLIPS:
        yield f"- and {len(lines) - _MOST_FLIPS} more"
    still = [name for name in _ANSWERS if name not in {item.title for item in review.changed}]
    if still:
        yield f"- {' and '.join(map(code, still))}: as before, no verdict and no slowdown moved"


def _answers(item: Reviewed) -> Iterator[str]:
    """Each pair: slowdown, verdict and where most is paid, before and after."""
    if item.title not in _ANSWERS:
        return
    before, after = ((parse_table(side) if isinstance(side, str) else None) for side in (item.before, item.after))
    old, new = (({} if table is None else table.by_key(("run_id",)) or {}) for table in (before, after))
    for key in dict.fromkeys([*old, *new]):
        name = code(key[0] or "null")
        if key not in new:
            was = escape_markdown(old[key].get("verdict_class") or "null")
            yield f"**gone**: {name} has no verdict any more (was {was})"
        elif key not in old:
            yield f"new: {name}: {escape_markdown(new[key].get('verdict') or 'null')}"
        else:
            yield f"{name}: {_answer(old[key], new[key])}"


def _answer(old: dict[str, str | None], new: dict[str, str | None]) -> str:
    slowdown = Move((), "slowdown_ratio", "float64", old.get("slowdown_ratio"), new.get("slowdown_ratio"))
    if slowdown.before == slowdown.after:
        parts = [f"{format_ratio(slowdown.numbers[0]) if slowdown.numbers else 'no slowdown'} as before"]
    else:
        parts = [f"{' → '.join(format_both(slowdown))} ({format_change(slowdown.relative)})"]
    parts.append(escape_markdown(new.get("evidence") or "evidence not said"))
    classes = [escape_markdown(row.get("verdict_class") or "null") for row in (old, new)]
    if classes[0] != classes[1]:
        parts.append(f"**verdict flips: {classes[0]} → {classes[1]}**")
        was, now = (escape_markdown(row.get("verdict") or "null") for row in (old, new))
        parts.append(f"was “{was}”, is “{now}”")
    else:
        parts.append(f"verdict unchanged ({classes[0]})")
    paid = [_format_largest_part(row) for row in (old, new)]
    if paid[0] != paid[1]:
        names = {row.get("dominant_part") for row in (old, new)}
        moved = f"largest part of it: {paid[0]} → {paid[1]}"
        parts.append(f"**{moved}**" if len(names) > 1 else moved)
    return ", ".join(parts)


def _format_largest_part(row: dict[str, str | None]) -> str:
    part, share = row.get("dominant_part"), Move((), "", "float64", row.get("dominant_fraction"), "0").numbers
    if part is None:
        return "nothing"
    return escape_markdown(WORDS.get(part, part)) + (f" ({format_percent(share[0])})" if share else "")


def _flips(item: Reviewed) -> Iterator[str]:
    """Verdicts of all other tables, where they are another class than before."""
    moves = () if item.change is None else item.change.moves
    classes = {"verdict_class", "agreement"}
    found = [move for move in moves if move.column in classes]
    for move in found:
        row = ", ".join(value or "null" for value in move.key if value not in {None, "none"})
        yield f"{code(item.title)} {code(row)}: **{' → '.join(format_both(move))}**"


def _overview(review: Review, most: int) -> Iterator[str]:
    yield "\n### What changed\n"
    yield "| snapshot | what | made from, changed too | reason |\n|---|---|---|---|"
    ordered = sorted(review.changed, key=_order)
    for item in ordered[:most]:
        reasons = "; ".join(escape_markdown(reason.text) for reason in item.reasons) or "**none**"
        if item.fault and item.reasons:
            reasons = f"**not enough**: {reasons}"
        yield line(code(item.title), summary(item), ", ".join(map(code, item.made_from)) or "", _clip(reasons))
    if len(ordered) > most:
        yield f"\nand {len(ordered) - most} more"


def _order(item: Reviewed) -> tuple[bool, bool, bool, float, str]:
    """What is not explained first, then where a change starts before where it is seen again, tables before pictures."""
    return (item.fault is None, item.change is None, bool(item.made_from), -item.size, item.path)


def _choose_few(names: list[str]) -> list[str]:
    rest = len(names) - _MOST_FLIPS
    return [*names[:_MOST_FLIPS], f"{rest} more"] if rest > 0 else names


def _clip(text: str, most: int = 400) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _cut_to_limit(text: str) -> str:
    """A last resort, should one head alone be too long: whole lines that fit."""
    kept: list[str] = []
    room = MOST_CHARACTERS
    for part in text.splitlines():
        room -= len(part.encode()) + 1
        if room < 0:
            return "\n".join([*kept, "", "The rest is left out: `python -m pipelines.review --full` has all.", ""])
        kept.append(part)
    return "\n".join(kept) + "\n"
