"""What others have published, beside ours and never mixed with it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from report.colours import BLUE, MUTED, PURPLE
from report.figure import (
    PLOT,
    Figure,
    Row,
    draw_marks,
    format_omitted,
    legend,
    lines,
    names,
    powers,
    shared_scale,
    vertical_labels,
    words,
)
from report.ranges import TIMES
from report.sentences import headline
from report.units import finite, format_count, format_ratio, legible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_SOURCES = 30
_CLASSES = {"primary": "their own text", "secondary": "quoted by others", "computed": "by us, from their data"}
_KINDS = [("ours", BLUE), *((f"published: {meaning}", PURPLE) for meaning in _CLASSES.values())]
_SHAPES = dict(zip((name for name, _ in _KINDS), ("diamond", "circle", "triangle-up", "square"), strict=True))


def published(rows: Sequence[Row], ours: Sequence[Row] = ()) -> Figure:
    """All published slowdowns of whole workloads, a line per source and regime; ours above them, in another colour."""
    drawn_rows = [row for row in rows if finite(row["slowdown_ratio"]) and row["slowdown_ratio"] > 0]
    drawn_rows.sort(key=lambda row: (row["source"], row["regime"] or "", row["entry_id"]))
    groups = [list(of) for _, of in groupby(drawn_rows, key=lambda row: (row["source"], row["regime"]))]
    groups.sort(key=lambda group: max(row["slowdown_ratio"] for row in group), reverse=True)
    mine = [row for row in ours if finite(row["slowdown_ratio"]) and row["slowdown_ratio"] > 0]
    kept = groups[:MOST_SOURCES]
    first = len(mine) + 1 if mine else 0
    shown: list[Row] = [{"line": 0, "group": "ours, in this lake"}] if mine else []
    shown += [mark for place, row in enumerate(mine, 1) for mark in _ours(place, row)]
    shown += [{"line": first, "group": "published by others"}] if mine and kept else []
    shown += [mark for place, group in enumerate(kept, first + 1) for mark in _theirs(place, group)]
    x = shared_scale(
        "at", "slowdown, logarithmic", scale=powers([1.0, *(row["at"] for row in shown if "at" in row)]), axis=TIMES
    )
    used = [(name, colour) for name, colour in _KINDS if any(row.get("kind") == name for row in shown)]
    named = legend("kind", used, columns=2)
    del named["legend"]["symbolType"]
    shape = {
        "field": "kind",
        "type": "nominal",
        "legend": named["legend"],
        "scale": {"domain": [name for name, _ in used], "range": [_SHAPES[name] for name, _ in used]},
    }
    spec = lines(
        vertical_labels(1.0),
        draw_marks("at", {"type": "point", "filled": True, "size": 64, "opacity": 0.85}, x=x, color=named, shape=shape),
        names("group", colour=MUTED, weight=600, dy=6),
        names(dy=-6, weight=600),
        names("under", dy=8, colour=MUTED),
        words("value", PLOT + 10, 176),
        high=34,
    )
    notes = (*format_omitted(len(groups) - len(kept), "source"), *_parts(len(rows) - len(drawn_rows)))
    subtitle = "slowdown of whole workloads; no published number is ours, and none goes into any of ours"
    return Figure("What others have published", subtitle, tuple(shown), spec, notes)


def _ours(place: int, row: Row) -> Iterator[Row]:
    yield {
        "line": place,
        "run": legible(row["run_id"]),
        "label": legible(row["run_id"]),
        "under": legible(row["regime"]),
        "at": row["slowdown_ratio"],
        "value": f"{headline(row)}, {row['evidence']}",
        "kind": _KINDS[0][0],
        "what": f"{legible(row['model'] or 'model unknown')}, ours",
        "detail": format_ratio(row["slowdown_ratio"]),
        "evidence": row["evidence"],
    }


def _theirs(place: int, group: list[Row]) -> Iterator[Row]:
    values = sorted(row["slowdown_ratio"] for row in group)
    text = format_ratio(values[0]) if len(values) == 1 else f"{format_ratio(values[0])} to {format_ratio(values[-1])}"
    named = {"label": legible(group[0]["source"]), "under": legible(group[0]["regime"] or "regime not clear")}
    for row in group:
        yield {
            "line": place,
            **(named if row is group[0] else {}),
            **({"value": f"{text}, published"} if row is group[0] else {}),
            "at": row["slowdown_ratio"],
            "kind": f"published: {_CLASSES[row['evidence_class']]}",
            "what": legible(f"{row['workload']}, {row['hardware']}, {row['statistic']}"),
            "detail": format_ratio(row["slowdown_ratio"]),
            "evidence": f"{row['evidence_class']}, {legible(row['source'])}",
        }


def _parts(count: int) -> tuple[str, ...]:
    return (f"{format_count(count, 'published number')} of a part of the work, not drawn",) if count else ()
