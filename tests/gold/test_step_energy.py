from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import step_energy
from lake.engines import engine as lake_engine
from tests.support.campaigns import pick_size
from tests.support.gold_rows import measure_rows
from tests.support.silver_rows import RUN

if TYPE_CHECKING:
    import polars as pl

    from lake.store import Lake
    from tests.support.silver_rows import Bench

S = 1_000_000_000
NOON = 1_700_000_000 * S
FEW = "fewer than 3 readings lie within it: its energy is that of the line between those around"
Rows = list[dict[str, Any]]


def power(*points: tuple[float, float], **fields: Any) -> Rows:
    """Readings of watts at seconds."""
    known = {
        "tool": "dcgm",
        "quantity": "power",
        "unit": "W",
        "device_id": 0,
        "ts_source": "stated",
        "source_sha256": "d",
    }
    known["evidence"] = "measured"
    return [
        {**known, "ordinal": at, "ts_ns": NOON + round(second * S), "value_number": watts, **fields}
        for at, (second, watts) in enumerate(points)
    ]


def counter(*points: tuple[float, float], **fields: Any) -> Rows:
    """Readings of joules at seconds."""
    return power(*points, **{"quantity": "energy", "unit": "J", "source_sha256": "e", **fields})


def step(begin_s: float, end_s: float, number: int = 0, **fields: Any) -> dict[str, Any]:
    known = {"step_source": "profiler_step", "evidence": "measured", "step_ordinal": number}
    times = {"ts_ns": NOON + round(begin_s * S), "duration_ns": round((end_s - begin_s) * S)}
    return {"rank": 0, "step_number": number, **times, **known, **fields}


def epoch(begin_s: float, end_s: float, number: int = 1, **fields: Any) -> dict[str, Any]:
    known = {"source_sha256": "log", "record": "csv", "period": "epoch", "numbered_by": "number"}
    times = {"ts_ns": NOON + round(begin_s * S), "duration_ns": round((end_s - begin_s) * S)}
    return {"ordinal": number, "period_number": number, "evidence": "measured", **times, **known, **fields}


def energies(bench: Bench, samples: Rows, *steps: dict[str, Any], logged: Rows | None = None) -> pl.DataFrame:
    return measure_rows(bench, step_energy, device_samples=samples, steps=list(steps), throughput=logged or [])


def test_a_gpu_that_its_tool_numbers_below_zero_is_measured_and_stored_as_any(lake: Lake) -> None:
    rows = energies(lake_engine("polars"), power((0, 100), (9, 100), device_id=-1), step(1, 8))
    assert rows["device_id"].to_list() == [-1]
    assert (
        lake.replace(step_energy.TABLE, RUN, rows.to_arrow().cast(step_energy.TABLE.arrow_schema), "0" * 64).rows == 1
    )


def test_the_energy_of_a_long_step_is_the_area_under_its_readings(engine: Bench) -> None:
    samples = power((0, 100), (1, 200), (2, 200), (3, 100), (4, 100))
    rows = energies(engine, samples, step(0.5, 3.5))
    columns = ("energy_j", "mean_power_w", "samples_count", "sampling_ns", "energy_source", "evidence", "reason")
    ((joules, watts, *others),) = rows.select(columns).rows()
    assert joules == pytest.approx(87.5 + 200 + 150 + 50, rel=1e-9)
    assert watts == pytest.approx(joules / 3, rel=1e-9)
    assert others == [3, S, "power", "measured", None]


def test_a_step_between_two_readings_is_a_model_and_says_so(engine: Bench) -> None:
    rows = energies(engine, power((0, 100), (1, 200)), step(0.2, 0.4), step(0.4, 0.6, 1))
    columns = ("energy_j", "samples_count", "evidence", "reason")
    assert rows["energy_j"].to_list() == [pytest.approx(0.2 * 130), pytest.approx(0.2 * 150)]
    assert rows.select(columns[1:]).rows() == [(0, "modelled", FEW), (0, "modelled", FEW)]


def test_beyond_the_readings_and_over_a_long_gap_nothing_is_known(engine: Bench) -> None:
    samples = power((0, 100), (1, 100), (2, 100), (9, 100), (10, 100))
    steps = (step(-1, 1.5), step(3, 4, 1), step(1.5, 9.5, 2), step(9.5, 11, 3), step(0, 2, 4), step(9, 10, 5))
    rows = energies(engine, samples, *steps)
    outside, gap = "it does not lie between two readings", "readings are missing, or the device's count began again"
    assert rows["energy_j"].to_list() == [None, None, None, None, pytest.approx(200), pytest.approx(100)]
    assert rows["reason"].to_list() == [outside, gap, gap, outside, FEW, FEW]
    assert rows["evidence"].to_list() == ["unobservable"] * 4 + ["modelled"] * 2
    assert rows["energy_source"].to_list() == [None] * 4 + ["power"] * 2


def test_a_counter_is_believed_before_power_unless_it_began_again(engine: Bench) -> None:
    counts = counter((0, 1000), (1, 1100), (2, 1200), (3, 5), (4, 105))
    rows = energies(engine, [*power((0, 7), (4, 7)), *counts], step(0.5, 1.5), step(1.5, 3.5, 1))
    assert rows.select("energy_j", "energy_source").rows() == [(pytest.approx(100), "counter"), (None, None)]
    single = energies(engine, [*power((0, 7), (4, 7)), *counter((0, 1000))], step(1, 2))
    assert single.select("energy_j", "energy_source").rows() == [(pytest.approx(7), "power")]


def test_each_device_has_its_row_and_ranks_that_share_one_see_the_same_energy(engine: Bench) -> None:
    samples = [*power((0, 100), (9, 100)), *power((0, 300), (9, 300), device_id=3, source_sha256="f")]
    rows = energies(engine, samples, step(1, 2), step(1, 2, rank=1))
    assert rows.select("rank", "device_id", "energy_j").rows() == [
        (0, 0, pytest.approx(100)),
        (0, 3, pytest.approx(300)),
        (1, 0, pytest.approx(100)),
        (1, 3, pytest.approx(300)),
    ]


def test_an_inferred_zone_makes_a_model_and_an_unknown_one_nothing(engine: Bench) -> None:
    five = [(second, 100) for second in range(5)]
    inferred = energies(engine, power(*five, ts_source="inferred"), step(0, 4))
    assert inferred.select("evidence", "reason").rows() == [("modelled", "the zone of the readings' clock is inferred")]
    zoneless = energies(engine, power(*five, ts_ns=None), step(0, 4))
    why = "no two of the device's readings have a number and a time in UTC"
    assert zoneless.select("energy_j", "evidence", "reason").rows() == [(None, "unobservable", why)]


def test_readings_that_do_not_say_their_gpu_are_not_added_up(engine: Bench) -> None:
    samples = [*power((0, 100), (9, 100), device_id=None), *power((0, 200), (9, 200), device_id=None)]
    for place, row in enumerate(samples):
        row["ordinal"] = place
    rows = energies(engine, samples, step(1, 2))
    why = "readings of one moment differ and do not say of which GPU they are"
    assert rows.select("device_id", "energy_j", "reason").rows() == [(0, None, why)]


def test_epochs_of_the_longest_log_stand_beside_steps_and_what_was_not_sampled_has_no_row(engine: Bench) -> None:
    samples = power(*((second, 100) for second in range(9)))
    logs = [epoch(0, 4), epoch(4, 8, 2), epoch(1, 2, source_sha256="other"), epoch(0, 4, 3, ts_ns=None)]
    logs[1]["stands_for_count"] = 10
    rows = energies(engine, samples, step(1, 2), logged=logs)
    assert rows.select("timed_by", "period", "step_number", "energy_j", "stands_for_count", "evidence").rows() == [
        ("log", "epoch", 1, pytest.approx(400), 1, "measured"),
        ("log", "epoch", 2, pytest.approx(400), 10, "measured"),
        ("profile", "step", 0, pytest.approx(100), 1, "modelled"),
    ]
    assert energies(engine, [], step(1, 2)).is_empty()


def test_absurd_readings_break_nothing(engine: Bench) -> None:
    samples = power((0, 1e300), (1, -5), (2, 100), (3, 100), (4, 100))
    samples += power((0, 1), ts_ns=(1 << 63) - 1, ordinal=9) + power((0, 1), ts_ns=-(1 << 63), ordinal=10)
    rows = energies(engine, samples, step(2, 3), step(0, 1, 1), step(3, 4, 2, duration_ns=(1 << 63) - 1))
    assert rows["energy_j"].to_list() == [pytest.approx(100), None]


ENOUGH = ("samples_count", "sampling_ns", "sensor_period_ns", "has_enough_readings")


def test_a_sensor_that_is_asked_often_has_a_new_value_only_now_and_then(engine: Bench) -> None:
    # Asked every 10 ms, it changes every 100 ms.
    samples = power(*((place / 100, 100.0 + place // 10) for place in range(200)))
    found = energies(engine, samples, step(0.5, 1.005), step(0.5, 0.995, 1))
    assert found.select(ENOUGH).rows() == [(50, 10_000_000, 100_000_000, True), (49, 10_000_000, 100_000_000, False)]


def test_a_verdict_needs_ten_readings_within(engine: Bench) -> None:
    samples = counter(*((float(second), second * 100.0) for second in range(40)))
    found = energies(engine, samples, step(0.5, 10.5), step(0.5, 9.5, 1))
    assert found.select(ENOUGH).rows() == [(10, S, S, True), (9, S, S, False)]


def test_readings_that_never_change_tell_no_period_and_carry_no_verdict(engine: Bench) -> None:
    found = energies(engine, power(*((float(second), 70.0) for second in range(40))), step(0.5, 20.5))
    assert found.select(ENOUGH).rows() == [(20, S, None, False)]


@settings(max_examples=pick_size(30, 300))
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1000)), min_size=2, max_size=8),
    st.lists(st.integers(0, 1000), min_size=2, max_size=6, unique=True),
)
def test_energies_of_steps_that_follow_each_other_add_up_to_that_of_their_whole(
    gaps: list[tuple[int, int]], cuts: list[int]
) -> None:
    second, points = 0, []
    for gap, watts in gaps:
        points.append((second, watts))
        second += gap
    end = points[-1][0]
    edges = [cut * end / 1000 for cut in sorted(cuts)]
    parts = [step(low, high, at) for at, (low, high) in enumerate(pairwise(edges))]
    rows = energies(lake_engine("polars"), power(*points), *parts, step(edges[0], edges[-1], 99))
    if "unobservable" not in rows["evidence"]:
        *found, whole = rows["energy_j"].to_list()
        assert sum(found) == pytest.approx(whole, rel=1e-6, abs=1e-3)
        assert 0 <= whole <= max(watts for _, watts in points) * (edges[-1] - edges[0]) + 1e-3
