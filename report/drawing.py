"""Figures drawn by Vega-Lite, off line: the specification that a browser takes, and the same as a still SVG."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from lake.scarcity import require_address_space
from report.colours import PAPER
from report.figure import CONFIG
from report.units import clip_text

if TYPE_CHECKING:
    from report.figure import Figure

    Row = dict[str, Any]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_VERSION = "v6.4"
# V8 reserves 64 GB and uses little of it; where it may not, it hangs.
_V8_BYTES = 72 << 30
_BOLD = 1.12  # bold letters are that much wider
# What XML has no place for, at which vl-convert ends the process.
_OUTSIDE_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def specification(figure: Figure, *, is_titled: bool = False) -> Row:
    """The whole specification, rows inside; with a title and a paper where nothing around it has them."""
    spec: Row = {
        "$schema": _SCHEMA,
        "description": figure.alt,
        "config": CONFIG,
        **figure.spec,
    }
    rows = [dict(row) for row in figure.rows]
    for layer in figure.spec.get("spec", figure.spec).get("layer", ()):
        _fit(layer, rows)
    spec["data"] = {"name": "rows", "values": rows}
    if is_titled:
        under = [figure.subtitle, *figure.notes]
        spec["title"] = {"text": figure.title, "subtitle": under, "frame": "bounds", "offset": 14}
        spec["background"] = PAPER
    return spec


def _fit(layer: Row, rows: list[Row]) -> None:
    """Cut the texts of a layer to their room: Vega would measure each some ten times to do the same."""
    room = layer["mark"].get("limit")
    if room is None:
        return
    field = layer["encoding"]["text"]["field"]
    weight = _BOLD if layer["mark"].get("fontWeight", 400) > 400 else 1.0
    for row in rows:
        if row.get(field) is not None:
            row[field] = clip_text(row[field], room / weight, layer["mark"]["fontSize"])


def svg(spec: Row) -> str:
    """The still picture; vl-convert draws it in this process, and nothing may be fetched for it."""
    require_address_space(_V8_BYTES, "V8, which draws figures,")
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(json.dumps(_keep_xml(spec)), vl_version=_VERSION, allowed_base_urls=[])
    return drawn


def _keep_xml(part: Any) -> Any:
    """A part of a specification whose texts an SVG can hold."""
    if isinstance(part, str):
        return _OUTSIDE_XML.sub(" ", part)
    if isinstance(part, dict):
        return {name: _keep_xml(value) for name, value in part.items()}
    return [_keep_xml(value) for value in part] if isinstance(part, (list, tuple)) else part


@cache
def scripts() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that needs no network."""
    require_address_space(_V8_BYTES, "V8, which draws figures,")
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", _VERSION)
    return bundle
