"""What a table's declaration promises, rule by rule; each can be told to a person and asked of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Literal

from lake.identity import SLUG
from lake.sealing import TOKEN
from lake.tables import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake.tables import Column, Table

Severity = Literal["critical", "warning"]
Argument = str | int | float | None
_SHA256 = "[0-9a-f]{64}"
# A file that may not be read has no digest, and yet its reject needs a key: there the digest is empty.
_MAY_BE_EMPTY = {"silver.rejects.source_sha256"}


class Must(StrEnum):
    """What a rule asks of rows or columns."""

    BE_DECLARED = "be_declared"
    BE_UNIQUE = "be_unique"
    BE_PRESENT = "be_present"
    BE_ONE_OF = "be_one_of"
    BE_WITHIN = "be_within"
    BE_FINITE = "be_finite"
    BE_SHAPED = "be_shaped"


@dataclass(frozen=True)
class Check:
    """One promise that a table is held to; a broken one that blocks keeps what lies downstream from being made."""

    name: str
    sentence: str
    is_blocking: bool

    @property
    def severity(self) -> Severity:
        """As the orchestrator and Great Expectations call it."""
        return "critical" if self.is_blocking else "warning"


@dataclass(frozen=True)
class Rule(Check):
    """A promise that the declaration alone makes, and that the table alone can keep."""

    must: Must
    columns: tuple[str, ...]
    arguments: tuple[Argument, ...] = ()

    @property
    def whole_pattern(self) -> str:
        """The shape that a whole value must have, as a regular expression."""
        # An engine would find the shape anywhere, and may let `$` stand before a last line break.
        return rf"\A(?:{self.arguments[0]})\z"


@cache
def list_rules(table: Table) -> tuple[Rule, ...]:
    """All that the declaration promises; what would make a number wrong downstream blocks, as plaintext does."""
    return (
        _declare_schema_rule(table),
        _declare_unique_rule(table),
        *(rule for column in table.columns for rule in _list_column_rules(table, column)),
    )


def list_sample_columns(table: Table, rule: Rule) -> tuple[str, ...]:
    """The columns whose values may leave the lake as samples of a broken rule: its own, and those that name the row.

    None that is sensitive, not even sealed: where a seal is broken, the value is the secret. Of bronze, which repeats
    whatever the source said, no text but what already stands in the path.
    """
    names = dict.fromkeys((*table.partition_by, *table.key, *rule.columns))
    return tuple(name for name in names if _may_be_shown(table, table.column(name)))


def _may_be_shown(table: Table, column: Column) -> bool:
    is_source_text = table.tier == "bronze" and column.kind is Kind.TEXT and column.name not in table.partition_by
    return not column.sensitive and not is_source_text


def _declare_schema_rule(table: Table) -> Rule:
    return Rule(
        "columns_are_as_declared",
        f"the {len(table.columns)} columns are those declared, in order and kind",
        is_blocking=True,
        must=Must.BE_DECLARED,
        columns=table.column_names,
        arguments=tuple(table.duckdb_types.values()),
    )


def _declare_unique_rule(table: Table) -> Rule:
    key = table.row_key
    sentence = f"no two rows have the same {' and '.join(key)}"
    return Rule("key_is_unique", sentence, is_blocking=True, must=Must.BE_UNIQUE, columns=key)


def _list_column_rules(table: Table, column: Column) -> Iterator[Rule]:
    name, names = column.name, (column.name,)
    if not column.nullable:
        yield Rule(f"{name}_is_never_null", f"{name} is never null", True, Must.BE_PRESENT, names)
    if column.one_of:
        sentence = f"{name} is one of {', '.join(column.one_of)}"
        yield Rule(f"{name}_is_of_its_set", sentence, True, Must.BE_ONE_OF, names, column.one_of)
    if column.minimum is not None or column.maximum is not None:
        bounds = (column.minimum, column.maximum)
        yield Rule(
            f"{name}_is_in_its_range", f"{name} is {_declare_range_rule(*bounds)}", True, Must.BE_WITHIN, names, bounds
        )
    if column.kind is Kind.FLOAT64:
        yield Rule(f"{name}_is_finite", f"{name} is a number and finite", True, Must.BE_FINITE, names)
    if column in table.sealed:
        sentence = f"{name} holds nothing but tokens: no plaintext"
        yield Rule(f"{name}_is_sealed", sentence, True, Must.BE_SHAPED, names, (TOKEN,))
    elif name == table.partition_key or name.endswith("_run_id"):
        sentence = f"{name} is plain enough to be an id"
        yield Rule(f"{name}_is_an_id", sentence, False, Must.BE_SHAPED, names, (SLUG,))
    elif name.endswith("_sha256"):
        is_optional = f"{table.full_name}.{name}" in _MAY_BE_EMPTY
        sentence = f"{name} is 64 hexadecimal digits{', or empty' if is_optional else ''}"
        pattern = f"({_SHA256})?" if is_optional else _SHA256
        yield Rule(f"{name}_is_a_digest", sentence, False, Must.BE_SHAPED, names, (pattern,))


def _declare_range_rule(minimum: float | None, maximum: float | None) -> str:
    bounds = (("at least", minimum), ("at most", maximum))
    return " and ".join(f"{words} {bound}" for words, bound in bounds if bound is not None)
