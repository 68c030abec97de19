from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from silver.event_rules import REJECTED, RULES
from tests.support.silver_rows import event, source

if TYPE_CHECKING:
    from tests.support.silver_rows import Silver

LONGEST = 1 << 48
LATEST = (1 << 62) - LONGEST
MOST = (1 << 63) - 1


@pytest.mark.given(
    *(
        event(name, "cpu_op", 1000, 10, phase=phase, ordinal=place)
        for place, (name, phase) in enumerate(
            {
                "complete": "X",
                "metadata": "M",
                "flow from": "s",
                "flow through": "t",
                "flow to": "f",
                "instant": "i",
                "old instant": "I",
                "mark": "R",
                "counter": "C",
                "begin": "B",
                "lower case": "x",
                "empty": "",
                "none": None,
            }.items()
        )
    )
)
def test_the_phase_says_whether_an_event_is_an_interval(found: Silver) -> None:
    assert found.rows("spans", "name") == [("complete",)]
    assert found.rows("rejects", "ordinal", "rule", "label") == [
        (9, "unknown_phase", "begin"),
        (10, "unknown_phase", "lower case"),
        (11, "unknown_phase", "empty"),
        (12, "unknown_phase", "none"),
    ]
    assert found.rows("rule_counts", "effect", "rule", "events_count") == [
        ("kept", "operator", 1),
        ("merged", "flow_arrow", 3),
        ("merged", "mark", 4),
        ("merged", "metadata", 1),
        ("rejected", "unknown_phase", 4),
    ]


@pytest.mark.given(
    source(base_ns=500),
    event("after", "cpu_op", 501, 10),
    event("at", "cpu_op", 500, 10),
    event("before", "cpu_op", 499, 10),
    event("at 0", "cpu_op", 0, 10),
    event("negative", "cpu_op", -MOST - 1, 10),
)
def test_an_event_at_the_origin_of_its_clock_was_never_stamped(found: Silver) -> None:
    assert found.rows("spans", "name", "ts_ns") == [("after", 501)]
    assert found.rows("rejects", "label", "rule") == [
        ("at", "zero_timestamp"),
        ("before", "zero_timestamp"),
        ("at 0", "zero_timestamp"),
        ("negative", "zero_timestamp"),
    ]


@pytest.mark.given(event("first", "cpu_op", 1, 10), event("zero", "cpu_op", 0, 10), event("negative", "cpu_op", -1, 10))
def test_a_trace_without_a_base_begins_at_1970(found: Silver) -> None:
    assert found.rows("spans", "name") == [("first",)]
    assert found.rows("rejects", "label", "rule") == [("zero", "zero_timestamp"), ("negative", "zero_timestamp")]


@pytest.mark.given(
    source(rank=0, source_sha256="late", base_ns=5000),
    source(rank=0, source_sha256="early", base_ns=10),
    event("a", "cpu_op", 1000, 10, source_sha256="late"),
    event("b", "cpu_op", 1000, 10, source_sha256="early"),
)
def test_each_source_has_an_origin_of_its_own(found: Silver) -> None:
    assert found.rows("spans", "name") == [("b",)]
    assert found.rows("rejects", "source_sha256", "rule") == [("late", "zero_timestamp")]


@pytest.mark.given(
    event("both", "cpu_op", 1000, 10),
    event("no start", "cpu_op", None, 10),
    event("no duration", "cpu_op", 1000, None),
    event("neither", "cpu_op", None, None),
)
def test_a_complete_event_without_start_or_duration_is_no_interval(found: Silver) -> None:
    assert found.rows("spans", "name") == [("both",)]
    assert found.rows("rejects", "label", "rule", "ts_ns", "duration_ns") == [
        ("no start", "no_time", None, 10),
        ("no duration", "no_time", 1000, None),
        ("neither", "no_time", None, None),
    ]


@pytest.mark.given(
    event("one", "cpu_op", 1000, 1),
    event("nothing", "cpu_op", 1000, 0),
    event("negative", "cpu_op", 1000, -1),
    event("very negative", "cpu_op", 1000, -MOST - 1),
)
def test_a_duration_may_be_zero_and_not_negative(found: Silver) -> None:
    assert found.rows("spans", "name", "duration_ns") == [("one", 1), ("nothing", 0)]
    assert found.rows("rejects", "label", "rule") == [
        ("negative", "negative_duration"),
        ("very negative", "negative_duration"),
    ]


@pytest.mark.given(
    event("longest", "cpu_op", 1000, LONGEST),
    event("too long", "cpu_op", 1000, LONGEST + 1),
    event("as long as can be", "cpu_op", 1000, MOST),
    event("latest", "cpu_op", LATEST, LONGEST, rank=1),
    event("too late", "cpu_op", LATEST + 1, 0, rank=1),
    event("as late as can be", "cpu_op", MOST, MOST, rank=1),
)
def test_what_sums_could_not_hold_was_never_measured(found: Silver) -> None:
    assert found.rows("spans", "name") == [("longest",), ("latest",)]
    assert found.rows("rejects", "label", "rule") == [
        ("too long", "overflow"),
        ("as long as can be", "overflow"),
        ("too late", "overflow"),
        ("as late as can be", "overflow"),
    ]


@pytest.mark.given(
    source(base_ns=500),
    event("arrow without a time", "cpu_op", None, None, phase="s"),
    event("metadata at 0", "cpu_op", 0, None, phase="M"),
    event("strange phase, no time", "cpu_op", None, -5, phase="?"),
    event("no start, negative", "cpu_op", None, -5),
    event("at the base, negative", "cpu_op", 500, -5),
    event("negative and late", "cpu_op", MOST, -5),
)
def test_the_first_rule_that_an_event_breaks_is_the_one_that_it_falls_under(found: Silver) -> None:
    assert found.rows("rejects", "ordinal", "rule") == [
        (2, "unknown_phase"),
        (3, "no_time"),
        (4, "zero_timestamp"),
        (5, "negative_duration"),
    ]
    assert found.rows("rule_counts", "effect", "rule", "events_count") == [
        ("merged", "flow_arrow", 1),
        ("merged", "metadata", 1),
        ("rejected", "negative_duration", 1),
        ("rejected", "no_time", 1),
        ("rejected", "unknown_phase", 1),
        ("rejected", "zero_timestamp", 1),
    ]


def test_every_rule_has_a_name_of_its_own_and_a_sentence() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.sentence[0].isupper() and rule.sentence.endswith(".") for rule in RULES)
    assert REJECTED == ("unknown_rank", "unknown_phase", "no_time", "zero_timestamp", "negative_duration", "overflow")
