"""Whether rules hold on few rows, by what their columns say of themselves: nulls, least and greatest, distinct values.

It takes a fraction of the time of a count, which is spent on planning. It never counts: where a rule may be violated,
`count_violations` decides, so that only one place says which rows violate a rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from assets.checks.rules import Must

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assets.checks.rules import Rule


def are_held(rows: pa.Table, rules: Iterable[Rule]) -> bool:
    """Whether no row can violate one of these rules; false also where that takes a count to find out."""
    return not rows.num_rows or all(_is_held(rows, rule) for rule in rules if rule.must is not Must.BE_DECLARED)


def _is_held(rows: pa.Table, rule: Rule) -> bool:
    if rule.must is Must.BE_UNIQUE:
        return _is_unique(rows.select(rule.columns))
    column = rows.column(rule.columns[0])
    if rule.must is Must.BE_PRESENT:
        return not column.null_count
    if rule.must is Must.BE_ONE_OF:
        return set(pc.unique(column).to_pylist()) <= {*rule.arguments, None}
    if rule.must is Must.BE_FINITE:
        return _are_all(pc.is_finite(column))
    if rule.must is Must.BE_SHAPED:
        return _are_all(pc.match_substring_regex(pc.unique(column), rule.whole_pattern))
    if rule.must is Must.BE_WITHIN:
        return _is_within(column, rule)
    return False


def _is_unique(keys: pa.Table) -> bool:
    if keys.num_rows == 1:
        return True
    if any(pa.types.is_floating(kind) for kind in keys.schema.types):
        return False  # engines differ on which of them are equal
    return bool(keys.group_by(keys.column_names, use_threads=False).aggregate([]).num_rows == keys.num_rows)


def _is_within(column: pa.ChunkedArray, rule: Rule) -> bool:
    """By the least and the greatest value, without nulls; where nothing else is a number, they are none either."""
    found, (low, high) = pc.min_max(column).as_py(), rule.arguments
    least, greatest = found["min"], found["max"]
    return least is None or bool((low is None or least >= low) and (high is None or greatest <= high))


def _are_all(flags: pa.ChunkedArray | pa.Array) -> bool:
    """Whether none is false; a null is neither."""
    return bool(pc.all(flags, min_count=0).as_py())
