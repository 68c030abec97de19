from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from silver import crossings, nonce_budgets
from tests.support.silver_rows import RUN, copy, note, rows_of, run, run_plan, sort_rows

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench, Row, Silver

LIMIT = 1 << 32


def _make_sealed_ring(ts_ns: int, messages: int, **fields: Any) -> list[Row]:
    """A hook's all-reduce that sealed so many messages."""
    seals = [note("tee::encrypt", ts_ns + place, 1, **fields) for place in range(messages)]
    sends = [note("tee::sendrecv", ts_ns + place, 1, **fields) for place in range(messages)]
    return [note("tee::all_reduce#64", ts_ns, 50, **fields), *seals, *sends]


@pytest.mark.given(
    run(regime="sw_per_hop_aesgcm", found_world_size=2),
    note("ProfilerStep#10", 1000, 100),
    note("ProfilerStep#11", 1100, 100),
    *_make_sealed_ring(1000, 2),
    *_make_sealed_ring(1050, 2),
    *_make_sealed_ring(1100, 4),
    *_make_sealed_ring(1200, 8),
    *_make_sealed_ring(1000, 1, rank=1),
    copy("Memcpy HtoD (Pinned -> Device)", 1000, 10),
)
def test_the_pace_of_the_steps_is_carried_on_to_the_limit(found: Silver) -> None:
    # Rank 0: 16 messages, 8 of them in two steps, four a step; rank 1: one message in the one step it has.
    assert found.rows("nonce_budgets", *(name for name in nonce_budgets.TABLE.column_names if name != "run_id")) == [
        (0, "rank 0 to the next", 16, "unknown", 32, LIMIT, 16 / LIMIT, 2, LIMIT // 4, False, "measured"),
        (1, "rank 1 to the next", 1, "unknown", 32, LIMIT, 1 / LIMIT, 1, LIMIT, False, "measured"),
    ]


RING = '{"ring_chains": 2, "ring_mode": "sealed"}'


@pytest.mark.given(run(regime="sw_per_hop_aesgcm", found_world_size=2, extra=RING), *_make_sealed_ring(1000, 2))
def test_counted_nonces_are_not_held_to_the_limit_of_random_ones(found: Silver) -> None:
    columns = ("nonce_construction", "standard_limit_bits", "limit_count")
    assert found.only("nonce_budgets", *columns) == ("counted", 96, 4294967296)


@pytest.mark.given(
    run(regime="sw_per_hop_aesgcm", found_world_size=2, extra='{"seal_nonces": "random"}'), *_make_sealed_ring(1000, 2)
)
def test_random_nonces_are_good_for_two_to_the_power_of_32_messages(found: Silver) -> None:
    columns = ("nonce_construction", "standard_limit_bits", "limit_count")
    assert found.only("nonce_budgets", *columns) == ("random", 32, 4294967296)


@pytest.mark.given(run(regime="cc_off"), copy("Memcpy HtoD (Pinned -> Device)", 1000, 10))
def test_a_run_that_seals_nothing_in_software_has_no_budget(found: Silver) -> None:
    assert found.rows("nonce_budgets", "key_scope") == []


def test_a_key_is_near_its_limit_when_half_is_spent_or_a_million_steps_would_spend_it(engine: Bench) -> None:
    keys: dict[str, list[tuple[int | None, int]]] = {
        "a: half is spent, outside of any step": [(None, LIMIT // 2)],
        "b: one less": [(None, LIMIT // 2 - 1)],
        # 2**32 / 4295 is 999,992.4; 2**32 / 4294 is 1,000,225.3.
        "c: within a million steps": [(0, 4294), (1, 4296)],
        "d: not within a million steps": [(0, 4294)],
        "e: spent": [(3, LIMIT * 2)],
        "f: none recorded": [(3, 0)],
    }
    rows = [
        {
            "run_id": RUN,
            "rank": 0,
            "key_scope": scope,
            "step_number": step,
            "sealed_message_count": count,
            "ordinal": place,
        }
        for scope, spent in keys.items()
        for place, (step, count) in enumerate(spent)
    ]
    frame = nonce_budgets.conform(engine.wrap(rows_of(crossings.TABLE, rows)))
    found = sort_rows(nonce_budgets.TABLE, run_plan(engine, frame, nonce_budgets.TABLE))
    columns = ("key_scope", "used_fraction", "steps_count", "limit_step_number", "is_near_limit")
    assert [(row[0][0], *row[1:]) for row in found.select(columns).rows()] == [
        ("a", 0.5, 0, None, True),
        ("b", (LIMIT // 2 - 1) / LIMIT, 0, None, False),
        ("c", 8590 / LIMIT, 2, 999992, True),
        ("d", 4294 / LIMIT, 1, 1000225, False),
        ("e", 2.0, 1, 0, True),
        ("f", 0.0, 1, None, False),
    ]
