"""What a training log says of its steps beside how long they took."""

from __future__ import annotations

from typing import Any

import pytest

from gold.logged_steps import observe_log, read_log
from lake.engines import PolarsEngine
from silver.throughput import TABLE
from tests.support.silver_rows import rows_of

MS = 1_000_000
NOON = 1_763_553_600_000_000_000


def list_caveats(apart_ms: int, *durations_ms: int, **fields: Any) -> tuple[str, ...]:
    """Of a log that is written so often."""
    known = {
        "run_id": "r",
        "rank": 0,
        "source_sha256": "log",
        "record": "csv",
        "period": "step",
        "evidence": "measured",
    }
    known |= {"numbered_by": "number", "duration_source": "stated", "stands_for_count": 1}
    logged = [
        {
            **known,
            "ordinal": at,
            "period_number": at,
            "duration_ns": length * MS,
            "ts_ns": NOON + (at * apart_ms - length) * MS,
            **fields,
        }
        for at, length in enumerate(durations_ms)
    ]
    engine = PolarsEngine()
    found = read_log(engine.rows(observe_log(engine.wrap(rows_of(TABLE, logged)))), None, is_tied=False)
    assert found is not None
    return found.caveats


def test_steps_that_would_have_to_overlap_raise_the_question_of_their_unit() -> None:
    (said,) = list_caveats(100, *[99_000, 101_000] * 10)
    assert said.startswith("its steps take 1,000.5 times as long together as the time in which they were written: ")
    assert said.endswith("is the unit of their times right?")


@pytest.mark.parametrize("apart_ms", [100, 1000])
def test_steps_of_which_all_or_some_are_logged_do_not(apart_ms: int) -> None:
    assert list_caveats(apart_ms, *[99, 101] * 10) == ()


def test_steps_without_a_time_of_day_and_a_single_one_do_not() -> None:
    assert list_caveats(100, *[99_000, 101_000] * 10, ts_ns=None) == ()
    assert list_caveats(100, 99_000) == ()
