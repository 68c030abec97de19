"""Bronze that is sealed at rest: which of its files are, and their rows opened in memory as an engine asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import polars as pl
    import pyarrow as pa

    from lake.tables import Table

# How the name of such a file begins: known from the log, so that no file is opened to find out.
SEALED_SOURCE = "sealed-"


def is_sealed_source(path: str) -> bool:
    """Whether a data file holds tokens for what a source wrote, by its path."""
    return path.rpartition("/")[2].startswith(SEALED_SOURCE)


def scan_opened(table: Table, read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]) -> pl.LazyFrame:
    """A Polars scan of rows that are opened a batch at a time; only columns that a plan asks for are.

    Polars calls this interface unstable; `tests/lake/test_engines.py` holds what is asked of it.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    def opened(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        left = rows
        wanted = list(table.column_names) if columns is None else columns
        asked = [] if predicate is None else predicate.meta.root_names()
        for batch in read([name for name in table.column_names if name in {*wanted, *asked}]):
            found = pl.DataFrame(batch)
            found = (found if predicate is None else found.filter(predicate)).select(wanted)
            found = found if left is None else found.head(left)
            left = None if left is None else left - found.height
            if found.height:
                yield found
            if left == 0:
                return

    return register_io_source(opened, schema=table.polars_schema, is_pure=True)
