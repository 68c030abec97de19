"""The limits of alerts; apart from what holds runs against them, so that settings import no measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AlertLimits:
    """What may be reached and not passed; none means that it is not looked at."""

    # Ratio of a run's step to its baseline's, held against the whole interval as a gate does.
    slowdown_ratio: float | None = None
    violations_count: int | None = 0
    # Share of the messages that a key may seal.
    nonce_fraction: float | None = 0.5
    # Contradicted claims are told, or not.
    has_contradictions: bool = True
