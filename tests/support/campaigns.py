"""How large a campaign is: small in `make test`, large in `make soak`, the same code in both."""

from __future__ import annotations

import os

# `make soak` sets it; a person may set it for one test.
VARIABLE = "TEETOTAL_SOAK"


def is_soak() -> bool:
    """Whether the large form of every campaign was asked for."""
    return bool(os.environ.get(VARIABLE))


def pick_size(small: int, soak: int) -> int:
    """The size of a campaign: kills, flipped bits, generated examples, events, runs."""
    return soak if is_soak() else small
