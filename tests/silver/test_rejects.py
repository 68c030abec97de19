from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from silver.event_rules import RULES
from tests.support.silver_rows import byte_range, event, source

if TYPE_CHECKING:
    from tests.support.silver_rows import Silver

PLACE = ("level", "source_sha256", "ordinal", "rank", "offset_bytes", "rule", "reason", "label")
# A reader's own reason may quote what it read: it goes into the label, which is sealed.
UNREADABLE = "No reader could parse this byte range of its source; the label says why."
FILE = "No reader takes this file; the label names it and says why."
SENTENCES = {rule.id: rule.sentence for rule in RULES}


@pytest.mark.given(
    event("good", "cpu_op", 1000, 10),
    event("Ünïcode\n🙂", "cpu_op", 1000, -10, offset_bytes=77, rank=3),
    event(None, None, 1000, 10, phase="?", offset_bytes=99, rank=3),
)
def test_an_event_is_refused_with_its_place_and_its_reason(found: Silver) -> None:
    assert found.rows("rejects", *PLACE, "category", "ts_ns", "duration_ns") == [
        (
            *("event", "source-3", 0, 3, 77, "negative_duration", SENTENCES["negative_duration"], "Ünïcode\n🙂"),
            *("cpu_op", 1000, -10),
        ),
        (
            *("event", "source-3", 1, 3, 99, "unknown_phase", SENTENCES["unknown_phase"], None),
            *(None, 1000, 10),
        ),
    ]


@pytest.mark.given(
    source(rank=2, source_sha256="two"),
    byte_range(source_sha256="two", offset_bytes=50, length_bytes=9, reason="a comma is missing", beginning="{x"),
    byte_range(source_sha256="two", offset_bytes=50, length_bytes=0, reason="it ends early", beginning=""),
    byte_range(source_sha256="two", offset_bytes=7, length_bytes=5, reason="z", beginning="b"),
    byte_range(source_sha256="two", offset_bytes=50, length_bytes=9, reason="a brace is missing", beginning="{y"),
)
def test_stretches_are_numbered_by_where_they_lie(found: Silver) -> None:
    assert found.rows("rejects", *PLACE) == [
        ("byte_range", "two", 0, 2, 7, None, UNREADABLE, "z: b"),
        ("byte_range", "two", 1, 2, 50, None, UNREADABLE, "it ends early: "),
        ("byte_range", "two", 2, 2, 50, None, UNREADABLE, "a brace is missing: {y"),
        ("byte_range", "two", 3, 2, 50, None, UNREADABLE, "a comma is missing: {x"),
    ]


@pytest.mark.given(
    event("good", "cpu_op", 1000, 10),
    source(file_name="notes.txt", source_sha256="abc", outcome="rejected", reason="it is no trace", rank=None),
    source(file_name="b.json", source_sha256=None, outcome="rejected", reason="it may not be read", rank=None),
    source(file_name="a.json", source_sha256=None, outcome="rejected", rank=None),
    source(file_name="second.json", source_sha256="source-0", outcome="merged", reason="copy", events_count=0),
    source(file_name="good.json", source_sha256="source-0"),
)
def test_a_file_is_refused_whole_and_a_copy_is_not(found: Silver) -> None:
    assert found.rows("rejects", *PLACE) == [
        ("file", "", 0, None, 0, None, FILE, "a.json: "),
        ("file", "", 1, None, 0, None, FILE, "b.json: it may not be read"),
        ("file", "abc", 0, None, 0, None, FILE, "notes.txt: it is no trace"),
    ]


@pytest.mark.given(
    source(rank=0, source_sha256="s", file_name="kept.json"),
    source(rank=None, source_sha256="s", file_name="refused.json", outcome="rejected", reason="x", events_count=0),
    event("bad", "cpu_op", 0, 1, source_sha256="s"),
    byte_range(source_sha256="s", reason="y"),
)
def test_an_event_a_file_and_a_byte_range_may_share_source_and_ordinal(found: Silver) -> None:
    assert found.rows("rejects", "level", "source_sha256", "ordinal") == [
        ("byte_range", "s", 0),
        ("event", "s", 0),
        ("file", "s", 0),
    ]
