"""Where lake, landing zone and keyring are, and how much may be in memory: the one place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from bronze.limits import Limits
from lake.errors import ContractBroken
from lake.keyring import KeyringFile, KeyringSecret, NoKeyring
from lake.places import Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake.keyring import KeyringSource

_STORAGE_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")


@dataclass(frozen=True)
class Settings:
    """Everything that a command or a job needs to know before it starts."""

    lake: Place
    landing: Place
    limits: Limits
    keyring: KeyringSource
    attestation_keys: Path | None = None


def settings(
    lake: str | None = None,
    landing: str | None = None,
    keyring: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from what was typed, else from the environment, else the defaults under `data/`."""
    known = os.environ if environment is None else environment
    options = {name: value for name, value in known.items() if name.startswith(_STORAGE_PREFIXES)}
    place = Place.of(lake or known.get("TEETOTAL_LAKE") or "data/lake", options)
    return Settings(
        lake=place,
        landing=Place.of(landing or known.get("TEETOTAL_LANDING") or "data/landing", options),
        limits=_limits(known),
        keyring=_keyring(place, keyring, known),
        attestation_keys=_path(known.get("TEETOTAL_ATTESTATION_KEYS")),
    )


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser().resolve() if text and text.strip() else None


def _keyring(lake: Place, typed: str | None, known: Mapping[str, str]) -> KeyringSource:
    """The keyring that was named; else, beside a local lake, one that is made on first use."""
    path, secret = known.get("TEETOTAL_KEYRING"), known.get("TEETOTAL_KEYRING_SECRET")
    if typed or (path and not secret):
        return KeyringFile(Path(typed or path or "").expanduser().resolve())
    if path and secret:
        return NoKeyring("TEETOTAL_KEYRING and TEETOTAL_KEYRING_SECRET are both set", "unset one of them")
    if secret:
        return KeyringSecret("TEETOTAL_KEYRING_SECRET", secret)
    if lake.is_local:
        return KeyringFile(lake.directory.parent / "keyring.json", is_made_on_first_use=True)
    return NoKeyring(
        f"no keyring for {lake}: none is made by itself for a lake that others may share",
        "set TEETOTAL_KEYRING to the path of one, or TEETOTAL_KEYRING_SECRET to its text; to make one: "
        "`teetotal --keyring PATH keys create`",
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
