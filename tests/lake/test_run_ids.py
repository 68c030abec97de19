from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake.errors import EvidenceRejected
from lake.identity import is_slug, slug
from tests.support.sample_tables import FIRST, READINGS, files_under, readings

if TYPE_CHECKING:
    from lake.landing_zone import LandingZone
    from lake.store import Lake

HOSTILE = [
    "", " ", ".", "..", "-", "_", "-rf", ".hidden", "_delta_log", "_staging",
    "a/b", "a/../b", "../a", "/etc/passwd", "a\\b", "C:\\a", "~", "~root", "a:b", "a@seen",
    "a b", " a", "a ", "a\n", "\na", "a\r\nb", "a\tb", "a\x00", "\x00", "a\x1b[31m", "a\u202eb", "a\u200b",
    "a'", "a''b", "' OR '1'='1", "a' OR 'x'='x' --", "a'; DROP TABLE runs; --", 'a"b', "a`b", "a;b", "a--b'",
    "a=b", "run_id=a", "a%2Fb", "%2e%2e", "a%00", "a*", "a?", "[ab]", "{a,b}", "$HOME", "$(id)", "`id`", "${a}",
    "a#b", "a&b", "a|b", "a<b", "a>b", "a,b", "a+b", "(a)", "!a", "a^", "ä", "\uff41", "\uff11", "a\u0301", "٣", "🙂",
    "a" * 129, "__HIVE_DEFAULT_PARTITION__",
]  # fmt: skip
# Plain ids that an engine or a file system might take for something else.
TREACHEROUS = [
    "a", "0", "007", "1e5", "0x10", "1_000", "null", "NULL", "None", "nan", "inf", "true", "2024-01-01", "1.5",
    "a.", "a..", "a..b", "a--b", "x", "x.lock", "run.toml", "con", "a.parquet", "A", "a" * 128, "z_",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_text_that_is_no_plain_id_is_refused_and_nothing_changes(lake: Lake, zone: LandingZone, text: str) -> None:
    lake.replace(READINGS, "a", readings(), FIRST)
    before = files_under(lake.place.directory.parent)
    for use in (
        lambda: slug(text),
        lambda: lake.stage(READINGS, text),
        lambda: lake.replace(READINGS, text, readings(text), FIRST),
        lambda: lake.scan(READINGS, [text]),
        lambda: zone.files(text),
        lambda: zone.manifest(text),
        lambda: zone.manifest_etag(text),
        lambda: zone.land(text, {}, ""),
    ):
        with pytest.raises(EvidenceRejected, match="cannot be a run id"):
            use()
    with duckdb.connect() as connection, pytest.raises(EvidenceRejected, match="cannot be a run id"):
        lake.relation(connection, READINGS, [text])
    assert files_under(lake.place.directory.parent) == before


@pytest.mark.parametrize("text", TREACHEROUS)
def test_a_plain_id_is_taken_as_it_is(text: str) -> None:
    assert is_slug(text)
    assert slug(text) == text


def test_half_a_character_is_refused() -> None:
    with pytest.raises(EvidenceRejected, match="cannot be a run id"):
        slug("a\udc80")


def test_the_refusal_says_what_an_id_may_be_and_does_not_repeat_a_novel() -> None:
    with pytest.raises(EvidenceRejected, match="1 to 128 characters: a letter or digit first") as caught:
        slug("x" * 100_000)
    assert len(str(caught.value)) < 400


@settings(max_examples=60)
@given(st.text(max_size=140) | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", fullmatch=True))
def test_any_text_is_refused_or_comes_back_as_the_partition_it_named(lake: Lake, text: str) -> None:
    known = lake.snapshot(READINGS).run_ids
    if not is_slug(text):
        with pytest.raises(EvidenceRejected):
            lake.stage(READINGS, text)
        assert lake.snapshot(READINGS).run_ids == known
        return
    check_round_trip(lake, text)
    assert lake.snapshot(READINGS).run_ids == sorted({*known, text})


def test_treacherous_ids_live_side_by_side(lake: Lake) -> None:
    for text in TREACHEROUS:
        check_round_trip(lake, text)
    assert lake.snapshot(READINGS).run_ids == sorted(TREACHEROUS)


def check_round_trip(lake: Lake, run_id: str) -> None:
    """Written under that id, a partition is read back under it by both engines, and is alone there."""
    rows = readings(run_id, [float(len(run_id))], label=run_id)
    lake.replace(READINGS, run_id, rows, FIRST)
    assert lake.scan(READINGS, [run_id]).collect().to_dicts() == rows.to_pylist()
    with duckdb.connect() as connection:
        assert lake.relation(connection, READINGS, [run_id]).to_arrow_table().to_pylist() == rows.to_pylist()
