"""The versioned map from the names that Kineto gives an argument to the column that holds it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files

from lake.tables import Column, Kind


@dataclass(frozen=True)
class Argument:
    """One typed column, and the source names that it is read from."""

    column: Column
    sources: tuple[str, ...]
    is_common: bool


def _load() -> tuple[int, tuple[Argument, ...]]:
    document = tomllib.loads(files(__package__).joinpath("kineto_arguments.toml").read_text("utf-8"))
    return document["version"], tuple(
        Argument(
            Column(entry["column"], Kind(entry["kind"]), entry["meaning"], nullable=True),
            tuple(entry["sources"]),
            entry.get("is_common", False),
        )
        for entry in document["argument"]
    )


VERSION, ARGUMENTS = _load()
