"""A statement in Spark's dialect, parsed before Spark sees it: it only reads, and names only tables of the lake.

Spark has no connection that is closed off: a text that it takes can call Java, run a program, open a file or write.
So the statement is parsed, each of its nodes and functions is held against what is allowed, and what Spark gets is
written anew from the parsed tree: a comment or a quote cannot make the two read different statements.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp, parse, tokenize
from sqlglot.errors import SqlglotError

from lake.errors import EvidenceRejected, nearest

if TYPE_CHECKING:
    from collections.abc import Collection

# It tells of statements that it does not know, which are refused here in words of our own.
logging.getLogger("sqlglot").setLevel(logging.ERROR)
_DIALECT = "spark"
_ADVICE = "functions that compute from their arguments alone are taken; ask the tables of the lake"
_STATEMENTS = (exp.Query, exp.Values, exp.Describe)
# What a statement that reads is made of; whatever else the parser knows is refused.
_PARTS = (
    *(exp.Query, exp.Condition, exp.Values, exp.Describe, exp.With, exp.CTE, exp.TableAlias, exp.Alias, exp.Aliases),
    *(exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Qualify),
    *(exp.Table, exp.Lateral, exp.Identifier, exp.Star, exp.Tuple, exp.Distinct, exp.Lambda, exp.Kwarg, exp.Var),
    *(
        exp.Window,
        exp.WindowSpec,
        exp.Interval,
        exp.IntervalSpan,
        exp.DataType,
        exp.DataTypeParam,
        exp.Rollup,
        exp.Cube,
    ),
    *(exp.GroupingSets, exp.Pivot, exp.PivotAlias, exp.TableSample, exp.Slice, exp.Filter, exp.IgnoreNulls),
    *(exp.Hint, exp.Sort, exp.Cluster, exp.Fetch, exp.If),
)
# Functions that the parser has a type for, and that reach beyond their arguments on one Spark or another.
_REACHING_OUT = (
    *(exp.ReadCSV, exp.ReadParquet, exp.ToFile, exp.Secret, exp.AIAgg, exp.AIClassify, exp.AIEmbed, exp.AIForecast),
    *(exp.AIGenerate, exp.AISimilarity, exp.AISummarizeAgg, exp.MLForecast, exp.MLTranslate, exp.GenerateEmbedding),
    *(exp.GenerateText, exp.GenerateTable),
)
# Functions of Spark that the parser has no type for, and that compute from their arguments alone.
_FUNCTIONS = {
    *("any", "every", "some", "count_if", "mode", "percentile", "kurtosis", "skewness", "regr_slope", "regr_intercept"),
    *("regr_r2", "bit_count", "bit_get", "getbit", "pmod", "rint", "bround", "hypot", "log1p", "expm1", "width_bucket"),
    *(
        "positive",
        "negative",
        "try_add",
        "try_subtract",
        "try_multiply",
        "try_mod",
        "try_sum",
        "try_avg",
        "try_to_number",
    ),
    *("timestamp_micros", "timestamp_millis", "timestamp_seconds", "make_interval", "make_dt_interval", "date_part"),
    *("typeof", "nullifzero", "zeroifnull", "named_struct", "struct", "map_from_arrays", "map_entries", "array_join"),
    *(
        "array_except",
        "array_union",
        "array_position",
        "array_repeat",
        "array_min",
        "array_max",
        "aggregate",
        "sequence",
    ),
    *("regexp_count", "regexp_substr", "format_number", "printf", "luhn_check", "octet_length", "bit_length", "range"),
    *("equal_null", "nanvl", "isnan", "xxhash64", "hash", "crc32"),
}


@dataclass(frozen=True)
class SparkText:
    """One statement that reads: its text with each table as one name, those tables, and the names of its values."""

    text: str
    tables: frozenset[str]
    values: frozenset[str]


def check_spark_statement(sql: str, known: Collection[str]) -> SparkText:
    """Refuse what is no single statement that reads; `tier.name` becomes the one name under which Spark has it."""
    statement = _parse(sql)
    for node in statement.walk():
        _check_node(node)
    tables = _name_tables(statement, known)
    values = frozenset(node.name for node in statement.find_all(exp.Placeholder))
    return SparkText(statement.sql(_DIALECT, comments=False), tables, values)


def _parse(sql: str) -> exp.Expr:
    """The one statement of a text; what the parser does not know is no statement that reads."""
    try:
        _refuse_doubled_quotes(sql)
        found = [statement for statement in parse(sql, read=_DIALECT) if statement is not None]
    except (SqlglotError, RecursionError) as error:
        raise EvidenceRejected(f"a statement that cannot be read: {_describe(error)}", "check its quotes") from error
    if len(found) != 1:
        raise EvidenceRejected(f"expected one statement, found {len(found) or 'none'}", "ask one question at a time")
    statement = found[0]
    if not isinstance(statement, _STATEMENTS):
        what = statement.name if isinstance(statement, exp.Command) else statement.key
        raise EvidenceRejected(f"a query only reads, and this is {what[:40].upper()}", "begin with SELECT or WITH")
    return statement


def _refuse_doubled_quotes(sql: str) -> None:
    """Refuse texts that touch: Spark takes two quotes within a text for one, the parser takes them for two texts."""
    texts = [token for token in tokenize(sql, read=_DIALECT) if token.token_type is TokenType.STRING]
    if any(one.end + 1 == other.start for one, other in pairwise(texts)):
        raise EvidenceRejected("a text with two quotes in a row", "give such a text as a value: --param")


def _check_node(node: exp.Expr) -> None:
    if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc, *_REACHING_OUT)):
        name = (node.name or type(node).__name__).lower()
        if name not in _FUNCTIONS or isinstance(node.parent, exp.Dot):
            raise EvidenceRejected(f"the function {name[:80]!r} is out of reach of a query", _ADVICE)
    elif isinstance(node, exp.Parameter | exp.SessionParameter) or (
        isinstance(node, exp.Placeholder) and not node.name.isidentifier()
    ):
        raise EvidenceRejected("a value that has no name", "values are :name here")
    elif not isinstance(node, _PARTS):
        raise EvidenceRejected(f"a query only reads, and this holds {type(node).__name__}", _ADVICE)


def _name_tables(statement: exp.Expr, known: Collection[str]) -> frozenset[str]:
    """Put the one name that Spark has for each table of the lake; give those tables."""
    named = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    found = set()
    for table in list(statement.find_all(exp.Table)):
        if isinstance(table.this, exp.Func):  # a function that gives rows, which was looked at by itself
            continue
        name = ".".join(part.name for part in table.parts).lower()
        if name in known:
            found.add(name)
            table.set("db", None)
            table.set("this", exp.to_identifier(name, quoted=True))
        elif name not in named:
            raise EvidenceRejected(f"there is no table {name[:160]!r}", nearest(name[:160], known))
    for column in statement.find_all(exp.Column):
        name = f"{column.text('db')}.{column.text('table')}".lower()
        if name in found:
            column.set("db", None)
            column.set("table", exp.to_identifier(name, quoted=True))
    return frozenset(found)


def _describe(error: Exception) -> str:
    line = str(error).partition("\n")[0]
    return "".join(char if char.isprintable() else " " for char in line)[:200] or type(error).__name__
