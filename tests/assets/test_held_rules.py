from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
import pyarrow as pa
import pytest

from assets.checks.backends import count_violations
from assets.checks.held_rules import are_held
from assets.checks.rules import Must, list_rules
from lake.tables import RUN_ID, Table, boolean, float64, int32, int64, text

if TYPE_CHECKING:
    from assets.checks.rules import Rule

TABLE = Table(
    "silver",
    "readings",
    "One row per reading.",
    ("ordinal", "is_gpu"),
    (
        RUN_ID,
        int64("ordinal", "Place.", minimum=0),
        boolean("is_gpu", "Where."),
        int32("rank", "Which.", nullable=True, minimum=0, maximum=7),
        text("source_sha256", "Digest.", nullable=True),
        text("outcome", "What became of it.", nullable=True, one_of=("kept", "lost")),
        float64("share_fraction", "Share.", nullable=True, minimum=0, maximum=1),
        float64("power_w", "Power.", nullable=True),
        text("host", "Where.", nullable=True, sensitive=True),
    ),
)
TOKEN = "sealed:1:k0000000:abc"
DIGEST = "0" * 64
NAN, INF = float("nan"), float("inf")
HELD: dict[str, list[Any]] = {
    "run_id": ["a", "a", "a.b"],
    "ordinal": [0, 0, 0],
    "is_gpu": [True, False, True],
    "rank": [0, None, 7],
    "source_sha256": [DIGEST, None, "f" * 64],
    "outcome": ["kept", None, "lost"],
    "share_fraction": [-0.0, None, 1.0],
    "power_w": [0.0, None, -1e300],
    "host": [TOKEN, None, TOKEN],
}
# Values of the first row; those of a rule that is violated, and those that only look as if.
VALUES: dict[str, list[Any]] = {
    "run_id": [None, "", "-a", "a b", "a\n", "ä", "a" * 129, "a" * 128, "null"],
    "ordinal": [None, -1, 2**62],
    "is_gpu": [None, False],
    "rank": [None, -1, 8],
    "source_sha256": [None, "", f"{DIGEST}\n", f"{DIGEST}0", f"{'0' * 63}A", f"{'0' * 63}\u0660", f"x\n{DIGEST}"],
    "outcome": [None, "", "KEPT", "kept ", "kept\0", "dropped"],
    "share_fraction": [None, 1.5, -0.5, NAN, INF, -INF, 5e-324, 1 + 2**-52],
    "power_w": [None, NAN, INF, -INF, 1e308],
    "host": [
        None,
        "",
        f"{TOKEN}\n",
        f"\n{TOKEN}",
        f" {TOKEN}",
        TOKEN.upper(),
        f"{TOKEN}é",
        "sealed:1:k0000000:",
        "Ada",
    ],
}


def make_rows(**changes: list[Any]) -> pa.Table:
    anything = TABLE.nullable_schema
    return pa.table({**HELD, **changes}, schema=anything)


def find_violated(rows: pa.Table) -> dict[str, int]:
    counts = count_violations(nw.from_native(pl.DataFrame(rows).lazy()), list_rules(TABLE))
    return {name: count for name, count in counts.violations.items() if count}


def find_doubted(rows: pa.Table) -> set[str]:
    return {rule.name for rule in list_rules(TABLE) if not are_held(rows, [rule])}


def test_rows_that_violate_nothing_need_no_count() -> None:
    assert find_violated(make_rows()) == {}
    assert are_held(make_rows(), list_rules(TABLE))
    assert are_held(make_rows().slice(0, 0), list_rules(TABLE))
    assert are_held(make_rows().slice(1, 1), list_rules(TABLE))


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in VALUES.items() for value in values])
def test_no_rule_that_a_row_violates_is_taken_as_held_and_no_other_is_counted(name: str, value: Any) -> None:
    for rows in (make_rows(**{name: [value, *HELD[name][1:]]}), make_rows(**{name: [value] * 3})):
        assert find_doubted(rows) >= find_violated(rows).keys()
        # What is no number breaks no range, but where there is nothing else, that takes a count.
        assert find_doubted(rows) - find_violated(rows).keys() <= {"share_fraction_is_in_its_range"}


def test_the_values_violate_every_rule() -> None:
    found = set[str]()
    for name, values in VALUES.items():
        for value in values:
            found |= find_violated(make_rows(**{name: [value, *HELD[name][1:]]})).keys()
    on_rows = [rule for rule in list_rules(TABLE) if rule.must is not Must.BE_DECLARED]
    assert found == {rule.name for rule in on_rows}
    assert {rule.must for rule in on_rows} == set(Must) - {Must.BE_DECLARED}


@pytest.mark.parametrize("chunks", [[1, 2], [2, 1], [1, 1, 1]])
def test_rows_of_several_files_are_looked_at_together(chunks: list[int]) -> None:
    rows = make_rows(is_gpu=[True, True, True], run_id=["a", "b", "a"])
    starts = [sum(chunks[:place]) for place in range(len(chunks))]
    several = pa.concat_tables([rows.slice(start, size) for start, size in zip(starts, chunks, strict=True)])
    assert find_violated(several) == {"key_is_unique": 2}
    assert find_doubted(several) == {"key_is_unique"}


def test_floating_keys_are_left_to_the_engine() -> None:
    rule: Rule = list_rules(Table("silver", "powers", "One.", ("power_w",), (RUN_ID, float64("power_w", "Power."))))[1]
    assert rule.must is Must.BE_UNIQUE
    assert not are_held(pa.table({"run_id": ["a", "a"], "power_w": [0.0, -0.0]}), [rule])
