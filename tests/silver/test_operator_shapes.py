from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bronze import trace_events
from silver.operator_shapes import TABLE, conform
from tests.support.silver_rows import RUN, rows_of, run_plan, sort_rows

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

LISTS = ("input_shapes", "input_types", "input_values")
STRIDED = ["", "", "[2, 2]", "False", "[]"]


def operator(args: dict[str, Any] | str, name: str = "aten::mm", **fields: Any) -> dict[str, Any]:
    text = args if isinstance(args, str) else json.dumps(args, separators=(",", ":"))
    return {
        "run_id": RUN,
        "source_sha256": "s",
        "phase": "X",
        "category": "cpu_op",
        "name": name,
        "args": text,
        **fields,
    }


def take_lists(bench: Bench, *events: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The lists of some events, in their order."""
    rows = [{"ordinal": place, **event} for place, event in enumerate(events)]
    plan = conform(bench.wrap(rows_of(trace_events.TABLE, rows)))
    return sort_rows(TABLE, run_plan(bench, plan, TABLE)).select(LISTS).rows()


@pytest.mark.parametrize("indent", [None, 2])
def test_lists_are_taken_wherever_they_stand_among_the_arguments(engine: Bench, indent: int | None) -> None:
    dims, types = {"Input Dims": [[2, 3], [3, 4]]}, {"Input type": ["float", "c10::Half"]}
    values, other = {"Concrete Inputs": STRIDED}, {"External id": 7, "Call stack": "a.py(3): f\nb.py"}
    found = take_lists(
        engine,
        *(
            operator(json.dumps(args, indent=indent))
            for args in ({**dims, **types, **values}, {**other, **values, **types, **dims}, {**types, **dims, **other})
        ),
    )
    lists = [tuple(json.loads(one) if one else None for one in row) for row in found]
    assert lists == [
        ([[2, 3], [3, 4]], ["float", "c10::Half"], STRIDED),
        ([[2, 3], [3, 4]], ["float", "c10::Half"], STRIDED),
        ([[2, 3], [3, 4]], ["float", "c10::Half"], None),
    ]


def test_a_text_that_speaks_of_shapes_is_no_list_of_shapes(engine: Bench) -> None:
    stack = 'f("Input Dims": [[9, 9]])'
    found = take_lists(engine, operator({"Input Dims": [[2, 3]], "Call stack": stack}))
    assert found == [("[[2,3]]", "", "")]


def test_operators_without_shapes_and_other_events_are_left_out(engine: Bench) -> None:
    shaped = {"Input Dims": [[2, 3]]}
    found = take_lists(
        engine,
        operator({"External id": 7}),
        operator(shaped, name="aten::relu"),
        operator(shaped, category="user_annotation"),
        operator(shaped, phase="i"),
        operator(shaped, category="Operator"),
    )
    assert found == [("[[2,3]]", "", "")]


def test_a_list_that_holds_a_text_of_a_person_is_not_taken(engine: Bench) -> None:
    lists = {"Input Dims": [[2, 3]], "Input type": ["/home/alice/x.py"], "Concrete Inputs": ["alice@example.com"]}
    assert take_lists(engine, operator(lists)) == [("[[2,3]]", "", "")]
