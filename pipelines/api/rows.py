"""Rows that were asked for, in the form that a program wants: Polars, Arrow, pandas, DuckDB or dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_SHOWN_ROWS = 20


class Rows:
    """Rows of a table or an answer; of a table they are read when a form is asked for, and again for each form."""

    def __init__(self, read: Callable[[int | None], pa.RecordBatchReader], sealed: tuple[str, ...] = ()) -> None:
        self._read = read
        # Columns that hold tokens in place of what was sealed.
        self.sealed = sealed

    def read_batches(self) -> pa.RecordBatchReader:
        """The rows batch by batch, for what does not fit into memory."""
        return self._read(None)

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self.read_batches().read_all()

    def to_polars(self) -> pl.DataFrame:
        """The rows as a Polars frame."""
        return _make_frame(self.to_arrow())

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a DuckDB relation, of a connection of yours or of one in memory."""
        import duckdb

        return (connection or duckdb.connect()).from_arrow(self.to_arrow())

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, one per row."""
        found: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return found

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._read(0).schema.names)

    def __len__(self) -> int:
        return sum(len(batch) for batch in self.read_batches())

    def __repr__(self) -> str:
        return repr(_make_frame(self._read(_SHOWN_ROWS).read_all()))

    def _repr_html_(self) -> str:
        """The first rows, as a notebook shows them."""
        return _make_frame(self._read(_SHOWN_ROWS).read_all())._repr_html_()


def keep_rows(table: pa.Table, sealed: tuple[str, ...] = ()) -> Rows:
    """Rows that are in memory already."""
    return Rows(lambda limit: (table if limit is None else table.slice(0, limit)).to_reader(), sealed)


def _make_frame(table: pa.Table) -> pl.DataFrame:
    import polars as pl

    frame = pl.from_arrow(table)
    return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()
