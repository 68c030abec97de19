"""One row per reading of a known quantity of a device, in our unit, at its own moment."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import narwhals as nw

from bronze.device_samples import TABLE as READINGS
from lake.frames import Frame, divide_down, join_reasons, select_declared
from lake.tables import RUN_ID, Table, float64, int64, text
from silver.steps import EVIDENCE

_DATA = Path(__file__).with_name("device_metrics.toml").read_bytes()
_DOCUMENT: dict[str, Any] = tomllib.loads(_DATA.decode())
METRICS_SHA256 = hashlib.sha256(_DATA).hexdigest()
QUANTITIES: dict[str, str] = _DOCUMENT["unit"]
CLOCKS = ("stated", "claimed", "inferred")
_LARGEST = 1e300
# Zones lie whole quarters of an hour apart, from 12 hours behind UTC to 14 before it.
_QUARTER_NS = 900 * 10**9
_BEHIND, _BEFORE = 48, 56
_SHIFT = 64
# How far readings may begin or end from the run that they were taken of.
_SLACK_NS = 60 * 10**9
# A clock that says less counts from the start of a session, not from 1970.
_EARLIEST_NS = 10**18
_ZONELESS = "its clock names no zone (clock_zone in run.toml says it)"

TABLE = Table(
    tier="silver",
    name="device_samples",
    grain="One row per reading of a quantity that silver/device_metrics.toml knows; the others stay in bronze.",
    key=("source_sha256", "ordinal"),
    inputs=("bronze.device_samples", "bronze.runs", "silver.steps", "silver.throughput"),
    is_empty_without_first_input=True,
    columns=(
        RUN_ID,
        *(READINGS.column(name) for name in ("source_sha256", "ordinal", "tool")),
        int64("ts_ns", "When, UTC; null where the source's clock names no zone and none can be told.", nullable=True),
        text(
            "ts_source",
            "stated: the source says it with its zone; claimed: the manifest's clock_zone; inferred: of all zones only "
            "one brings the readings to the time of the run.",
            nullable=True,
            one_of=CLOCKS,
        ),
        *(READINGS.column(name) for name in ("wall_ns", "device_id")),
        *(READINGS.column(name) for name in ("device_uuid", "device_name")),
        text("quantity", "What was read.", one_of=tuple(QUANTITIES)),
        text("unit", "What its number is in.", one_of=tuple(dict.fromkeys(QUANTITIES.values()))),
        float64("value_number", "The reading in that unit; null where the tool gave none.", nullable=True),
        text("evidence", "measured, or unobservable where the tool gave no number.", one_of=EVIDENCE),
        text("reason", "Why there is no number, or no time to join by, as sentences.", nullable=True),
    ),
)


def conform(device_samples: Frame, runs: Frame, steps: Frame, throughput: Frame) -> Frame:
    """Bring known readings into our units; a clock without a zone gets the claimed one, else the only one that fits."""
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
    known = _add_timestamps(known.filter(~nw.col("quantity").is_null()), runs, _find_windows(steps, throughput))
    number = nw.col("value_number")
    is_number = number.is_between(-_LARGEST, _LARGEST).fill_null(False)
    has_no_zone = nw.col("ts_ns").is_null() & ~nw.col("wall_ns").is_null()
    is_elsewhere = (nw.col("ts_source") == "claimed") & (
        (nw.col("_last_ns") - nw.col("_zone_ns") < nw.col("_begin_ns"))
        | (nw.col("_first_ns") - nw.col("_zone_ns") > nw.col("_end_ns"))
    )
    return select_declared(
        known.with_columns(
            unit=nw.col("_unit"),
            value_number=nw.when(is_number).then(number * nw.col("_factor")),
            evidence=nw.when(is_number).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
            reason=join_reasons(
                (~is_number, nw.col("missing_reason").fill_null("the tool gave no number")),
                (has_no_zone & nw.col("_begin_ns").is_null(), f"{_ZONELESS}, and nothing else of the run has a time"),
                (has_no_zone & ~nw.col("_begin_ns").is_null(), f"{_ZONELESS}, and not exactly one fits the run"),
                (is_elsewhere.fill_null(False), "in the claimed zone no reading of its file lies within the run"),
                (nw.col("ts_ns").is_null() & nw.col("wall_ns").is_null(), "the tool says no time"),
            ),
        ),
        TABLE,
    )


def _find_windows(steps: Frame, throughput: Frame) -> Frame:
    """From when to when a run has steps or periods in UTC."""
    timed = steps.select("run_id", "ts_ns", end_ns=nw.col("ts_ns") + nw.col("duration_ns"))
    timed = nw.concat([timed, throughput.select("run_id", "ts_ns", "end_ns")])
    timed = timed.filter(nw.col("ts_ns") > _EARLIEST_NS, ~nw.col("end_ns").is_null())
    return timed.group_by("run_id").agg(_begin_ns=nw.col("ts_ns").min(), _end_ns=nw.col("end_ns").max())


def _add_timestamps(readings: Frame, runs: Frame, windows: Frame) -> Frame:
    """Add `ts_ns` and `ts_source` of readings whose clock names no zone, and what decided them."""
    is_zoneless = nw.col("ts_ns").is_null() & ~nw.col("wall_ns").is_null()
    by_file = readings.filter(is_zoneless).group_by("run_id", "source_sha256")
    files = by_file.agg(_first_ns=nw.col("wall_ns").min(), _last_ns=nw.col("wall_ns").max())
    files = files.join(windows, on="run_id", how="left")
    files = files.join(runs.select("run_id", "clock_zone"), on="run_id", how="left")
    files = _fit_offset(files.with_columns(_claimed_ns=_offset_ns()))
    zone = nw.coalesce(nw.col("_claimed_ns"), nw.col("_fitting_ns"))
    columns = ["run_id", "source_sha256", "_first_ns", "_last_ns", "_begin_ns", "_end_ns", "_claimed_ns", "_zone_ns"]
    files = files.with_columns(_zone_ns=zone).select(columns)
    readings = readings.join(files, on=["run_id", "source_sha256"], how="left")
    way = nw.when(~nw.col("_claimed_ns").is_null()).then(nw.lit("claimed")).otherwise(nw.lit("inferred"))
    found = nw.when(is_zoneless & ~nw.col("_zone_ns").is_null())
    return readings.with_columns(
        ts_source=nw.when(~nw.col("ts_ns").is_null()).then(nw.lit("stated")).otherwise(found.then(way)),
        ts_ns=nw.coalesce(nw.col("ts_ns"), found.then(nw.col("wall_ns") - nw.col("_zone_ns"))),
    )


def _offset_ns() -> nw.Expr:
    """How far the claimed zone (`UTC`, `+02:00`) is before UTC."""
    zone = nw.when(nw.col("clock_zone") == "UTC").then(nw.lit("+00:00")).otherwise(nw.col("clock_zone"))
    minutes = zone.str.slice(1, 2).cast(nw.Int64) * 60 + zone.str.slice(4, 2).cast(nw.Int64)
    size = minutes * (60 * 10**9)
    return nw.when(zone.str.starts_with("-")).then(-size).otherwise(size)


def _fit_offset(files: Frame) -> Frame:
    """Add `_fitting_ns`: the one zone in which readings and run cover each other; null where several or none do."""
    first, last = nw.col("_first_ns") - nw.col("_begin_ns"), nw.col("_last_ns") - nw.col("_end_ns")
    files = files.with_columns(
        _low_ns=nw.when(first < last).then(first).otherwise(last),
        _high_ns=nw.when(first < last).then(last).otherwise(first),
    )
    # Made positive first, as engines disagree on what division does below 0.
    shift, quarter = _SHIFT * _QUARTER_NS, nw.lit(_QUARTER_NS).cast(nw.Int64)
    is_near = (nw.col("_low_ns") > -shift + _SLACK_NS) & (nw.col("_high_ns") < shift)
    none = nw.lit(None).cast(nw.Int64)
    files = files.with_columns(
        _low=nw.when(is_near).then(nw.col("_low_ns") - _SLACK_NS + shift + _QUARTER_NS - 1).otherwise(none),
        _high=nw.when(is_near).then(nw.col("_high_ns") + _SLACK_NS + shift).otherwise(none),
    )
    files = files.with_columns(_low=divide_down(nw.col("_low"), quarter), _high=divide_down(nw.col("_high"), quarter))
    zone = nw.col("_low") - _SHIFT
    is_one = (nw.col("_low") == nw.col("_high")) & (zone >= -_BEHIND) & (zone <= _BEFORE)
    return files.with_columns(_fitting_ns=nw.when(is_one).then(zone * _QUARTER_NS).otherwise(none))
