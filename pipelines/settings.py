"""Where the lake and the landing zone are, and how much may be in memory: the one place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from bronze.limits import Limits
from lake.errors import ContractBroken
from lake.places import Place

if TYPE_CHECKING:
    from collections.abc import Mapping

_STORAGE_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")


@dataclass(frozen=True)
class Settings:
    """Everything that a command or a job needs to know before it starts."""

    lake: Place
    landing: Place
    limits: Limits


def settings(
    lake: str | None = None, landing: str | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Settings from what was typed, else from the environment, else the defaults under `data/`."""
    known = os.environ if environment is None else environment
    options = {name: value for name, value in known.items() if name.startswith(_STORAGE_PREFIXES)}
    return Settings(
        lake=Place.of(lake or known.get("TEETOTAL_LAKE") or "data/lake", options),
        landing=Place.of(landing or known.get("TEETOTAL_LANDING") or "data/landing", options),
        limits=_limits(known),
    )


def _limits(known: Mapping[str, str]) -> Limits:
    """The limits, each overridable by `TEETOTAL_` and its name."""
    given: dict[str, int] = {"workers": os.cpu_count() or 1}
    for field in fields(Limits):
        variable = f"TEETOTAL_{field.name.upper()}"
        value = known.get(variable)
        if value is None or not value.strip():
            continue
        if not value.strip().isdecimal() or int(value) < 1:
            raise ContractBroken(f"{variable} is {value!r}", "expected a whole number of at least 1")
        given[field.name] = int(value)
    return Limits(**given)
