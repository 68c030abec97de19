from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from gold.step_cycles import measure_scatter
from gold.step_series import Series
from tests.support.campaigns import pick_size

MS = 1_000_000


def draw_series(generator: np.random.Generator, count: int, alike: float) -> Series:
    """Steps of 100 ms that scatter by 3 %, each like the one before to this degree."""
    noise = generator.normal(size=count)
    for place in range(1, count):
        noise[place] = alike * noise[place - 1] + np.sqrt(1 - alike**2) * noise[place]
    values = (100 * MS * np.exp(0.03 * noise)).astype(np.int64).tolist()
    flags = [False] * count
    return Series(values, weights=[1] * count, has_collective=flags, starts_part=flags, numbers=list(range(count)))


@pytest.mark.parametrize(
    ("count", "alike", "least"), [(8, 0.0, 0.93), (50, 0.0, 0.93), (50, 0.5, 0.9), (50, 0.8, 0.9), (200, 0.8, 0.92)]
)
def test_the_standard_error_holds_the_true_mean_however_alike_neighbours_are(
    count: int, alike: float, least: float
) -> None:
    quantile = import_module("scipy.stats").t.ppf  # it comes without types
    generator, trials, held = np.random.default_rng(26), pick_size(300, 3000), 0
    truth = 100 * MS * np.exp(0.03**2 / 2)
    for _ in range(trials):
        series = draw_series(generator, count, alike)
        found = measure_scatter(series, 1)
        assert found.effective_count is not None
        assert found.log_standard_error is not None
        width = quantile(0.975, found.effective_count - 1) * found.log_standard_error
        held += abs(np.log(np.mean(series.values) / truth)) <= width
    assert least <= held / trials <= 0.995


def test_a_series_that_drifts_is_worth_little() -> None:
    values, flags = [90 * MS] * 4 + [110 * MS] * 4, [False] * 8
    drifting = Series(values, weights=[1] * 8, has_collective=flags, starts_part=flags, numbers=list(range(8)))
    found = measure_scatter(drifting, 1)
    # Neighbours are as alike as can be, so eight steps are worth two: sqrt(0.08 / (8 - 4) / 2).
    assert found.effective_count == 2
    assert found.log_standard_error == pytest.approx(0.1)
