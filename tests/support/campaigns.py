"""How large a campaign is: small in `make test`, large in `make soak`, the same code in both."""

from __future__ import annotations

import os

# `make soak` sets it; a person may set it for one test.
VARIABLE = "TEETOTAL_SOAK"


def is_soak() -> bool:
    """Whether the large form of every campaign was asked for."""
    return bool(os.environ.get(VARIABLE))


def pick_engines() -> tuple[str, ...]:
    """The engines that a test makes whole tiers with: Polars, in the soak every local one.

    DuckDB takes ten seconds to plan silver, whatever is in it. That engines agree is held table by table in the tests
    of silver and gold, DuckDB's there for all hostile traces as well, and from landing to gold for a recorded pair.
    """
    from lake.engines import LOCAL_ENGINES

    return LOCAL_ENGINES if is_soak() else LOCAL_ENGINES[:1]


def pick_size(small: int, soak: int) -> int:
    """The size of a campaign: kills, flipped bits, generated examples, events, runs."""
    return soak if is_soak() else small
