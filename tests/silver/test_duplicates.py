from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.silver_rows import event

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver


def _copy(**other: Any) -> Row:
    """A copy with every typed column that tells one event from another."""
    known = {
        "name": "Memcpy HtoD (Pinned -> Device)",
        "category": "gpu_memcpy",
        "ts_ns": 1000,
        "duration_ns": 10,
        "process_id": "0",
        "thread_id": "7",
        "correlation_id": 1,
        "external_id": 2,
        "stream_id": 7,
        "payload_bytes": 64,
    }
    return event(**{**known, **other})


@pytest.mark.given(_copy(ordinal=4), _copy(ordinal=9), _copy(ordinal=2, ts_ns=5000))
def test_an_event_that_repeats_another_is_merged_into_the_first(found: Silver) -> None:
    assert found.rows("spans", "ordinal", "ts_ns", "duplicates_count") == [(2, 5000, 0), (4, 1000, 1)]


@pytest.mark.given(_copy(ordinal=8), _copy(ordinal=3), _copy(ordinal=5))
def test_three_equal_events_are_one_that_stands_for_two_more(found: Silver) -> None:
    assert found.rows("spans", "ordinal", "duplicates_count") == [(3, 2)]
    assert found.rows("rule_counts", "effect", "rule", "events_count") == [
        ("flagged", "orphan", 1),
        ("kept", "memcpy", 1),
        ("merged", "duplicate", 2),
    ]


@pytest.mark.given(event(None, None, 1000, 10, thread_id=None), event(None, None, 1000, 10, thread_id=None))
def test_events_of_which_little_is_known_are_equal_where_the_same_is_missing(found: Silver) -> None:
    assert found.rows("spans", "ordinal", "duplicates_count") == [(0, 1)]


@pytest.mark.given(
    _copy(),
    _copy(category="memcpy"),
    _copy(name="Memcpy DtoH (Device -> Pinned)"),
    _copy(process_id="1"),
    _copy(process_id=None),
    _copy(thread_id="8"),
    _copy(ts_ns=1001),
    _copy(duration_ns=11),
    _copy(correlation_id=2),
    _copy(correlation_id=None),
    _copy(external_id=3),
    _copy(device_id=1),
    _copy(stream_id=8),
    _copy(payload_bytes=65),
    _copy(rank=1),
    _copy(source_sha256="another"),
)
def test_an_event_that_differs_in_one_respect_is_another(found: Silver) -> None:
    assert found.rows("spans", "source_sha256", "ordinal", "duplicates_count") == [
        ("another", 0, 0),
        *(("source-0", ordinal, 0) for ordinal in range(14)),
        ("source-1", 0, 0),
    ]


@pytest.mark.given(_copy(), _copy(group_size=2), _copy(sequence_number=3))
def test_an_argument_that_is_no_id_and_no_size_makes_no_other_event(found: Silver) -> None:
    assert found.rows("spans", "ordinal", "duplicates_count") == [(0, 2)]


@pytest.mark.given(_copy(duration_ns=-1), _copy(duration_ns=-1), _copy(phase="s"), _copy(phase="s"), _copy())
def test_what_is_no_interval_is_no_duplicate(found: Silver) -> None:
    assert found.rows("spans", "ordinal", "duplicates_count") == [(4, 0)]
    assert found.rows("rejects", "ordinal", "rule") == [(0, "negative_duration"), (1, "negative_duration")]
