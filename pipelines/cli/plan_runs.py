"""What `teetotal plan --run` takes from a run of the lake: sizes, utilisation, what sealing costs there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import polars as pl

from assets.build.forecasts import read_regime, read_runs
from assets.build.freshness import Look
from assets.build.measured_runs import require_measured
from gold import time_breakdown
from gold.hardware import find_gpu
from gold.outcomes import Refusal
from gold.pairs import OFF
from gold.strategy_question import MeasuredSealing
from gold.strategy_time import Workload, count_operations
from pipelines.cli.plan_questions import read_hardware_file

if TYPE_CHECKING:
    from gold.forecast_runs import ForecastRun
    from gold.hardware import Gpu, Hardware, PublicModel
    from lake.store import Lake
    from pipelines.cli.plan_questions import Asked

_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True)
class TakenRun:
    """The options as a run completes them, what its lake measured, and a line for each thing taken or not."""

    asked: Asked
    measured: dict[str, MeasuredSealing]
    lines: tuple[str, ...]


def take_run(lake: Lake, run_id: str, asked: Asked) -> TakenRun:
    """Complete the options from a run; what was said on the command line stays."""
    index = Look(lake).measured_runs
    require_measured(index, run_id)
    run = read_runs(lake, {run_id: index[run_id]})[run_id]
    known = read_hardware_file(asked.hardware)
    taken, lines = _take_sizes(run, asked, known)
    gpu = find_gpu(run.fields.get("gpu", ""), known)
    if gpu is None:
        lines.append(f"not taken from {run_id}: the GPU {run.fields.get('gpu') or 'is not said'!r} is not in the table")
    elif not asked.gpu:
        taken = replace(taken, gpu=gpu.name)
        lines.append(f"taken from {run_id}: {gpu.name}")
    if asked.utilisation is None and gpu is not None:
        found = _measure_utilisation(lake, run, gpu, known)
        if isinstance(found, str):
            lines.append(f"not taken from {run_id}: utilisation, because {found}")
        else:
            taken = replace(taken, utilisation=found, dtype=_DTYPES[run.fields["dtype"]])
            lines.append(
                f"taken from {run_id}: kernels reach {found:.1%} of the peak in {taken.dtype}, measured; "
                "less than a GPU reaches alone where its ranks shared one; the plan's gradients stay in bf16"
            )
    measured = _measure_sealing(lake, run, known)
    lines += [
        f"taken from {run_id}: sealing and opening {1 / one.seal_and_open_ns:.2f} GB/s under {regime}, measured"
        for regime, one in measured.items()
    ]
    if not measured:
        lines.append(f"not taken from {run_id}: sealing, because the lake has no traced pair on its machine")
    return TakenRun(taken, measured, tuple(lines))


def _take_sizes(run: ForecastRun, asked: Asked, known: Hardware) -> tuple[Asked, list[str]]:
    said, lines = asked.sizes, []
    if said.model is None and said.layers is None:
        model = find_model(run.model, known)
        if model is None:
            lines.append(
                f"not taken from {run.run_id}: layers, hidden size and vocabulary of {run.model or 'its model'}"
            )
        else:
            said = replace(said, model=model.name)
            lines.append(f"taken from {run.run_id}: model {model.name}")
    length = run.number("sequence_length")
    if said.sequence is None and length:
        said = replace(said, sequence=int(length))
        lines.append(f"taken from {run.run_id}: {int(length)} tokens per sequence")
    parameters = run.number("parameters_count")
    if said.params is None and parameters:
        said = replace(said, params=str(int(parameters)))
    batch = asked.batch
    per_rank = run.number("batch_size")
    if not batch and per_rank:
        batch = int(per_rank) * run.world_size
        lines.append(f"taken from {run.run_id}: a batch of {batch}")
    return replace(asked, sizes=said, batch=batch), lines


def find_model(name: str, known: Hardware) -> PublicModel | None:
    """The public model that a run's name stands for; none where it is not known."""
    return known.models.get(name.lower().replace(" ", "-").replace("_", "-"))


def _measure_utilisation(lake: Lake, run: ForecastRun, gpu: Gpu, known: Hardware) -> float | str:
    """Operations of a rank's step over what its kernels' time allows at the peak; or why that is not known."""
    model = find_model(run.model, known)
    numbers = [run.number(name) for name in ("parameters_count", "batch_size", "sequence_length")]
    peak = gpu.peak_flops.get(_DTYPES.get(run.fields.get("dtype", ""), ""))
    if model is None or peak is None or not all(numbers):
        return "it does not say a known model, its sequence length, batch size and number format"
    steps = lake.scan(time_breakdown.TABLE, [run.run_id]).filter(~pl.col("is_warmup"), pl.col("compute_ns") > 0)
    times = steps.select("compute_ns").collect()["compute_ns"].to_list()
    if not times:
        return "no compute kernel of it was traced"
    parameters, batch, length = (int(one or 0) for one in numbers)
    sizes = (model.layers_count, model.hidden_size, length, model.vocabulary_size)
    operations = count_operations(Workload(parameters, *sizes, batch)) * batch
    return float(operations / (median(times) * 1e-9 * peak))


def _measure_sealing(lake: Lake, run: ForecastRun, known: Hardware) -> dict[str, MeasuredSealing]:
    """Of each regime that the lake has traced pairs of on the run's machine: the fitted cost, and its error."""
    found = {}
    for regime in known.regimes:
        if regime == OFF:
            continue
        model = read_regime(lake, regime, [run.run_id])
        try:
            cost, spread = model.find_cost(run, 1)
        except Refusal:
            continue
        sizes = tuple(sorted({pair.candidate.world_size for pair in model.of_machine(run) if pair.traced}))
        found[regime] = MeasuredSealing(cost, spread, sizes, run.machine)
    return found
