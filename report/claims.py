"""What each run claims of its protection, and what its recording shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from report.colours import BAD, BLUE, MUTED, ORANGE
from report.figure import NAME, PLOT, TOOLTIP, Figure, Row, format_omitted, legend, lines, words
from report.units import format_count, legible

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_RUNS = 30
_AGREEMENTS = [("agrees", BLUE), ("unproven", ORANGE), ("contradicted", BAD)]


def attested_runs(rows: Sequence[Row]) -> Figure:
    """A mark and the verdict per run; whether the recording agrees has its own colour and its own shape."""
    shown = tuple(_claim(place, row) for place, row in enumerate(rows[:MOST_RUNS]))
    used = [(name, colour) for name, colour in _AGREEMENTS if any(row["what"] == name for row in shown)]
    named = legend("what", used)
    del named["legend"]["symbolType"]
    shape = {
        "field": "what",
        "type": "nominal",
        "legend": named["legend"],
        "scale": {"domain": [name for name, _ in used], "range": [_SHAPES[name] for name, _ in used]},
    }
    spec = lines(
        {
            "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
            "encoding": {
                "x": {"value": -NAME - 4},
                "color": named,
                "shape": shape,
                "tooltip": TOOLTIP,
            },
        },
        words("label", -NAME + 10, NAME + 200, dy=-7, weight=600),
        words("value", PLOT + 190, 360, dy=-7, colour=MUTED, align="right"),
        words("detail", -NAME + 10, NAME + PLOT + 190, dy=8),
        high=40,
    )
    is_attested = any(row["has_attestation"] for row in rows)
    subtitle = "claim against recording" + (" and attestation" if is_attested else "; nothing here is attested")
    return Figure(
        "Does the recording show what the run claims?",
        subtitle,
        shown,
        spec,
        format_omitted(len(rows) - len(shown), "run"),
    )


_SHAPES = {"agrees": "circle", "unproven": "triangle-up", "contradicted": "cross"}


def _claim(place: int, row: Row) -> Row:
    attested = ", attested" if row["has_attestation"] else ""
    broken = f", {format_count(row['found_violations_count'], 'violation')}" if row["found_violations_count"] else ""
    return {
        "line": place,
        "run": legible(row["run_id"]),
        "label": legible(row["run_id"]),
        "value": legible(f"{row['regime'] or 'no regime'}, {row['agreement']}{attested}{broken}, {row['evidence']}"),
        "what": row["agreement"],
        "detail": legible(row["verdict"]),
        "evidence": row["evidence"],
    }
