"""The waterfall of a pair: from the twin's step to the TEE's, one piece a part, each from where the last one ended."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from report.colours import GREEN, RED, WORDS
from report.svg import FAINT, MARGIN, MUTED, RIGHT, SMALL, Drawing, Scale
from report.units import change, duration, number, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]

MOST_PAIRS = 4
_PITCH, _HIGH = 22, 14
_LEFT, _END, _CHANGE, _SHARE = 170, 440, 556, 622


def toll_breakdown(rows: Sequence[Row]) -> str:
    """One waterfall a pair; a part that takes no time on either side has no line, one that was not seen says so."""
    drawing = Drawing("Where the TEE's time is paid", "mean step, from the twin without a TEE to the run with it")
    drawing.legend([("mean step", FAINT), ("takes longer", RED), ("takes less", GREEN)])
    pairs = [list(parts) for _, parts in groupby(rows, key=lambda row: row["run_id"])]
    for parts in pairs[:MOST_PAIRS]:
        _pair(drawing, parts)
    drawing.more(len(pairs) - MOST_PAIRS, "pair")
    return drawing.finished()


def _pair(drawing: Drawing, parts: list[Row]) -> None:
    known = [row for row in parts if row["delta_ns"] is not None and row["baseline_step_ns"] is not None]
    shown = [row for row in parts if row["reason"] or row["step_ns"] or row["baseline_step_ns"]]
    start = sum(row["baseline_step_ns"] for row in known)
    ends, running = [], start
    for row in known:
        running += row["delta_ns"]
        ends.append(running)
    scale = Scale(min(0, start, *ends), max(1, start, *ends), _LEFT, _END)
    first = parts[0]
    drawing.text(MARGIN, drawing.y + 15, first["run_id"], weight=600)
    against = f"against {first['baseline_run_id']}, {first['regime']}, {number(first['cells_count'])} ranks × steps"  # noqa: RUF001
    drawing.text(RIGHT, drawing.y + 15, against, px=SMALL, colour=MUTED, anchor="end", most_px=420)
    drawing.y += 34
    for x, name in ((_CHANGE, "change"), (_SHARE, "share of it"), (RIGHT, "evidence")):
        drawing.text(x, drawing.y, name, px=SMALL, colour=MUTED, anchor="end")
    drawing.y += 4
    drawing.axis(scale, [(drawing.y, drawing.y + _PITCH * (len(shown) + 2))], duration)
    evidence = _evidence(known)
    _total(drawing, scale, ("step of the twin", start, "", evidence))
    running = start
    for row in shown:
        running = _part(drawing, scale, row, running) if row in known else _unseen(drawing, row, running)
    _total(drawing, scale, ("step in the TEE", running, change(running - start), evidence))
    drawing.y += 28


def _total(drawing: Drawing, scale: Scale, told: tuple[str, float, str, str]) -> None:
    name, amount, value, evidence = told
    left, end = sorted((scale.at(0), scale.at(amount)))
    drawing.rect(left, drawing.y + 3, end - left, _HIGH, FAINT, f"{name}: {duration(amount)}, {evidence}")
    drawing.text(end + 6, drawing.y + 14, duration(amount), px=SMALL, weight=600, has_halo=True)
    _columns(drawing, (name, value, "", evidence), weight=600)


def _part(drawing: Drawing, scale: Scale, row: Row, running: int) -> int:
    """Draw one piece, and the line that leads to the next one."""
    after: int = running + row["delta_ns"]
    left, end = sorted((scale.at(running), scale.at(after)))
    name = WORDS[row["part"]]
    title = f"{name}: {duration(row['baseline_step_ns'])} to {duration(row['step_ns'])}, {row['evidence']}"
    drawing.line(scale.at(running), drawing.y - 5, scale.at(running), drawing.y + 17, FAINT)
    drawing.rect(left, drawing.y + 3, end - left, _HIGH, RED if row["delta_ns"] > 0 else GREEN, title)
    drawing.line(scale.at(after), drawing.y + 3, scale.at(after), drawing.y + _PITCH + 3, FAINT)
    _columns(drawing, (name, change(row["delta_ns"]), percent(row["share_fraction"]), row["evidence"]))
    return after


def _unseen(drawing: Drawing, row: Row, running: int) -> int:
    told = row["reason"] or "not observed"
    drawing.text(_LEFT + 6, drawing.y + 14, told, px=SMALL, colour=MUTED, most_px=440, has_halo=True)
    _columns(drawing, (WORDS[row["part"]], "", "", row["evidence"]))
    return running


def _columns(drawing: Drawing, told: tuple[str, str, str, str], weight: int = 400) -> None:
    name, value, share, evidence = told
    base = drawing.y + 14
    drawing.text(MARGIN, base, name, px=SMALL, weight=weight)
    drawing.text(_CHANGE, base, value, px=SMALL, weight=weight, anchor="end")
    drawing.text(_SHARE, base, share, px=SMALL, colour=MUTED, anchor="end")
    drawing.text(RIGHT, base, evidence, px=SMALL, colour=MUTED, anchor="end")
    drawing.y += _PITCH


def _evidence(known: list[Row]) -> str:
    found = {row["evidence"] for row in known}
    return next((weak for weak in ("unobservable", "modelled", "measured") if weak in found), "unobservable")
