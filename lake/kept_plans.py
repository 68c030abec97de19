"""Polars plans that are made once and run again on other rows: for a small run, planning takes as long as running."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
from polars.io.plugins import register_io_source

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from lake.frames import Frame

# Far more than there are plans: each transform has one for each kind of input that it is given.
_MOST_KEPT = 1_000


class KeptPlans:
    """Plans by the function that makes them, the columns of their inputs, and whatever else the function was given.

    The function must decide by these alone. A plan serves one thread at a time; another thread makes one of its own.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._idle: dict[Hashable, list[_KeptPlan]] = {}

    @contextmanager
    def take(
        self, plan: Callable[..., Frame], inputs: Sequence[pl.LazyFrame], how: Mapping[str, Any]
    ) -> Iterator[Frame]:
        """The plan over these inputs, to be run before it is given back."""
        schemas = [one.collect_schema() for one in inputs]
        key = (plan, tuple(tuple(schema.items()) for schema in schemas), tuple(sorted(how.items())))
        with self._guard:
            waiting = self._idle.get(key)
            kept = waiting.pop() if waiting else None
        if kept is None:
            kept = _KeptPlan(plan, schemas, how)
        try:
            yield kept.over(inputs)
        finally:
            kept.over(())  # no rows are kept with a plan
            with self._guard:
                if key in self._idle or len(self._idle) < _MOST_KEPT:
                    self._idle.setdefault(key, []).append(kept)


class _KeptPlan:
    """One plan, over whatever frames are at hand when it runs.

    Polars calls the interface to such sources unstable; `tests/lake/test_engines.py` holds what is asked of it.
    """

    def __init__(self, plan: Callable[..., Frame], schemas: Sequence[pl.Schema], how: Mapping[str, Any]) -> None:
        self._at_hand: Sequence[pl.LazyFrame] = ()
        # Pure within one run of the plan, which is as far as Polars takes it: what is used twice is read once.
        sources = [
            register_io_source(partial(self._read, place), schema=schema, is_pure=True)
            for place, schema in enumerate(schemas)
        ]
        self._frame = plan(*map(nw.from_native, sources), **how)

    def over(self, inputs: Sequence[pl.LazyFrame]) -> Frame:
        """The same plan over other frames with the same columns."""
        self._at_hand = inputs
        return self._frame

    def _read(
        self, place: int, columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        found = self._at_hand[place]
        if columns is not None:
            found = found.select(columns)
        if predicate is not None:
            found = found.filter(predicate)
        yield (found if rows is None else found.head(rows)).collect()
