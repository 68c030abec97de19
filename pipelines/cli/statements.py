"""What a text of SQL says before it runs: one statement that reads, the tables it names, the functions it calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import duckdb

from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Iterator

_READS = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
_TAKEN = "SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE and EXPLAIN are taken"
# All other table functions read files, settings, logs or secrets, or run a text that was not looked at.
_TABLE_FUNCTIONS = {
    "duckdb_columns",
    "duckdb_functions",
    "duckdb_tables",
    "duckdb_types",
    "duckdb_views",
    "generate_series",
    "json_each",
    "json_tree",
    "range",
    "repeat",
    "repeat_row",
    "unnest",
}
# What DuckDB itself brings is named so, whether function or view.
_SYSTEM = ("duckdb_", "pg_", "pragma_", "sqlite_")
_HARMLESS = {"duckdb_columns", "duckdb_tables", "duckdb_types", "duckdb_views", "pg_size_pretty", "pg_typeof"}
# Settings and variables, plans (which hold the values of settings), and the log.
_REFUSED = {"current_setting", "getenv", "getvariable", "json_serialize_plan", "write_log"}
_ASK = "a query reads the tables of the lake, not files or settings; SHOW ALL TABLES lists them"


def read_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The one statement of a text, where it only reads."""
    found = connection.extract_statements(sql)
    if len(found) != 1:
        raise EvidenceRejected(f"expected one statement, found {len(found) or 'none'}", "ask one question at a time")
    if found[0].type not in _READS:
        hint = f"{_TAKEN}; PIVOT only with the values in its ON … IN (…)"
        raise EvidenceRejected(f"a query only reads, and this is {found[0].type.name}", hint)
    return found[0]


def list_tables(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> set[str] | None:
    """The tables that a statement names, as `tier.name`; none where the text alone does not tell, as with SHOW.

    A function or a table of DuckDB's own that tells settings is refused. DuckDB has no switch for that.
    """
    names: set[str] = set()
    is_readable = True
    for node in _walk(_parse(connection, statement)):
        kind, name = node.get("type"), str(node.get("table_name") or "").lower()
        if kind == "SHOW_REF":
            is_readable = False
            if node["show_type"] == "SHOW":  # SHOW threads gives the setting of that name
                raise EvidenceRejected(f"SHOW {name[:80]} is not taken", "a table's columns: DESCRIBE tier.table")
        elif kind == "TABLE_FUNCTION":
            is_readable = False
            called = _function(node["function"])
            if called not in _TABLE_FUNCTIONS:
                raise EvidenceRejected(f"the table function {called[:80]!r} is not taken", _ASK)
        elif kind == "BASE_TABLE":
            _refuse_system(name)
            if node["schema_name"]:
                names.add(f"{node['schema_name']}.{name}".lower())
        elif "function_name" in node and _function(node) not in _TABLE_FUNCTIONS:
            _refuse_system(_function(node))
    return names if is_readable else None


def _parse(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> Any:
    """The statement as DuckDB's own parser has it; of EXPLAIN what is explained."""
    for text in (
        _strip_explain(statement.query) if statement.type is duckdb.StatementType.EXPLAIN else (statement.query,)
    ):
        serialized = connection.execute("SELECT json_serialize_sql($sql)", {"sql": text}).fetchone()
        try:
            tree = json.loads(serialized[0]) if serialized else {"error": True}
        except RecursionError:
            raise EvidenceRejected("the statement is nested too deeply", "ask for less at a time") from None
        if tree["error"] is False:
            return tree
    raise EvidenceRejected("the statement cannot be looked at before it runs", _TAKEN)


def _strip_explain(sql: str) -> Iterator[str]:
    """What may be the statement behind EXPLAIN, ANALYZE and options in parentheses, the longest first."""
    data = sql.encode()
    tokens = [place for place, kind in duckdb.tokenize(sql) if kind is not duckdb.token_type.comment]
    depth = 0
    for place, end in zip(tokens, [*tokens[1:], len(data)], strict=True):
        token = data[place:end].split()[0].upper() if data[place:end].split() else b""
        if depth == 0 and token not in {b"EXPLAIN", b"ANALYZE", b"ANALYSE", b"("}:
            yield data[place:].decode()
            return
        if depth == 0 and token == b"(":
            yield data[place:].decode()
        depth += (token == b"(") - (token == b")")


def _walk(tree: Any) -> Iterator[dict[str, Any]]:
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            yield node
        todo += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def _function(node: dict[str, Any]) -> str:
    return str(node["function_name"]).lower()


def _refuse_system(name: str) -> None:
    if name in _REFUSED or (name.startswith(_SYSTEM) and name not in _HARMLESS):
        raise EvidenceRejected(f"{name[:80]!r} is not taken", _ASK)
