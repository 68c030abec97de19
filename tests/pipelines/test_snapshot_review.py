"""What a reviewer reads of two texts of a table: every move told, the largest first, nothing in a cell obeyed."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.review.page import MOST_CHARACTERS, Review, page
from pipelines.review.section import Reason, Reviewed, section
from pipelines.review.text_tables import TableChange, compare_tables, parse_table

HEAD = "run_id,rank,name,value_ns,share_fraction,evidence\ntext,int32,text,int64 or null,float64 or null,text\n"
KEY = ("run_id", "rank")


def change(before: str, after: str, key: tuple[str, ...] = KEY) -> TableChange:
    old, new = parse_table(before), parse_table(after)
    assert old is not None
    assert new is not None
    found = compare_tables(old, new, key)
    assert found is not None
    return found


def review(before: str, after: str, title: str = "gold.made_up", key: tuple[str, ...] = KEY) -> Reviewed:
    return Reviewed("a.csv", "a.csv", title, before, after, change(before, after, key))


# -- reading ----------------------------------------------------------------------------------------------------------


def test_nothing_is_null_where_null_may_be_and_the_empty_text_elsewhere() -> None:
    table = parse_table('a,b,c\ntext,text or null,text or null\n,,""\n')
    assert table is not None
    assert table.rows == (("", None, ""),)


def test_a_quoted_cell_may_hold_commas_quotes_and_pipes() -> None:
    table = parse_table('a,b\ntext,text\n"x, ""y"" | z",\\n\n')
    assert table is not None
    assert table.rows == (('x, "y" | z', "\\n"),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a,b\n1,2\n",
        "a,a\ntext,text\n",
        "a,\ntext,text\n",
        "a,b\ntext,text\n1\n",
        'a,b\ntext,text\n"1"2,3\n',
        'a,b\ntext,text\n"1,3\n',
        "a,b\ntext,number\n",
        "asset gold/x\n  from silver/y\n",
    ],
)
def test_any_other_text_is_no_table(text: str) -> None:
    assert parse_table(text) is None


@given(st.text(alphabet='a,"\n\\ 1|', max_size=60), st.text(max_size=60))
def test_no_text_is_too_strange_to_be_reviewed(before: str, after: str) -> None:
    old, new = (parse_table(f"a,b\ntext,int64 or null\n{text}") for text in (before, after))
    moved = None if old is None or new is None else compare_tables(old, new, ("a",))
    assert section(Reviewed("a.csv", "a.csv", "a", before, after, moved)).startswith("### `a`\n")


# -- comparing --------------------------------------------------------------------------------------------------------


def test_rows_are_compared_by_key_in_whatever_order_they_come() -> None:
    found = change(f"{HEAD}a,0,x,1,,m\na,1,y,2,,m\n", f"{HEAD}a,1,y,3,,m\na,0,x,1,,m\n")
    assert [(move.key, move.column, move.before, move.after) for move in found.moves] == [
        (("a", "1"), "value_ns", "2", "3")
    ]
    assert found.is_reordered
    assert found.evidence == (("m", 1),)


def test_a_key_that_does_not_tell_rows_apart_gives_no_comparison() -> None:
    table = parse_table(f"{HEAD}a,0,x,1,,m\na,0,y,2,,m\n")
    assert table is not None
    assert compare_tables(table, table, KEY) is None
    assert compare_tables(table, table, ("no_such_column",)) is None
    assert compare_tables(table, table, ()) is None


def test_a_place_in_an_order_does_not_identify_what_stands_there() -> None:
    before = "run_id,part_ordinal,part,overhead_ns\ntext,int64,text,int64\na,0,crypto,5\na,1,copy,7\n"
    after = "run_id,part_ordinal,part,overhead_ns\ntext,int64,text,int64\na,0,copy,7\na,1,crypto,5\n"
    found = change(before, after, ("run_id", "part_ordinal"))
    assert found.key == ("run_id", "part")
    assert {move.column for move in found.moves} == {"part_ordinal"}


def test_null_nan_and_numbers_are_told_apart() -> None:
    before = f"{HEAD}a,0,x,,0.5,m\na,1,x,5,nan,m\na,2,x,0,inf,m\n"
    after = f"{HEAD}a,0,x,7,nan,m\na,1,x,,nan,m\na,2,x,3,0.25,m\n"
    found = change(before, after)
    assert [(move.before, move.after, move.absolute, move.relative) for move in found.moves] == [
        (None, "7", None, None),
        ("0.5", "nan", None, None),
        ("5", None, None, None),
        ("0", "3", 3, math.inf),
        ("inf", "0.25", None, None),
    ]
    result = section(review(before, after))
    assert "| a, 0 | `value_ns` | null | 7 ns | – | – |" in result  # noqa: RUF001
    assert "| a, 2 | `value_ns` | 0 | 3 ns | +3 ns | from 0 |" in result
    assert "| a, 0 | `share_fraction` | 50.0 % | nan |" in result


def test_whole_numbers_are_exact_to_the_last_digit() -> None:
    (move,) = change(f"{HEAD}a,0,x,9007199254740993,,m\n", f"{HEAD}a,0,x,9007199254740992,,m\n").moves
    assert move.absolute == -1


def test_a_move_too_small_for_three_digits_is_told_in_full() -> None:
    result = section(review(f"{HEAD}a,0,x,279300123,,m\n", f"{HEAD}a,0,x,279300124,,m\n"))
    assert "| a, 0 | `value_ns` | 279300123 | 279300124 | +1 ns | +3.6e−07 % |" in result  # noqa: RUF001


def test_a_fraction_moves_by_points_and_by_percent() -> None:
    result = section(review(f"{HEAD}a,0,x,1,0.5,m\n", f"{HEAD}a,0,x,1,0.6,m\n"))
    assert "| 50.0 % | 60.0 % | +10.0 points | +20.0 % |" in result


def test_the_largest_relative_moves_of_a_table_come_first() -> None:
    rows = [f"a,{rank},x,{value},,m\n" for rank, value in enumerate((100, 100, 100, 0))]
    moved = [f"a,{rank},x,{value},,m\n" for rank, value in enumerate((101, 300, 50, 1))]
    result = section(review(HEAD + "".join(rows), HEAD + "".join(moved)))
    assert re.findall(r"\| a, (\d) \|", result) == ["3", "1", "2", "0"]


def test_a_kind_that_changed_is_told() -> None:
    result = section(review("a,b\ntext,int64\nx,1\n", "a,b\ntext,int64 or null\nx,1\n", key=("a",)))
    assert "Kind of `b`: int64 → int64 or null" in result


def test_time_that_went_from_one_column_to_another_is_told_as_such() -> None:
    head = "run_id,a_ns,b_ns\ntext,int64,int64\n"
    assert "In every row the moved times sum" in section(review(f"{head}x,5,7\n", f"{head}x,4,8\n", key=("run_id",)))
    assert "In every row" not in section(review(f"{head}x,5,7\n", f"{head}x,4,9\n", key=("run_id",)))


def test_time_that_went_from_one_row_of_a_run_to_another_is_told_as_such() -> None:
    head, key = "run_id,part,overhead_ns\ntext,text,int64 or null\n", ("run_id", "part")
    before = f"{head}x,copy,5\nx,crypto,7\n"
    law = "In every run each moved time sums to what it did before"
    assert law in section(review(before, f"{head}x,copy,7\nx,crypto,5\n", key=key))
    assert law not in section(review(before, f"{head}x,copy,7\nx,crypto,6\n", key=key))
    assert law not in section(review(before, f"{head}x,copy,\nx,crypto,7\n", key=key))


def test_means_are_taken_apart_where_the_key_names_a_few_things() -> None:
    head = "run_id,part,overhead_ns\ntext,text,int64\n"
    result = section(review(f"{head}x,copy,5\nx,crypto,7\n", f"{head}x,copy,7\nx,crypto,5\n", key=("run_id", "part")))
    assert "| `overhead_ns`, copy | 1 | 5 ns → 7 ns | +2 ns | +40.0 % |" in result
    assert "| `overhead_ns`, crypto | 1 | 7 ns → 5 ns | −2 ns | −28.6 % |" in result  # noqa: RUF001


def test_a_picture_is_compared_by_its_words() -> None:
    before, after = '<text x="1">5 ms</text>', '<text x="2">5 ms</text>'
    assert "every word and number in it is as before" in section(Reviewed("a.svg", "a.svg", "a", before, after))
    assert "-5 ms\n+6 ms" in section(Reviewed("a.svg", "a.svg", "a", before, after.replace("5", "6")))


# -- the page ---------------------------------------------------------------------------------------------------------

ANSWER = (
    "run_id,slowdown_ratio,verdict_class,verdict,dominant_part,dominant_fraction,evidence\n"
    "text,float64 or null,text,text,text or null,float64 or null,text\n"
)


def verdicts(before: str, after: str) -> str:
    item = review(ANSWER + before, ANSWER + after, "gold.step_overhead", ("run_id",))
    return page(Review("a with b", (item,))).partition("### Verdicts")[2].partition("###")[0]


def test_a_slowdown_that_moves_without_a_flip_says_so() -> None:
    result = verdicts("r,1.42,slower,1.42x,crypto,0.6,measured\n", "r,1.51,slower,1.51x,crypto,0.6,measured\n")
    assert "- `r`: 1.42× → 1.51× (+6.34 %), measured, verdict unchanged (slower)\n" in result  # noqa: RUF001


def test_a_verdict_that_flips_is_told_with_both_sentences() -> None:
    result = verdicts(
        "r,1.42,slower,1.42x slower,crypto,0.6,measured\n", "r,1.01,within_noise,no difference,copy,0.3,measured\n"
    )
    assert r"**verdict flips: slower → within\_noise**" in result
    assert "was “1.42x slower”, is “no difference”" in result
    assert "**largest part of it: sealing and opening (60.0 %) → copies (30.0 %)**" in result


def test_an_answer_that_became_unknown_is_told() -> None:
    result = verdicts("r,1.42,slower,1.42x,,,measured\n", "r,,inconclusive,no answer,,,unobservable\n")
    assert "1.42× → null" in result  # noqa: RUF001
    assert "unobservable, **verdict flips: slower → inconclusive**" in result


def test_a_flip_in_another_table_is_told_with_its_row() -> None:
    head = "run_id,operation,verdict_class\ntext,text,text\n"
    item = review(
        f"{head}r,copy,slower\n", f"{head}r,copy,faster\n", "gold.operation_overhead", ("run_id", "operation")
    )
    result = page(Review("a with b", (item,)))
    assert "- `gold.operation_overhead` `r, copy`: **slower → faster**" in result
    assert "`gold.step_overhead` and `gold.throughput_overhead`: as before" in result


HOSTILE = "@everyone | <script>alert(1)</script> [x](http://evil.example) `a` \\n **b** <!-- -->"


def test_no_cell_reason_or_name_is_obeyed() -> None:
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    item = review(f"{HEAD}a,0,{quoted},1,,m\n", f"{HEAD}{quoted},0,x,1,,m\na,0,{quoted}z,2,,m\n".replace('"z', 'z"'))
    full = Reviewed(
        **{
            **item.__dict__,
            "title": HOSTILE,
            "path": HOSTILE,
            "old_path": HOSTILE,
            "reasons": (Reason(HOSTILE, "abc", HOSTILE),),
            "commits": (HOSTILE,),
            "fault": HOSTILE,
        }
    )
    result = page(Review(HOSTILE, (full,), ((HOSTILE, HOSTILE),), (HOSTILE,)))
    code_apart = "".join(part for place, part in enumerate(result.replace(r"\`", "").split("`")) if place % 2 == 0)
    assert "<script>" not in code_apart
    assert "@everyone" not in code_apart
    assert re.search(r"(?<!\\)\]\(http", code_apart) is None
    assert result.count("<!--") == 1 + result.count(
        "`@everyone ¦ <script>alert(1)</script> [x](http://evil.example) 'a'"
    )
    tables = [line for line in result.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} <= {5, 6, 7}


def test_a_long_review_is_cut_to_a_comment_with_the_largest_moves_first() -> None:
    def many(factor: int) -> str:
        return HEAD + "".join(f"run-{row},0,{'long' * 20},{1000 + row * factor},,m\n" for row in range(400))

    items = [review(many(1), many(place + 2), f"gold.table_{place:03}") for place in range(120)]
    result = page(Review("a with b", tuple(items)))
    assert len(result.encode()) <= MOST_CHARACTERS
    assert "sections left out here: `python -m pipelines.review --full` has all." in result
    assert result.index("### `gold.table_119`") < result.index("### `gold.table_118`")
    assert "### `gold.table_000`" not in result
    whole = page(Review("a with b", tuple(items)), is_full=True)
    assert "### `gold.table_000`" in whole
    assert whole.count("| run-399, 0 |") == 120


def test_a_head_that_is_too_long_by_itself_is_cut_at_a_line() -> None:
    items = [Reviewed("p" * 3000, "q", f"{place}" * 900, "a", "b", fault=f"{place}") for place in range(99)]
    result = page(Review("a with b", tuple(items)))
    assert len(result.encode()) <= MOST_CHARACTERS + 200
    assert result.endswith("The rest is left out: `python -m pipelines.review --full` has all.\n")


def test_what_is_not_explained_comes_first() -> None:
    small = review(f"{HEAD}a,0,x,100,,m\n", f"{HEAD}a,0,x,101,,m\n", "gold.small")
    large = review(f"{HEAD}a,0,x,100,,m\n", f"{HEAD}a,0,x,900,,m\n", "gold.large")
    result = page(Review("a with b", (Reviewed(**{**small.__dict__, "fault": "no reason"}), large)))
    assert result.index("### `gold.small`") < result.index("### `gold.large`")
