"""Libraries that Dagster imports and a launch does not use: imported when somebody does use them."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pipelines.process_costs import hide_module

if TYPE_CHECKING:
    from collections.abc import Iterator

# What migrates databases, and what it needs for that.
_MIGRATIONS = (
    *("alembic.command", "alembic.config", "alembic.script"),
    *("alembic.runtime.environment", "alembic.runtime.migration"),
)


def import_dagster_storage() -> None:
    """Import what Dagster keeps its records with, without what it migrates them with and what colours its log."""
    with defer_imports(*_MIGRATIONS):
        import_module("dagster._core.storage.sql")
    with hide_module("rich"):
        import_module("structlog")


class _StandIn(ModuleType):
    """Stands for a module: everything that is asked of it is a stand-in too."""

    __path__: list[str] = []  # noqa: RUF012 - as a package says it

    def __getattr__(self, name: str) -> _Deferred:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Deferred(self.__name__, name)


class _Deferred:
    """Stands for a function or class of a module: whoever calls it, or asks for what it has, gets the real one's."""

    def __init__(self, module: str, name: str) -> None:
        self._place = (module, name)

    def _find(self) -> Any:
        _remove_stand_ins()
        module, name = self._place
        return getattr(import_module(module), name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._find()(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._find(), name)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[Any, ...]:
        return (self._find(),)


@contextmanager
def defer_imports(*names: str) -> Iterator[None]:
    """Let `import` and `from … import` of modules of these names give stand-ins, while this lasts.

    A module that is there already is left alone. The first use of a stand-in, and every import afterwards, gives the
    real one.
    """
    parts = [name.split(".") for name in names]
    try:
        for name in (".".join(one[:end]) for one in parts for end in range(1, len(one) + 1)):
            if name not in sys.modules:
                sys.modules[name] = _StandIn(name)
        yield
    finally:
        _remove_stand_ins()


def _remove_stand_ins() -> None:
    for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
        del sys.modules[name]
