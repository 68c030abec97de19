"""One table by its name, without looking at any other: a table's name is that of the module that declares it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import bronze
import gold
import silver

if TYPE_CHECKING:
    from types import ModuleType

    from lake.tables import Table

PACKAGES = {"bronze": bronze, "silver": silver, "gold": gold}


def import_table_module(tier: str, name: str) -> ModuleType:
    """The module of a tier that declares the table of that name."""
    return import_module(f"{PACKAGES[tier].__name__}.{name}")


@cache
def find_table(full_name: str) -> Table:
    """The table of that name, as another table's declaration names it."""
    tier, _, name = full_name.partition(".")
    declared: Table = import_table_module(tier, name).TABLE
    return declared
