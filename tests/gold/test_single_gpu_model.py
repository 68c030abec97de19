from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gold.single_gpu_model import (
    PAGEABLE_ON,
    Constant,
    PlateauModel,
    fit_plateau,
    predict_step,
)
from gold.single_gpu_parts import PAGEABLE_OFF, CopyCost, SingleGpuRun, StepParts, find_loader_time, split_step

HARDWARE, DATASET = "H100", "images"
BYTES_PER_SAMPLE = 10_000.0
LOADER_NS = 60_000.0
# Host time per step and GPU time per sample of made-up models; the first is bound by its loader at large batches.
MODELS = {
    "small": (8e6, 15_000.0),
    "middle": (15e6, 70_000.0),
    "deep": (30e6, 90_000.0),
    "wide": (20e6, 250_000.0),
}
BATCH_SIZES = (64, 256, 1024)


def plant(
    *,
    fixed_ns: float = 4e6,
    host: float = 0.5,
    gpu: float = 1.0,
    loader: float = 1.05,
    launch_ns: float = 8_000.0,
    copy_on: CopyCost = PAGEABLE_ON,
) -> PlateauModel:
    return PlateauModel(
        hardware=HARDWARE,
        fixed_host=Constant(fixed_ns, "ns", fixed_ns, 2),
        host_slowdown=Constant(host, "fraction", host, 2),
        launch_added=Constant(launch_ns, "ns", launch_ns, 0),
        gpu_slowdown=Constant(gpu, "ratio", gpu, 2),
        loader_slowdown=Constant(loader, "ratio", loader, 2),
        precision_deviations=(),
        copy_off=PAGEABLE_OFF,
        copy_on=copy_on,
        models=("one", "two"),
        batch_sizes=BATCH_SIZES,
    )


def generate_pairs(truth: PlateauModel, **given_models: tuple[float, float]) -> list[tuple[SingleGpuRun, SingleGpuRun]]:
    """Two precisions per model, the second with a longer host and a shorter GPU time."""
    pairs = []
    for model, (host_ns, gpu_ns) in (given_models or MODELS).items():
        for precision, (more_host, less_gpu) in {"float32": (1.0, 1.0), "amp": (1.15, 0.7)}.items():
            for batch_size in BATCH_SIZES:
                run = SingleGpuRun(
                    run_id=f"{model}-{precision}-{batch_size}",
                    hardware=HARDWARE,
                    dataset=DATASET,
                    model=model,
                    precision=precision,
                    batch_size=batch_size,
                    step_ns=1.0,
                    bytes_per_sample=BYTES_PER_SAMPLE,
                )
                parts = StepParts(
                    host_ns * more_host,
                    gpu_ns * less_gpu * batch_size,
                    LOADER_NS * batch_size,
                    run.time_copies(PAGEABLE_OFF),
                )
                off = replace(run, step_ns=parts.step_ns)
                on = replace(run, run_id=f"{run.run_id}-cc", step_ns=truth.apply_cc(run, parts).step_ns)
                pairs.append((off, on))
    return pairs


PAIRS = generate_pairs(plant())
OFF_RUNS = [off for off, _ in PAIRS]


def find_run(model: str, precision: str, batch_size: int) -> SingleGpuRun:
    return next(run for run in OFF_RUNS if (run.model, run.precision, run.batch_size) == (model, precision, batch_size))


def test_a_step_is_never_shorter_than_its_longest_part_and_copies_come_on_top() -> None:
    parts = StepParts(host_ns=3.0, gpu_ns=2.0, loader_ns=1.0, copy_ns=0.5)
    assert 3.5 <= parts.step_ns < 3.6
    assert parts.dominant_term == "host"
    assert StepParts(3.0, 0.0, 0.0, 0.0).step_ns == pytest.approx(3.0)


@given(st.sampled_from(OFF_RUNS), st.one_of(st.none(), st.floats(1, 1e4)))
@settings(deadline=None, max_examples=15)
def test_constants_that_add_nothing_predict_no_slowdown(run: SingleGpuRun, launches_count: float | None) -> None:
    free = plant(host=0.0, loader=1.0, launch_ns=0.0, copy_on=PAGEABLE_OFF)
    found = predict_step(free, replace(run, launches_count=launches_count), OFF_RUNS)
    assert found.slowdown_ratio == pytest.approx(1.0)
    assert found.step_ns == pytest.approx(run.step_ns)


@given(st.sampled_from(OFF_RUNS), st.lists(st.floats(10, 1e4), min_size=2, max_size=4, unique=True))
@settings(deadline=None, max_examples=15)
def test_more_launches_never_make_a_run_slow_down_less(run: SingleGpuRun, counts: list[float]) -> None:
    parts, _ = split_step(run, OFF_RUNS)
    steps = [plant().apply_cc(replace(run, launches_count=count), parts).step_ns for count in sorted(counts)]
    assert steps == sorted(steps)


def test_launches_of_a_trace_express_what_host_time_alone_cannot() -> None:
    run = replace(find_run("deep", "float32", 64), gpu_ns=64 * 90_000.0)
    few, many = (
        predict_step(plant(), replace(run, launches_count=count), OFF_RUNS).slowdown_ratio for count in (500.0, 2_100.0)
    )
    assert few is not None
    assert many is not None
    assert 1.05 < few < 1.2
    assert 1.5 < many < 1.7


def test_the_gpu_time_of_a_trace_replaces_the_inferred_one() -> None:
    run = replace(find_run("middle", "float32", 64), gpu_ns=1.2e6)
    parts, is_seen = split_step(run, [])
    assert (parts.gpu_ns, is_seen) == (1.2e6, True)
    assert parts.host_ns == pytest.approx(15e6, rel=0.03)


@pytest.mark.parametrize("model", ["deep", "wide", "middle"])
def test_steps_at_several_batch_sizes_are_split_as_they_were_made(model: str) -> None:
    host_ns, gpu_ns = MODELS[model]
    parts, is_seen = split_step(find_run(model, "float32", 256), OFF_RUNS)
    assert is_seen
    assert parts.host_ns == pytest.approx(host_ns, rel=0.05)
    assert parts.gpu_ns == pytest.approx(gpu_ns * 256, rel=0.05)
    assert parts.loader_ns == pytest.approx(LOADER_NS * 256, rel=0.02)


def test_the_loader_is_seen_only_where_two_kinds_of_run_reach_the_same_rate() -> None:
    assert find_loader_time(OFF_RUNS) == pytest.approx(LOADER_NS, rel=0.02)
    assert find_loader_time(run for run in OFF_RUNS if run.model == "wide") == 0.0
    assert find_loader_time([]) == 0.0


def test_planted_constants_are_recovered() -> None:
    truth = plant(fixed_ns=3e6, host=0.7, gpu=1.01, loader=1.12)
    pairs = generate_pairs(truth)
    found = fit_plateau(HARDWARE, pairs, [])
    assert found.fixed_host.value == pytest.approx(3e6, rel=0.25)
    assert found.host_slowdown.value == pytest.approx(0.7, abs=0.06)
    assert found.gpu_slowdown.value == pytest.approx(1.01, abs=0.006)
    assert found.loader_slowdown.value == pytest.approx(1.12, abs=0.02)
    assert found.launch_added.value == pytest.approx(found.launch_added.prior)
    assert (found.host_slowdown.models_count, found.launch_added.models_count) == (4, 0)
    assert found.models == ("deep", "middle", "small", "wide")
    assert found.batch_sizes == BATCH_SIZES


def test_the_planted_cost_of_a_launch_is_recovered_from_traced_pairs() -> None:
    truth = plant(launch_ns=11_000.0)
    pairs = []
    for off, _ in PAIRS:
        host_ns, gpu_ns = MODELS[off.model]
        traced = replace(off, precision="float32", launches_count=host_ns / 14_600, gpu_ns=gpu_ns * off.batch_size)
        parts = StepParts(
            host_ns, gpu_ns * off.batch_size, LOADER_NS * off.batch_size, traced.time_copies(PAGEABLE_OFF)
        )
        traced = replace(traced, step_ns=parts.step_ns)
        pairs.append((traced, replace(traced, step_ns=truth.apply_cc(traced, parts).step_ns)))
    found = fit_plateau(HARDWARE, pairs, [])
    assert found.launch_added.value == pytest.approx(11_000.0, rel=0.06)
    assert found.launch_added.models_count >= 3


def test_a_model_left_out_is_predicted_far_better_than_by_the_mean_slowdown_of_the_others() -> None:
    errors: dict[str, list[float]] = {"plateau": [], "mean": []}
    for held_out in MODELS:
        pairs = [pair for pair in PAIRS if pair[0].model != held_out]
        fitted = fit_plateau(HARDWARE, pairs, OFF_RUNS)
        mean = sum(on.step_ns / off.step_ns for off, on in pairs) / len(pairs)
        for off, on in PAIRS:
            if off.model == held_out:
                measured = on.step_ns / off.step_ns
                predicted = predict_step(fitted, off, OFF_RUNS).slowdown_ratio
                assert predicted is not None
                errors["plateau"].append(abs(predicted - measured))
                errors["mean"].append(abs(mean - measured))
    assert median(errors["plateau"]) < 0.01
    assert max(errors["plateau"]) < 0.05
    assert median(errors["plateau"]) < median(errors["mean"]) / 2


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_a_run_of_a_single_batch_size_is_marked_and_its_slowdown_lies_between_all_gpu_and_all_host(
    batch_size: int,
) -> None:
    pairs = [pair for pair in PAIRS if pair[0].model != "deep"]
    others = [off for off, _ in pairs]
    off, on = next(pair for pair in PAIRS if pair[0] == find_run("deep", "float32", batch_size))
    found = predict_step(fit_plateau(HARDWARE, pairs, others), off, others)
    assert found.is_extrapolated
    assert found.slowdown_ratio is not None
    assert found.assumed_low_ratio is not None
    assert found.assumed_high_ratio is not None
    assert found.assumed_low_ratio <= found.slowdown_ratio <= found.assumed_high_ratio
    assert found.assumed_low_ratio - 0.02 <= on.step_ns / off.step_ns <= found.assumed_high_ratio + 0.02


def test_at_the_ends_of_the_batch_sizes_an_assumed_split_is_near_the_true_one() -> None:
    pairs = [pair for pair in PAIRS if pair[0].model != "deep"]
    others = [off for off, _ in pairs]
    fitted = fit_plateau(HARDWARE, pairs, others)
    for off, on in PAIRS:
        if off.model == "deep" and off.precision == "float32" and off.batch_size in {64, 1024}:
            found = predict_step(fitted, off, others)
            assert found.slowdown_ratio == pytest.approx(on.step_ns / off.step_ns, abs=0.08)


def test_a_split_that_was_seen_has_no_assumed_ends() -> None:
    found = predict_step(plant(), OFF_RUNS[0], OFF_RUNS)
    assert (found.assumed_low_ratio, found.assumed_high_ratio, found.refusal) == (None, None, None)
    assert not found.is_extrapolated


@pytest.mark.parametrize(("batch_size", "is_extrapolated"), [(16, True), (32, False), (2048, False), (4096, True)])
def test_a_batch_far_from_the_fitted_ones_is_an_extrapolation(batch_size: int, is_extrapolated: bool) -> None:
    run = replace(find_run("wide", "float32", 1024), batch_size=batch_size, gpu_ns=batch_size * 250_000.0)
    assert predict_step(plant(), run, OFF_RUNS).is_extrapolated is is_extrapolated


def test_a_part_that_no_pair_was_long_in_is_an_extrapolation() -> None:
    pairs = [pair for pair in PAIRS if pair[0].batch_size == 64]
    fitted = fit_plateau(HARDWARE, pairs, OFF_RUNS)
    assert fitted.loader_slowdown.models_count == 0
    assert fitted.loader_slowdown.value == pytest.approx(fitted.loader_slowdown.prior, abs=0.01)
    assert predict_step(fitted, find_run("small", "float32", 1024), OFF_RUNS).is_extrapolated
    assert not predict_step(fitted, find_run("small", "float32", 64), OFF_RUNS).is_extrapolated


def test_without_pairs_of_the_hardware_nothing_is_predicted() -> None:
    for fitted in (fit_plateau("B300", PAIRS, OFF_RUNS), fit_plateau(HARDWARE, [], OFF_RUNS)):
        found = predict_step(fitted, OFF_RUNS[0], OFF_RUNS)
        assert found.step_ns is None
        assert found.refusal == (
            "There is no pair with and without CC on H100: record one, or ask for a scenario instead."
        )


def test_pairs_of_one_other_model_are_too_few() -> None:
    pairs = [pair for pair in PAIRS if pair[0].model in {"deep", "wide"}]
    found = predict_step(fit_plateau(HARDWARE, pairs, OFF_RUNS), find_run("deep", "float32", 64), OFF_RUNS)
    assert found.refusal is not None
    assert found.refusal.startswith("Pairs of 1 other model(s) are known on H100, and 2 are needed")


@pytest.mark.parametrize("step_ns", [0.0, -1.0, float("nan"), float("inf")])
def test_a_run_without_a_step_is_refused_and_fits_nothing(step_ns: float) -> None:
    broken = replace(OFF_RUNS[0], run_id="broken", step_ns=step_ns)
    found = predict_step(plant(), broken, OFF_RUNS)
    assert found.refusal == "Run broken has no step time without CC: nothing to start from."
    few = PAIRS[:6]
    assert fit_plateau(HARDWARE, [*few, (broken, OFF_RUNS[0])], [broken]) == fit_plateau(HARDWARE, few, [])


def test_the_order_of_pairs_and_runs_does_not_matter() -> None:
    fitted = fit_plateau(HARDWARE, PAIRS, OFF_RUNS)
    assert fit_plateau(HARDWARE, PAIRS[::-1], OFF_RUNS[::-1]) == fitted
    run = OFF_RUNS[3]
    assert predict_step(fitted, run, OFF_RUNS[::-1]) == predict_step(fitted, run, OFF_RUNS)


def test_a_precision_with_more_launches_per_host_time_deviates_and_an_unknown_one_does_not() -> None:
    plain, heavy = generate_pairs(plant()), generate_pairs(plant(host=0.65))
    pairs = [
        *(pair for pair in plain if pair[0].precision == "float32"),
        *(p for p in heavy if p[0].precision == "amp"),
    ]
    fitted = fit_plateau(HARDWARE, pairs, OFF_RUNS)
    deviations = dict(fitted.precision_deviations)
    assert deviations["amp"] > 0.05 > deviations["float32"]
    parts = StepParts(20e6, 1.0, 0.0, 0.0)
    amp, other, plain_precision = (
        fitted.apply_cc(replace(OFF_RUNS[0], precision=name), parts).host_ns for name in ("amp", "float8", "float32")
    )
    assert amp > other > plain_precision
