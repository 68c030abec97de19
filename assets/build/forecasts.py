"""What is predicted: the cost model of each regime, its what-ifs and its checks, made when a pair of it changed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from assets.build.declarations import find_table
from assets.build.freshness import Look, explain_stale, fingerprint
from gold import (
    cost_model,
    exposure,
    launches,
    operation_costs,
    prediction_checks,
    step_times,
    time_breakdown,
    what_if,
)
from gold.forecast_runs import ForecastRun, choose_off_runs, choose_pairs, make_pair, read_run
from gold.graph_replay import time_graph
from gold.pairs import OFF, read_fields
from gold.regime_model import RegimeModel
from lake.errors import naming
from silver import throughput

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from assets.build.freshness import Snapshots
    from gold.pairs import Index, Pair
    from lake.snapshot import Written
    from lake.store import Lake
    from lake.tables import Table

# All tables of a regime: named here, so that asking for a forecast imports no other table.
FORECAST_TABLES = (cost_model.TABLE, prediction_checks.TABLE, what_if.TABLE)


@dataclass(frozen=True)
class StaleRegime:
    """A regime whose forecasts must be made, and why; without pairs where its last one is gone."""

    regime: str
    pairs: tuple[Pair, ...]
    off_runs: tuple[str, ...]
    made_from: Mapping[Table, str]
    why: str

    @property
    def read(self) -> list[str]:
        """All runs whose tables are read."""
        return sorted(
            {name for pair in self.pairs for name in (*pair.candidates, *pair.baselines)} | set(self.off_runs)
        )

    @property
    def members(self) -> tuple[str, ...]:
        """The runs of the regime whose pairs are read."""
        return tuple(pair.run_id for pair in self.pairs)


def build_forecasts(lake: Lake, *, full: bool = False) -> list[Written]:
    """Bring the forecasts of every regime up to date; gives the partitions of those that were not."""
    return [written for stale in stale_regimes(lake, full=full) for written in make_forecasts(lake, stale)]


def stale_regimes(
    lake: Snapshots, tables: Sequence[Table] = FORECAST_TABLES, *, full: bool = False
) -> list[StaleRegime]:
    """The regimes of which a pair, or a run without a TEE on the same machine, is new; all of them if `full`."""
    look = lake if isinstance(lake, Look) else Look(lake)
    index, paired, stale = look.measured_runs, look.pairs, []
    regimes = sorted({str(pair.regime) for pair in paired.values() if pair.is_tee_overhead})
    for regime in regimes:
        chosen = choose_pairs(paired, index, regime)
        off_runs = choose_off_runs(chosen, index)
        read = sorted({name for pair in chosen for name in (*pair.candidates, *pair.baselines)} | set(off_runs))
        # All of them are made from the same tables, whose marks are read once.
        inputs = sorted({name for table in FORECAST_TABLES for name in table.inputs})
        listed = [[name, *_list_marks(look, inputs, name)] for name in read]
        marks = {table: fingerprint(table, listed, regime) for table in FORECAST_TABLES}
        changed = "a pair of its regime, or a run without a TEE, changed"
        reasons = (explain_stale(look, table, regime, marks[table], changed) for table in tables)
        why = next((why for why in reasons if why is not None), None)
        if full or why is not None:
            why = why or f"the forecasts of {regime} are to be made again"
            stale.append(StaleRegime(regime, tuple(chosen), tuple(off_runs), marks, why))
    known = {name for table in FORECAST_TABLES for name in look.snapshot(table).run_ids}
    for regime in sorted(known - set(regimes)):
        nothing = {table: fingerprint(table, regime, "no pair") for table in FORECAST_TABLES}
        stale.append(StaleRegime(regime, (), (), nothing, f"the last pair of {regime} is gone"))
    return stale


def _list_marks(look: Look, inputs: Sequence[str], run_id: str) -> list[int | None]:
    return sorted({look.snapshot(find_table(name)).mark(run_id) for name in inputs}, key=str)


def make_forecasts(lake: Lake, stale: StaleRegime) -> list[Written]:
    """The tables of one regime; empty where its last pair is gone."""
    frames = {table: table.arrow_schema.empty_table() for table in FORECAST_TABLES}
    if stale.pairs:
        with naming(f"predicting {stale.regime}"):
            model = read_model(lake, stale.regime, stale.pairs, stale.off_runs)
            plateaus = list(model.plateaus.values())
            sides = sorted({run.run_id for pair in model.pairs for run in (pair.candidate, pair.baseline)})
            timed = (_read_rows(lake, table, sides) for table in (operation_costs.TABLE, launches.TABLE))
            frames[cost_model.TABLE] = cost_model.measure(model.regime, model.pairs, plateaus, *timed)
            frames[prediction_checks.TABLE] = prediction_checks.measure(model.regime, model.pairs, model.off_runs)
            frames[what_if.TABLE] = what_if.measure(model)
    return [
        lake.replace(table, stale.regime, rows, stale.made_from[table], read=stale.read)
        for table, rows in frames.items()
    ]


def read_regime(lake: Lake, regime: str, also: Collection[str] = ()) -> RegimeModel:
    """What predictions of a regime go by, as the lake is now, with some runs that are asked about."""
    look = Look(lake)
    index, paired = look.measured_runs, look.pairs
    chosen = choose_pairs(paired, index, regime)
    asked = [paired[name] for name in also if name in paired and paired[name].is_tee_overhead]
    chosen += [pair for pair in asked if pair.regime == regime and pair not in chosen]
    off_runs = {*choose_off_runs(chosen, index), *(name for name in also if index[name]["regime"] == OFF)}
    return read_model(lake, regime, chosen, sorted(off_runs))


def read_model(lake: Lake, regime: str, pairs: Iterable[Pair], off_runs: Collection[str]) -> RegimeModel:
    """The runs of some pairs, and runs without a TEE, from their tables: each is read once for all of them."""
    pairs = list(pairs)
    names = sorted({name for pair in pairs for name in (*pair.candidates, *pair.baselines)} | set(off_runs))
    index = Look(lake).measured_runs
    runs = read_runs(lake, {name: index[name] for name in names if name in index})
    found = [one for pair in pairs if (one := make_pair(pair, runs)) is not None]
    return RegimeModel(regime, tuple(found), tuple(runs[name] for name in sorted(off_runs) if name in runs))


def read_runs(lake: Lake, index: Index) -> dict[str, ForecastRun]:
    """Some runs as the cost model sees them."""
    names = sorted(index)
    times, exposed = (_read_rows(lake, table, names) for table in (step_times.TABLE, exposure.TABLE))
    rates = _read_rates(lake, names)
    alone = [name for name in names if read_fields(index[name]["workload"]).get("world_size") in {None, "", "1"}]
    parts = _read_rows(lake, time_breakdown.TABLE, alone)
    return {
        name: read_run(name, index[name], times[name], exposed[name], rates.get(name), time_graph(parts[name]))
        for name in names
    }


def _read_rows(lake: Lake, table: Table, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if names:
        for row in lake.scan(table, names).collect().iter_rows(named=True):
            found[row["run_id"]].append(row)
    return found


def _read_rates(lake: Lake, names: Sequence[str]) -> dict[str, float]:
    """Median throughput of each run whose log gives one, warm-up aside."""
    if not names:
        return {}
    logged = lake.scan(throughput.TABLE, names).filter(~pl.col("is_warmup"), pl.col("samples_per_second") > 0)
    rates = logged.group_by("run_id").agg(pl.col("samples_per_second").median()).collect()
    return dict(rates.rows())
