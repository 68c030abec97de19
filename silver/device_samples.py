"""One row per reading of a known quantity of a device, in our unit, at its own moment."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import narwhals as nw

from bronze.device_samples import TABLE as READINGS
from lake.frames import Frame, sentences, shaped
from lake.tables import RUN_ID, Table, float64, text
from silver.steps import EVIDENCE

_DATA = Path(__file__).with_name("device_metrics.toml").read_bytes()
_DOCUMENT: dict[str, Any] = tomllib.loads(_DATA.decode())
METRICS_SHA256 = hashlib.sha256(_DATA).hexdigest()
QUANTITIES: dict[str, str] = _DOCUMENT["unit"]
_LARGEST = 1e300

TABLE = Table(
    tier="silver",
    name="device_samples",
    grain="One row per reading of a quantity that silver/device_metrics.toml knows; the others stay in bronze.",
    key=("source_sha256", "ordinal"),
    columns=(
        RUN_ID,
        *(READINGS.column(name) for name in ("source_sha256", "ordinal", "tool", "ts_ns", "wall_ns", "device_id")),
        *(READINGS.column(name) for name in ("device_uuid", "device_name")),
        text("quantity", "What was read.", one_of=tuple(QUANTITIES)),
        text("unit", "What its number is in.", one_of=tuple(dict.fromkeys(QUANTITIES.values()))),
        float64("value_number", "The reading in that unit; null where the tool gave none.", nullable=True),
        text("evidence", "measured, or unobservable where the tool gave no number.", one_of=EVIDENCE),
        text("reason", "Why there is no number, or no time to join by, as sentences.", nullable=True),
    ),
)


def conform(device_samples: Frame) -> Frame:
    """Bring known readings into our units; a clock that names no zone is not taken for UTC."""
    quantity, unit = nw.lit(None).cast(nw.String), nw.lit(None).cast(nw.String)
    factor = nw.lit(None).cast(nw.Float64)
    for entry in _DOCUMENT["metric"]:
        is_it = (nw.col("tool") == entry["tool"]) & nw.col("metric").is_in(entry["names"])
        for place, (spelled, times) in enumerate(entry["units"].items()):
            is_so = nw.col("unit").fill_null("" if place else spelled) == spelled
            hit = is_it & is_so
            quantity = nw.when(hit).then(nw.lit(entry["quantity"])).otherwise(quantity)
            unit = nw.when(hit).then(nw.lit(QUANTITIES[entry["quantity"]])).otherwise(unit)
            factor = nw.when(hit).then(nw.lit(times)).otherwise(factor)
    known = device_samples.with_columns(quantity=quantity, _unit=unit, _factor=factor)
    known = known.filter(~nw.col("quantity").is_null())
    number = nw.col("value_number")
    is_number = number.is_between(-_LARGEST, _LARGEST).fill_null(False)
    has_no_zone = nw.col("ts_ns").is_null() & ~nw.col("wall_ns").is_null()
    return shaped(
        known.with_columns(
            unit=nw.col("_unit"),
            value_number=nw.when(is_number).then(number * nw.col("_factor")),
            evidence=nw.when(is_number).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
            reason=sentences(
                (~is_number, nw.col("missing_reason").fill_null("the tool gave no number")),
                (has_no_zone, "its clock names no zone, so it cannot be joined to a step"),
                (nw.col("ts_ns").is_null() & nw.col("wall_ns").is_null(), "the tool says no time"),
            ),
        ),
        TABLE,
    )
