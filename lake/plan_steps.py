"""What narwhals asks of each step of a plan, answered once: it makes a set for each answer, 150,000 a launch."""

from __future__ import annotations

from functools import partial
from operator import truth
from typing import TYPE_CHECKING

from narwhals import _expression_parsing as parsing

if TYPE_CHECKING:
    from enum import Enum

# What is asked of a step's kind, and of how many columns come of it. What a version of narwhals lacks is left alone.
_OF_KINDS = ("is_orderable", "is_elementwise", "preserves_length", "is_scalar_like")
_OF_COUNTS = ("is_multi_output", "is_multi_unnamed")


def keep_answers() -> None:
    """Write the answers onto the members of narwhals' enumerations, where they are found first."""
    kinds: type[Enum] | None = getattr(parsing, "ExprKind", None)
    asked = [name for name in _OF_KINDS if isinstance(vars(kinds or object).get(name), property)]
    for kind in kinds or ():
        vars(kind).update({name: getattr(kind, name) for name in asked})
    for name in asked:  # a property goes before what a member has of that name
        delattr(kinds, name)
    counts: type[Enum] | None = getattr(parsing, "ExpansionKind", None)
    for count in counts or ():
        vars(count).update(
            {name: partial(truth, getattr(count, name)()) for name in _OF_COUNTS if hasattr(count, name)}
        )
