"""What a change comes to: a predicted step with its interval, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass


class Refusal(Exception):
    """Why a change cannot be predicted, as a clause that follows "not predictable because"."""


@dataclass(frozen=True)
class Outcome:
    """A predicted step, or the reason why there is none."""

    change: str
    method: str | None = None
    current_ns: float | None = None
    predicted_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    level: float | None = None
    dominant_term: str | None = None
    is_extrapolated: bool | None = None
    # The step as it is was timed under the profiler alone, which slows the host: what is saved cannot be said.
    is_current_slowed: bool = False
    refusal: str | None = None
    caveat: str | None = None

    @property
    def verdict(self) -> str:
        """What to make of it: only a gain beyond the model's error is worth it."""
        if self.refusal is not None:
            return f"not predictable because {self.refusal}"
        if self.is_current_slowed:
            return "saving unknown"
        if self.low_ns is None or self.high_ns is None or self.current_ns is None:
            return "model error unknown"
        if self.high_ns < self.current_ns:
            return "worth it"
        return "costs more" if self.low_ns > self.current_ns else "within model error"
