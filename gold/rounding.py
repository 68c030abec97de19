"""How far the rounding of a log leaves a mean open: numbers that scatter average it out, others cannot."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from gold.step_cycles import FEWEST_CYCLES

if TYPE_CHECKING:
    from collections.abc import Sequence

# Below this nobody is told.
_TELLING_FRACTION = 0.001
# Beyond what a double carries, a digit tells nothing of how a number was written.
_MOST_DIGITS = 12


def measure_rounding(values: Sequence[float]) -> float:
    """Half of the unit that numbers are written in, as a fraction of their mean; 0 where they scatter by more than it.

    The unit is the place of the last digit that any of them has. Few numbers that are all equal tell no unit.
    """
    numbers = np.asarray(values, dtype=np.float64)
    is_equal = bool((numbers == numbers[:1]).all())
    if not len(numbers) or not numbers.any() or (is_equal and len(numbers) < FEWEST_CYCLES):
        return 0.0
    least, unit = float(numbers.std()) * 2, math.inf
    for value in {*values} - {0}:
        unit = min(unit, 10.0 ** _find_last_place(value))
        if unit <= least:
            return 0.0
    return unit / 2 / float(numbers.mean())


def describe_rounding(fraction: float, period: str) -> list[str]:
    """Say what the rounding of a log leaves open, where it matters."""
    if fraction < _TELLING_FRACTION:
        return []
    share = f"{fraction * 100:.2g} %"
    return [f"its log rounds {period}s, which differ by less than that: their mean may be {share} more or less"]


def _find_last_place(value: float) -> int:
    """The power of ten of the last digit of a number that is not 0."""
    exponent = Decimal(f"{value:.{_MOST_DIGITS}g}").normalize().as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0
