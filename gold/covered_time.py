"""How long any of some intervals ran before a moment: each moment is found by one search, exact to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CoveredTime:
    """Disjoint intervals in order, and what all before each one last."""

    starts: Numbers
    ends: Numbers
    lasted: Numbers

    @classmethod
    def of(cls, starts: Numbers, ends: Numbers) -> CoveredTime:
        """When any of these intervals was running; they may overlap, and come in any order."""
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order])
        is_first = np.ones(len(starts), bool)
        is_first[1:] = starts[1:] > ends[:-1]
        starts, ends = starts[is_first], ends[np.append(is_first[1:], True)] if len(ends) else ends
        return cls(starts, ends, np.cumsum(ends - starts) - (ends - starts))

    def sum_before(self, moments: Numbers) -> Numbers:
        """How long any was running before each moment."""
        if not len(self.starts):
            return np.zeros(len(moments), np.int64)
        place = np.searchsorted(self.starts, moments, "right") - 1
        reached = np.minimum(moments, self.ends[place]) - self.starts[place]
        return np.where(place >= 0, self.lasted[place] + reached, 0)

    def sum_between(self, lows: Numbers, highs: Numbers) -> Numbers:
        """How long any was running from each moment to another."""
        return self.sum_before(highs) - self.sum_before(lows)
