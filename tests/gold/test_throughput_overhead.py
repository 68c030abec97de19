from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gold.comparison import Sides
from gold.throughput_overhead import TABLE, measure
from silver import throughput
from tests.support.baselines import PAIR
from tests.support.silver_rows import rows_of

if TYPE_CHECKING:
    import pyarrow as pa

S = 1_000_000_000
BLIND = {
    "model": "m",
    "world_size": 1,
    "found_world_size": None,
    "found_spans_count": 0,
    "gpu_evidence": "unobservable",
}
SEEN = {**BLIND, "found_spans_count": 9, "gpu_evidence": "measured"}


def log(*rows: dict[str, Any]) -> pa.Table:
    """A run's periods: epochs of one log of rank 0, numbered from 1, unless they say otherwise."""
    known = {
        "source_sha256": "log",
        "record": "csv",
        "period": "epoch",
        "numbered_by": "number",
        "evidence": "measured",
    }
    return rows_of(
        throughput.TABLE,
        [{"run_id": "r", "ordinal": at, "period_number": at + 1, **known, **row} for at, row in enumerate(rows)],
    )


def rates(*values: float, **fields: Any) -> pa.Table:
    return log(*({"samples_per_second": value, **fields} for value in values))


def compare(tee: pa.Table, baseline: pa.Table, *repeats: pa.Table, runs: Any = (BLIND, BLIND)) -> dict[str, Any]:
    """A pair, of which the baseline may have repeats."""
    logs = Sides([tee.to_pylist()], [table.to_pylist() for table in (baseline, *repeats)])
    (row,) = measure(PAIR, runs, logs).to_pylist()
    return dict(row)


def test_the_slowdown_is_that_of_all_work_over_all_time() -> None:
    row = compare(rates(80, 80, 40), rates(100, 100, 100))
    assert row["samples_per_second"] == pytest.approx(60), "three epochs of work take 1/80 + 1/80 + 1/40"
    assert row["baseline_samples_per_second"] == pytest.approx(100)
    assert row["slowdown_ratio"] == pytest.approx(100 / 60)
    assert row["throughput_loss_fraction"] == pytest.approx(0.4)
    assert (row["period"], row["compared_by"], row["periods_count"]) == ("epoch", "samples_per_second", 3)
    assert (row["verdict_class"], row["evidence"]) == ("inconclusive", "measured")
    assert row["reason"].startswith("fewer than 8 epochs have no interval; ")


def test_three_logs_per_side_conclude() -> None:
    ours = [rates(*(each for _ in range(3))).to_pylist() for each in (80.0, 81.0, 79.0)]
    theirs = [rates(*(each for _ in range(3))).to_pylist() for each in (100.0, 101.0, 99.0)]
    (row,) = measure(PAIR, (BLIND, BLIND), Sides(ours, theirs)).to_pylist()
    assert (row["verdict_class"], row["interval_over"]) == ("slower", "runs")
    assert row["verdict"] == "1.25x slower, 95 % 1.22 to 1.28, over 3 and 3 runs"


def test_rates_that_a_log_rounds_conclude_no_more_than_their_digits_do() -> None:
    """Rates of 12.4 and 12.6, of which the logs keep 12 and 13, but for a few."""
    sides = [
        [rates(*([each] * (40 - odd) + [other] * odd)).to_pylist() for odd in (1, 2, 3)]
        for each, other in ((12.0, 13.0), (13.0, 12.0))
    ]
    (row,) = measure(PAIR, (BLIND, BLIND), Sides(*sides)).to_pylist()
    assert (row["verdict_class"], row["interval_over"]) == ("not_shown", "runs")
    assert row["slowdown_low_ratio"] < 12.6 / 12.4 < row["slowdown_high_ratio"]
    assert (
        row["caveat"] == "its log rounds epochs, which differ by less than that: their mean may be 4.2 % more or less"
    )


def test_epochs_that_are_alike_have_a_wider_interval_than_those_that_are_not() -> None:
    drifting = [100 + (place // 10) for place in range(40)]
    shuffled = [drifting[(7 * place) % 40] for place in range(40)]
    widths = []
    for values in (drifting, shuffled):
        row = compare(rates(*values), rates(*values))
        assert row["interval_over"] == "within_run"
        widths.append(row["slowdown_high_ratio"] - row["slowdown_low_ratio"])
    assert widths[0] > 2 * widths[1]


def test_the_slowest_rank_is_the_jobs() -> None:
    tee = log(*({"samples_per_second": 50.0 if rank else 90.0, "rank": rank, "period_number": 1} for rank in (0, 1)))
    assert compare(tee, rates(100))["slowdown_ratio"] == pytest.approx(2.0)


def test_a_log_alone_says_what_it_cannot_show() -> None:
    said = ": where the time went, what crossed a boundary and whether it was sealed are unobservable"
    tee, baseline = rates(1, 1, 1), rates(1, 1, 1)
    assert compare(tee, baseline)["unobservable"] == f"neither has a profile{said}"
    assert compare(tee, baseline, runs=(BLIND, SEEN))["unobservable"] == f"the run has no profile{said}"
    assert compare(tee, baseline, runs=(SEEN, SEEN))["unobservable"] is None
    dark = {**SEEN, "gpu_evidence": "unobservable"}
    assert compare(tee, baseline, runs=(dark, SEEN))["unobservable"] == (
        "no GPU rows of the run: what the GPU did is unobservable"
    )


def test_warm_up_is_left_out() -> None:
    tee = log({"samples_per_second": 1.0, "is_warmup": True}, *({"samples_per_second": 50.0} for _ in range(3)))
    row = compare(tee, rates(100, 100, 100, 100))
    assert (row["periods_count"], row["slowdown_ratio"]) == (3, pytest.approx(2.0))


def test_durations_are_compared_where_no_rate_is_told_and_times_of_writing_last() -> None:
    result = [{"duration_ns": length * S, "duration_source": "interval"} for length in (3, 3)]
    since = [{"duration_ns": length * S, "duration_source": "difference"} for length in (2, 2)]
    row = compare(log(*result), log(*({**each, "duration_ns": 2 * S} for each in result)))
    assert (row["compared_by"], row["period_ns"], row["baseline_period_ns"]) == ("duration", 3 * S, 2 * S)
    assert (row["slowdown_ratio"], row["evidence"]) == (pytest.approx(1.5), "measured")
    row = compare(log(*since), log(*since))
    assert (row["compared_by"], row["slowdown_ratio"], row["evidence"]) == ("elapsed", pytest.approx(1), "modelled")
    assert row["caveat"] == "only times of writing are known: whatever else was done in between is part of it"
    assert compare(log(*result), log(*since))["reason"] == (
        "outside warm-up the two logs share no period of which both say the same"
    )


def test_a_log_written_every_few_steps_is_compared_step_by_step() -> None:
    def write(*counts: int) -> pa.Table:
        """A log of steps of three seconds, written after so many."""
        known = {"period": "step", "duration_source": "difference"}
        return log(*({**known, "stands_for_count": count, "duration_ns": 3 * S * count} for count in counts))

    row = compare(write(10, 10), write(20, 20, 5))
    assert (row["compared_by"], row["slowdown_ratio"]) == ("elapsed", pytest.approx(1))
    assert (row["period_ns"], row["baseline_period_ns"]) == (3 * S, 3 * S)


def test_a_mean_step_is_that_of_all_steps_however_many_a_record_stands_for() -> None:
    known = {"period": "step", "duration_source": "difference"}
    tee = log(
        *({**known, "stands_for_count": count, "duration_ns": length * S} for count, length in ((1, 2), (10, 30)))
    )
    assert compare(tee, tee)["period_ns"] == 32 * S // 11


def test_durations_that_are_inferred_make_a_model() -> None:
    told, read = (
        log(*({"duration_ns": S, "duration_source": source} for _ in range(2))) for source in ("stated", "inferred")
    )
    row = compare(read, told)
    assert (row["compared_by"], row["slowdown_ratio"], row["evidence"]) == ("duration", pytest.approx(1), "modelled")
    assert "inferred from how they vary" in row["caveat"]
    row = compare(told, told)
    assert (row["evidence"], row["caveat"]) == ("measured", None)


def test_what_was_logged_otherwise_is_told() -> None:
    row = compare(rates(8, 8, batch_size=64), rates(9, 9, batch_size=1024))
    assert row["caveat"] == "the logs differ in batch size: 64 against 1024"
    twice = log(*({"samples_per_second": 9.0, "source_sha256": name} for name in ("a", "b", "b")))
    row = compare(twice, rates(9, 9, 9))
    assert (row["caveat"], row["periods_count"]) == ("the run has several logs of one rank: the longest was taken", 2)


@pytest.mark.parametrize(
    ("tee", "baseline", "reason"),
    [
        (log(), rates(1), "the run has no training log"),
        (rates(1), log(), "its baseline has no training log"),
        (rates(1), rates(1, period="step"), "the run logged epochs, its baseline steps"),
    ],
)
def test_where_nothing_can_be_compared_there_is_no_number_and_a_reason(
    tee: pa.Table, baseline: pa.Table, reason: str
) -> None:
    row = compare(tee, baseline)
    assert (row["slowdown_ratio"], row["verdict_class"], row["reason"]) == (None, "inconclusive", reason)
    assert (row["verdict"], row["evidence"]) == (f"no answer: {reason}", "unobservable")


def test_a_pair_without_any_log_has_no_row() -> None:
    assert measure(PAIR, (SEEN, SEEN), Sides([[]], [[]])).num_rows == 0


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=20), st.integers(1, 100))
def test_a_log_against_itself_scaled_is_that_much_slower(values: list[float], factor: int) -> None:
    row = compare(rates(*values), rates(*(value * factor for value in values)))
    assert row["slowdown_ratio"] == pytest.approx(factor)
    assert TABLE.arrow_schema.names == list(row)
