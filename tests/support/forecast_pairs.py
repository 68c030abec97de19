"""Runs and pairs as the cost model sees them, made up: plain traced steps, and what a planted cost makes of them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from gold.bucket_replay import MIB, TracedStep, read_steps
from gold.exposure import TABLE
from gold.forecast_runs import ForecastPair, ForecastRun
from gold.pairs import OFF
from lake.contract import require_declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from lake.tables import Table

    Rows = list[dict[str, Any]]

MS = 1_000_000
SEALED = "sw_per_hop_aesgcm"
MACHINE = {"gpu": "H200", "host_cpu": "x"}
# Idle time before a bucket's data is there, time of its reduction, size in MiB.
BucketParts = tuple[float, float, float]
# Three models: one bound by its ring, one that hides a part of it, one that hides more.
MODELS: Mapping[str, Sequence[BucketParts]] = {
    "ringy": ((20, 4, 4), (0, 12, 25), (0.1, 12, 25), (0.1, 6, 12)),
    "mixed": ((30, 2, 2), (5, 10, 25), (3, 10, 25)),
    "dense": ((60, 3, 3), (12, 8, 20), (15, 9, 22), (2, 4, 8)),
}


def make_rows(buckets: Sequence[BucketParts], tail_ms: float = 5, group_size: int = 2, **fields: Any) -> Rows:
    """Rows of gold.exposure for one step: each bucket begins when the one before has ended and its data is there."""
    ends = list(accumulate(round((idle + service) * MS) for idle, service, _ in buckets))
    rows = []
    for number, ((_, service, mib), end) in enumerate(zip(buckets, ends, strict=True), 1):
        known = {
            "rank": 0,
            "step_number": 3,
            "collective_number": number,
            "collective": "all_reduce",
            "path": "hook",
            "is_warmup": False,
            "group_size": group_size,
            "buffer_bytes": round(mib * MIB),
            "step_ns": ends[-1] + round(tail_ms * MS),
            "end_ns": end,
            "ready_ns": end - round(service * MS),
            "host_copy_ns": round(service * MS / 8),
        }
        rows.append({**dict.fromkeys(TABLE.column_names), **known, **fields})
    return rows


def make_step(*buckets: BucketParts, tail_ms: float = 5, group_size: int = 2) -> TracedStep:
    """A traced step of these buckets."""
    (step,) = read_steps(make_rows(buckets, tail_ms, group_size))
    return step


def make_run(name: str, regime: str | None = OFF, step_ms: float | None = 100, **fields: Any) -> ForecastRun:
    """A run of two ranks, unless it says otherwise; `steps` and `burden` are its own, all else is of its workload."""
    steps, burden = fields.pop("steps", ()), fields.pop("burden", None)
    answer = {**MACHINE, "model": "m", "world_size": 2, "bucket_cap_mib": 25, "batch_size": 32, **fields}
    workload = {key: str(value) for key, value in answer.items() if value is not None}
    return ForecastRun(name, regime, workload, None if step_ms is None else step_ms * MS, burden, steps)


def make_pair(model: str, ns_per_byte: float, name: str = "", **fields: Any) -> ForecastPair:
    """A pair whose candidate takes exactly as long as the replay says at this cost; its runs are named by the model."""
    steps = fields.pop("steps", None) or (make_step(*MODELS[model]),)
    of_ring = {key: fields.pop(key) for key in tuple(fields) if key.startswith("ring_")}
    burden, noise = fields.pop("burden", None), fields.pop("noise_fraction", None)
    # A step without the profiler takes a little less than the traced one.
    plain_ns = fields.pop("plain_ns", 0.97 * steps[-1].step_ns)
    common = {"model": model, **fields}
    plain = make_run(f"{name or model}-plain", OFF, plain_ns / MS, steps=steps, burden=burden, **common)
    sealed = make_run(f"{name or model}-sealed", SEALED, 1, burden=burden, **common, **of_ring)
    pair = ForecastPair(sealed, plain, plain_ns, plain_ns, (steps,), noise)
    return time_candidate(pair, pair.predict(ns_per_byte))


def time_candidate(pair: ForecastPair, candidate_ns: float) -> ForecastPair:
    """The same pair where the candidate's step takes so long."""
    run = pair.candidate
    timed = ForecastRun(run.run_id, run.regime, run.fields, candidate_ns, run.burden, run.steps)
    return ForecastPair(timed, pair.baseline, candidate_ns, pair.baseline_ns, pair.traced, pair.noise_fraction)


def make_pairs(ns_per_byte: float = 0.5) -> list[ForecastPair]:
    """A pair of each model, all at one cost."""
    return [make_pair(model, ns_per_byte) for model in MODELS]


def plant_chains(*models: str, ns_per_byte: float = 0.5, factor: float = 0.6) -> list[ForecastPair]:
    """Pairs with one chain and with two, which leave so much of the cost; both of a model share their baseline."""
    pairs = []
    for model in models:
        one = make_pair(model, ns_per_byte)
        two = make_pair(model, ns_per_byte * factor, f"{model}-two", ring_chains="2")
        pairs += [one, replace(two, baseline=one.baseline)]
    return pairs


def make_single_pairs(regime: str = "hopper_spt_cc", slowdown: float = 1.2) -> list[ForecastPair]:
    """Jobs on one GPU, of three models at three batch sizes each."""
    pairs = []
    for model, host_ms in {"small": 8, "middle": 15, "deep": 30}.items():
        for batch, more in {16: 1.0, 64: 1.1, 256: 3.0}.items():
            answer = {"model": model, "world_size": 1, "batch_size": batch, "bucket_cap_mib": None}
            plain, sealed = (
                make_run(f"{model}-{batch}-{name}", name, host_ms * more * times, **answer)
                for name, times in ((OFF, 1.0), (regime, slowdown))
            )
            pairs.append(ForecastPair(sealed, plain, sealed.step_ns or 0.0, plain.step_ns or 0.0, ()))
    return pairs


def shuffle(pairs: Iterable[ForecastPair]) -> list[ForecastPair]:
    """The same pairs in another order."""
    found = list(pairs)
    random.Random(7).shuffle(found)
    return found


def list_rows(table: Table, rows: pa.Table, regime: str = SEALED) -> Rows:
    """Rows in the order of their key, held to the declaration: schema, ranges, nulls, and no key twice."""
    checked = require_declared(table, rows, regime)
    for column in table.columns:
        assert column.nullable or not checked.column(column.name).null_count, f"{column.name} is null"
    found = sorted(checked.to_pylist(), key=lambda row: [row[name] for name in table.key])
    keys = [tuple(row[name] for name in table.key) for row in found]
    assert len(set(keys)) == len(keys), f"{table.full_name} has a key twice"
    return found
