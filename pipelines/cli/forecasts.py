"""What `teetotal what-if` says: predictions of one run, or the best remedy of each run of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from assets.build.forecasts import read_regime, read_runs, stale_regimes
from assets.build.freshness import Look
from assets.build.measured_runs import require_measured
from bronze.manifest import REGIMES
from gold import what_if
from gold.changes import SETTINGS, predict_change
from gold.pairs import OFF
from lake.errors import EvidenceRejected, nearest
from pipelines.cli.show import format_grid
from report.forecasts import format_interval
from report.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from gold.forecast_runs import ForecastRun
    from lake.store import Lake

    Row = dict[str, Any]

_WHOLE = ("chains", "accumulate", "batch_size", "world_size")
_SWITCHES = ("pinned", "cuda_graphs", "pipelined", "direct")
_MOST = 1_000_000


def read_change(regime: str | None, given: Sequence[str]) -> dict[str, str]:
    """What is to be changed; a wrong name or value is answered with what was expected."""
    if regime and regime not in REGIMES:
        raise EvidenceRejected(f"{regime[:80]!r}: no such regime", nearest(regime[:80], REGIMES))
    change = {"regime": regime} if regime else {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not equals:
            raise EvidenceRejected(f"{setting[:80]!r}: expected NAME=VALUE", "for example chains=4")
        if name not in SETTINGS or name == "regime":
            raise EvidenceRejected(f"{name[:80]!r}: no such setting", nearest(name[:80], SETTINGS))
        change[name] = _read_value(name, value)
    return change


def _read_value(name: str, value: str) -> str:
    expected = f"{name}={value[:80]}: expected {SETTINGS[name]}"
    if name in _SWITCHES:
        if value != "true":
            raise EvidenceRejected(expected, f"for example {name}=true")
        return value
    try:
        number = float(value)
    except ValueError as error:
        raise EvidenceRejected(expected, f"for example {name}=4") from error
    if not 0 < number <= _MOST or (name in _WHOLE and number != int(number)):
        raise EvidenceRejected(expected, f"for example {name}=4")
    return f"{number:g}" if name not in _WHOLE else str(int(number))


def answer_question(lake: Lake, run_id: str | None, change: Mapping[str, str]) -> list[Row]:
    """What a change does to a run; without a run, the best remedy of each."""
    if run_id is not None:
        return answer(lake, run_id, change)
    if change:
        raise EvidenceRejected("no run is named", "name a run to change: teetotal what-if RUN_ID --set …")
    return rank_fleet(lake)


def answer(lake: Lake, run_id: str, change: Mapping[str, str]) -> list[Row]:
    """What a change does to a run; the usual remedies, or each known regime, where nothing is asked."""
    look = Look(lake)
    index = look.measured_runs
    require_measured(index, run_id)
    own = index[run_id]["regime"] or OFF
    paired = look.pairs
    if not change and (stored := _read_stored(lake, look, run_id)):
        return _rank(_drop_rates(stored))
    known = sorted({str(pair.regime) for pair in paired.values() if pair.is_tee_overhead})
    first = paired[run_id].repeated_run_id if run_id in paired and own != OFF else None
    asked = first or run_id
    if own == OFF and "cuda_graphs" in change and "regime" not in change:
        changes = [dict(change)]
    elif own == OFF:
        regimes = [change["regime"]] if "regime" in change else known
        changes = [{**change, "regime": regime} for regime in regimes if regime != OFF]
        if not changes:
            raise EvidenceRejected(
                "no run under a TEE in the lake has a baseline, so no regime can be predicted",
                "land a pair, or name a regime that the lake has pairs of",
            )
    elif change.get("regime", own) not in {own, OFF}:
        raise EvidenceRejected(
            f"{run_id} is a run under {own}", f"ask what its baseline would take under {change['regime']}"
        )
    else:
        changes = [dict(change)] if change else [{}]
    rows = [row for one in changes for row in _answer_one(lake, asked, own, one)]
    return _rank(rows if change else _drop_rates(rows))


def _drop_rates(rows: Sequence[Row]) -> list[Row]:
    """The answers without rates of sealing: those are what hardware would have to reach, and nothing to be set."""
    return [row for row in rows if "sealing_gb_per_second" not in row["change"]]


def _rank(rows: Sequence[Row]) -> list[Row]:
    """What saves most first, what cannot be predicted last."""
    return sorted(rows, key=lambda row: (row["saved_ns"] is None, -(row["saved_ns"] or 0), row["change"]))


def _read_stored(lake: Lake, look: Look, run_id: str) -> list[Row]:
    """What `teetotal run` has answered of a run already; nothing where that is out of date."""
    stale = {one.regime for one in stale_regimes(look)}
    rows = lake.scan(what_if.TABLE).filter(pl.col("run_id") == run_id).collect().to_dicts()
    return [] if any(row["regime"] in stale for row in rows) else rows


def _answer_one(lake: Lake, run_id: str, own: str, change: Mapping[str, str]) -> list[Row]:
    """What a change does to a run; without one, what each of the usual ones does."""
    regime = own if own != OFF else change.get("regime", OFF)
    model = read_regime(lake, regime, [run_id])
    run = _find_run(model.off_runs if own == OFF else [pair.candidate for pair in model.pairs], run_id)
    if run is None:
        run = read_runs(lake, {run_id: Look(lake).measured_runs[run_id]})[run_id]
    asked = [change] if change else what_if.list_asked(run)
    return [what_if.describe(regime, run, predict_change(run, model, one)) for one in asked]


def _find_run(runs: Sequence[ForecastRun], run_id: str) -> ForecastRun | None:
    return next((run for run in runs if run.run_id == run_id), None)


def rank_fleet(lake: Lake) -> list[Row]:
    """The change that saves most of each run's step beyond the model's error, the largest saving first.

    What changes the mathematics (a larger effective batch) is named only where nothing else is worth it.
    """
    rows = [row for row in lake.scan(what_if.TABLE).collect().to_dicts() if row["verdict"] == "worth it"]
    rows = _drop_rates(rows)
    rows.sort(key=lambda row: ("accumulate" in row["change"], -row["saved_ns"], row["change"]))
    best: dict[str, Row] = {}
    for row in rows:
        best.setdefault(row["run_id"], row)
    return sorted(best.values(), key=lambda row: (-row["saved_ns"], row["run_id"]))


def make_reader(rows: Sequence[Row]) -> pa.RecordBatchReader:
    """The answers for other programs."""
    return pa.Table.from_pylist(list(rows), schema=what_if.TABLE.arrow_schema).to_reader()


def print_answers(rows: Sequence[Row], console: Console) -> None:
    """The answers for a person."""
    if not rows:
        console.print("no change is worth it beyond the model's error", style="dim")
        return
    cells = [
        {
            "run": row["run_id"],
            "change": row["change"],
            "step now": format_duration(row["current_step_ns"]),
            "predicted": format_duration(row["predicted_step_ns"]),
            "interval": format_interval(row),
            "ratio": format_ratio(row["slowdown_ratio"]),
            "mostly": row["dominant_term"] or "",
            "verdict": row["verdict"] + (", extrapolated" if row["is_extrapolated"] else ""),
        }
        for row in rows
    ]
    format_grid(console, list(cells[0]), cells, ("step now", "predicted", "ratio"))
    for note in sorted({row["reason"] for row in rows if row["reason"]}):
        console.print(f"note: {note}", style="dim", highlight=False, markup=False)
    console.print("modelled from pairs in the lake; `teetotal validate` says how far off", style="dim")
