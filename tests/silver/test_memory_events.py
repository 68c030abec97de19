from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bronze import trace_events
from lake.engines import engine as lake_engine
from silver.memory_events import TABLE, conform
from tests.support.silver_rows import RUN, rows_of, run_plan, sort_rows

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

POLARS = lake_engine("polars")
NUMBERS = ("device_type", "device_id", "block_bytes", "allocated_bytes", "reserved_bytes")
GIVEN = {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Total Allocated": 1536, "Total Reserved": 2048, "Addr": 7}


def memory(args: dict[str, Any] | str, **fields: Any) -> dict[str, Any]:
    text = args if isinstance(args, str) else json.dumps(args, separators=(",", ":"))
    known = {"phase": "i", "category": "cpu_instant_event", "name": "[memory]", "ts_ns": 5, "args": text}
    return {"run_id": RUN, "source_sha256": "s", **known, **fields}


def take_numbers(bench: Bench, *events: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The numbers of some events, in their order."""
    rows = [{"ordinal": place, **event} for place, event in enumerate(events)]
    plan = conform(bench.wrap(rows_of(trace_events.TABLE, rows)))
    return sort_rows(TABLE, run_plan(bench, plan, TABLE)).select(NUMBERS).rows()


@pytest.mark.parametrize("indent", [None, 2])
def test_numbers_are_taken_wherever_they_stand_among_the_arguments(engine: Bench, indent: int | None) -> None:
    orders = (GIVEN, dict(reversed(GIVEN.items())))
    found = take_numbers(engine, *(memory(json.dumps(args, indent=indent)) for args in orders))
    assert found == [("cuda", 0, 512, 1536, 2048)] * 2


def test_a_block_taken_back_is_negative_and_the_host_has_no_number() -> None:
    host = {"Device Type": 0, "Device Id": -1, "Bytes": -512, "Total Allocated": 0, "Total Reserved": 0}
    assert take_numbers(POLARS, memory(host)) == [("cpu", 0, -512, 0, 0)]


def test_a_device_that_torch_may_add_is_another() -> None:
    assert take_numbers(POLARS, memory(GIVEN | {"Device Type": 20, "Device Id": 3})) == [("other", 3, 512, 1536, 2048)]


def test_what_states_no_total_or_no_number_is_left_out(engine: Bench) -> None:
    found = take_numbers(
        engine,
        memory({"Device Type": 1, "Device Id": 0, "Bytes": 512}),
        memory(GIVEN | {"Total Allocated": "many"}),
        memory(GIVEN | {"Total Allocated": 10**18}),
        memory(GIVEN | {"Total Allocated": -1}),
        memory(GIVEN | {"Bytes": None}),
        memory(GIVEN, phase="X"),
        memory(GIVEN, name="memory"),
        memory(GIVEN, ts_ns=0),
        memory(GIVEN, ts_ns=None),
        memory("Total Allocated"),
        memory(GIVEN) | {"args": None},
    )
    assert found == []
