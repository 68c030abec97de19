"""DuckDB as SQLAlchemy's other users expect a database: results that outlive their connection, columns by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb_engine
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg2 import PGExecutionContext_psycopg2
from sqlalchemy.engine.cursor import FullyBufferedCursorFetchStrategy
from sqlalchemy.pool import StaticPool

if TYPE_CHECKING:
    import duckdb
    from sqlalchemy.engine.interfaces import ReflectedColumn, ReflectedPrimaryKeyConstraint

URL = "duckdb+lake:///:memory:"
_COLUMNS = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = $1 ORDER BY column_index"
_TYPES: dict[str, sa.types.TypeEngine[Any]] = {
    "VARCHAR": sa.VARCHAR(),
    "INTEGER": sa.INTEGER(),
    "BIGINT": sa.BIGINT(),
    "DOUBLE": sa.DOUBLE(),
    "BOOLEAN": sa.BOOLEAN(),
}


class _Buffered(PGExecutionContext_psycopg2):
    """Fetches everything at once: DuckDB forgets a result when its connection is rolled back into the pool."""

    def post_exec(self) -> None:
        if self.cursor.description:
            rows = self.cursor.fetchall()
            self.cursor_fetch_strategy = FullyBufferedCursorFetchStrategy(self.cursor, initial_buffer=rows)


class Dialect(duckdb_engine.Dialect):
    """duckdb-engine's dialect where it fails with DuckDB 2, which has no `pg_collation` to reflect columns from."""

    execution_ctx_cls = _Buffered
    # Texts differ by table and rule: a cache of compiled ones would only fill.
    supports_statement_cache = False

    # SQLAlchemy hands over a schema, which no table of ours has.

    def get_columns(
        self,
        connection: sa.Connection,
        table_name: str,
        schema: str | None = None,  # noqa: ARG002
        **_: Any,
    ) -> list[ReflectedColumn]:
        """The columns of a table or a view, in their order; a type that the lake does not have is NULL."""
        found = connection.exec_driver_sql(_COLUMNS, (table_name,))
        return [
            {"name": name, "type": _TYPES.get(kind, sa.types.NullType()), "nullable": True, "default": None}
            for name, kind in found
        ]

    def get_pk_constraint(self, *_: Any, **__: Any) -> ReflectedPrimaryKeyConstraint:
        """No primary key: a view has none, and to look for one takes longer than most checks."""
        return {"constrained_columns": [], "name": None}

    def has_table(
        self,
        connection: sa.Connection,
        table_name: str,
        schema: str | None = None,  # noqa: ARG002
        **_: Any,
    ) -> bool:
        """Whether there is a table or a view of that name."""
        return bool(self.get_columns(connection, table_name))


registry.register("duckdb.lake", __name__, "Dialect")


def sharing(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """The arguments of `sa.create_engine(URL, …)` for an engine on a connection that is already open."""
    return {"poolclass": StaticPool, "creator": lambda: duckdb_engine.ConnectionWrapper(connection)}
