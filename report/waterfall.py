"""The waterfall of a pair: from the baseline's step to the run's, one bar per part, each where the last one ended."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from gold.overhead_breakdown import GROUPS
from report.colours import FAINT, GREEN, MUTED, RED, WORDS
from report.figure import Figure, Row, draw_marks, format_omitted, legend, ms, shared_scale, words
from report.units import finite, format_change, format_duration, format_number, legible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_PAIRS = 12
_ALONE, _BESIDE, _SIDE = 420, 214, 116
_KINDS = [("mean step", FAINT), ("takes longer", RED), ("takes less", GREEN)]
_TWIN, _RUN = "step of the baseline", "step of the run"


def overhead_breakdown(rows: Sequence[Row]) -> Figure:
    """One waterfall a pair; a part that takes no time anywhere has no line, one that was not seen says so."""
    pairs = [list(parts) for _, parts in groupby(rows, key=lambda row: row["run_id"])]
    kept = pairs[:MOST_PAIRS]
    # Parts of one group stand together: a hop of a sealed run is one of its baseline under other names.
    order = {group: place for place, group in enumerate(GROUPS)}
    kept = [sorted(parts, key=lambda row: order.get(row["part_group"], len(order))) for parts in kept]
    occurring = {row["part"] for parts in kept for row in parts if _occurs(row)}
    shown = tuple(mark for parts in kept for mark in _pair([row for row in parts if row["part"] in occurring]))
    return Figure(
        "Where the extra time is paid",
        "mean step of all ranks, in ms, from the baseline to the run; pieces sum to the difference, "
        "and what hops between ranks take is the sum of the first ones",
        shown,
        _spec(shown, len(kept)),
        format_omitted(len(pairs) - len(kept), "pair"),
    )


def _spec(shown: Sequence[Row], panels: int) -> Row:
    """A panel a pair, each to its own scale: shares are compared within a pair, slowdowns elsewhere."""
    order = list(dict.fromkeys(row["label"] for row in shown))
    order = [_TWIN, *(label for label in order if label not in {_TWIN, _RUN}), _RUN]
    used = [(name, colour) for name, colour in _KINDS if any(row.get("kind") == name for row in shown)]
    plot = _ALONE if panels == 1 else _BESIDE
    x = shared_scale("start", "ms per step", axis={"tickCount": 4, "title": None})
    layers = [
        draw_marks("end", {"type": "bar", "height": 13}, x=x, x2={"field": "end"}, color=legend("kind", used)),
        draw_marks("end", {"type": "tick", "color": FAINT, "thickness": 1, "size": 21}, x={**x, "field": "end"}),
        words("value", plot + 8 + _SIDE, _SIDE, align="right"),
        words("unseen", 6, plot + _SIDE, colour=MUTED),
        words("doubt", plot + 16 + _SIDE, 84, colour=MUTED),
    ]
    axis = {"title": None, "domain": False, "ticks": False, "labelLimit": 130, "labelPadding": 8}
    return {
        "facet": {"field": "panel", "type": "nominal", "title": None, "sort": None},
        "columns": 1 if panels == 1 else 2,
        "spacing": {"row": 26, "column": 30},
        "resolve": {"scale": {"x": "independent"}, "axis": {"x": "independent", "y": "independent"}},
        "spec": {
            "width": plot,
            "height": {"step": 19},
            "encoding": {"y": {"field": "label", "type": "nominal", "sort": order, "axis": axis}},
            "layer": layers,
        },
    }


def _occurs(row: Row) -> bool:
    return bool(row["reason"] or row["step_ns"] or row["baseline_step_ns"])


def _pair(parts: list[Row]) -> Iterator[Row]:
    """The marks of a pair: its baseline's step, each part from where the last one ended, its own step."""
    known = [row for row in parts if row["overhead_ns"] is not None and row["baseline_step_ns"] is not None]
    if not parts:
        return
    first, start = parts[0], sum(row["baseline_step_ns"] for row in known)
    evidence = _weakest(known)
    common = {
        "run": legible(first["run_id"]),
        "panel": f"{legible(first['run_id'])} ({legible(first['regime'])}), {evidence}",
        "cells": f"{format_number(first['cells_count'])} ranks × steps",  # noqa: RUF001
    }
    yield {**common, **_total(_TWIN, start, evidence)}
    running = start
    for row in parts:
        if row not in known:
            text = legible(row["reason"] or "not observed")
            yield {
                **common,
                "label": WORDS[row["part"]],
                "unseen": f"{text}, {row['evidence']}",
                "evidence": row["evidence"],
            }
            continue
        yield {**common, **_part(row, running), **_doubt(row["evidence"], evidence)}
        running += row["overhead_ns"]
    yield {**common, **_total(_RUN, running, evidence)}


def _total(label: str, amount: int, evidence: str) -> Row:
    text = format_duration(amount)
    return {
        "label": label,
        "start": 0.0,
        "end": ms(amount),
        "kind": "mean step",
        "what": label,
        "value": text,
        "detail": text,
        "evidence": evidence,
    }


def _part(row: Row, running: int) -> Row:
    delta = row["overhead_ns"]
    share = f" ({_share(row['share_fraction'])})" if finite(row["share_fraction"]) else ""
    before, after = format_duration(row["baseline_step_ns"]), format_duration(row["step_ns"])
    return {
        "label": WORDS[row["part"]],
        "start": ms(running),
        "end": ms(running + delta),
        "kind": "takes longer" if delta > 0 else "takes less",
        "what": WORDS[row["part"]],
        "value": f"{format_change(delta)}{share}",
        "detail": f"{before} to {after}, {format_change(delta)}{share}",
        "evidence": row["evidence"],
    }


def _share(fraction: float) -> str:
    """A share in whole percent, which is enough beside a number of three digits."""
    text = f"{fraction * 100:.0f} %".replace("-", "−")  # noqa: RUF001
    return text if fraction == 0 or not text.strip("−").startswith("0 ") else "<1 %"  # noqa: RUF001


def _doubt(evidence: str, weakest: str) -> Row:
    """The heading of a panel says how well the weakest of it is known; a part that is known otherwise says so."""
    return {} if evidence == weakest else {"doubt": evidence}


def _weakest(known: list[Row]) -> str:
    found = {row["evidence"] for row in known}
    return next((weak for weak in ("unobservable", "modelled", "measured") if weak in found), "unobservable")
