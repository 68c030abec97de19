from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.silver_rows import make_log_record, reading, run

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver

SMI, DCGM = "nvidia_smi", "dcgm"
S = 1_000_000_000
HOUR = 3600 * S
NOON = 1_700_000_000 * S
ZONELESS = "its clock names no zone (clock_zone in run.toml says it)"


def watts(wall_ns: int, **fields: Any) -> Row:
    """A reading by a clock without a zone."""
    return reading("power.draw", "300", SMI, unit="W", value_number=300.0, wall_ns=wall_ns, **fields)


def make_step(begin_ns: int, end_ns: int) -> Row:
    """A step of the run's own log, in UTC."""
    return make_log_record(step_number=0, began_ns=begin_ns, duration_ns=end_ns - begin_ns)


@pytest.mark.given(
    reading("power.draw", "310.5", SMI, unit="W", value_number=310.5, wall_ns=5),
    reading("power.draw", "310500", SMI, unit="mW", value_number=310_500.0, wall_ns=5),
    reading("utilization.gpu", "40", SMI, unit="%", value_number=40.0, wall_ns=5),
    reading("DCGM_FI_DEV_FB_USED", "2", DCGM, value_number=2.0, ts_ns=9),
    reading("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "5000", DCGM, value_number=5000.0),
)
def test_readings_come_into_one_unit_and_a_clock_without_a_zone_is_not_taken_for_utc(found: Silver) -> None:
    zone = f"{ZONELESS}, and nothing else of the run has a time"
    rows = found.rows("device_samples", "quantity", "unit", "value_number", "ts_ns", "reason")
    assert rows == [
        ("power", "W", 310.5, None, zone),
        ("power", "W", 310.5, None, zone),
        ("gpu_utilization", "1", 0.4, None, zone),
        ("memory_used", "B", 2_097_152.0, 9, None),
        ("energy", "J", 5.0, None, "the tool says no time"),
    ]


@pytest.mark.given(
    *(
        reading(metric, "525", SMI, unit=unit, value_number=525.0, wall_ns=5)
        for metric, unit in (("pwr", "W"), ("sm", "%"), ("fb", "MB"), ("pclk", "MHz"), ("gtemp", "C"), ("mem", "%"))
    )
)
def test_what_dmon_prints_are_the_same_quantities_under_shorter_names(found: Silver) -> None:
    assert found.rows("device_samples", "quantity", "unit", "value_number") == [
        ("power", "W", 525.0),
        ("gpu_utilization", "1", 5.25),
        ("memory_used", "B", 525.0 * (1 << 20)),
        ("sm_clock", "Hz", 525e6),
        ("gpu_temperature", "C", 525.0),
    ]


@pytest.mark.given(
    reading("power.draw", "[N/A]", SMI, unit="W", ts_ns=9, missing_reason="nvidia-smi prints [N/A]"),
    reading("power.draw", "1", SMI, unit="horses", value_number=1.0, ts_ns=9),
    reading("fan.speed", "1", SMI, unit="%", value_number=1.0, ts_ns=9),
    reading("DCGM_FI_DEV_POWER_USAGE", "nan", DCGM, value_number=float("nan"), ts_ns=9),
)
def test_what_has_no_number_is_unobservable_and_what_is_not_known_stays_in_bronze(found: Silver) -> None:
    assert found.rows("device_samples", "ordinal", "value_number", "evidence", "reason") == [
        (0, None, "unobservable", "nvidia-smi prints [N/A]"),
        (3, None, "unobservable", "the tool gave no number"),
    ]


@pytest.mark.parametrize(
    "hours",
    [
        pytest.param(
            hours,
            marks=pytest.mark.given(
                make_step(NOON, NOON + 60 * S),
                *(watts(NOON + int(hours * HOUR) + at * S) for at in (-20, 30, 100)),
            ),
        )
        for hours in (0, 2, -7.5, 5.75, 14, -12)
    ],
)
def test_the_only_zone_that_brings_readings_to_the_time_of_the_run_is_theirs(found: Silver, hours: float) -> None:
    times = [NOON + at * S for at in (-20, 30, 100)]
    rows = found.rows("device_samples", "ts_ns", "ts_source", "reason")
    assert rows == [(at, "inferred", None) for at in times], hours


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            "hours of readings",
            marks=pytest.mark.given(make_step(NOON, NOON + 60 * S), watts(NOON - HOUR), watts(NOON + HOUR)),
        ),
        pytest.param(
            "another day",
            marks=pytest.mark.given(
                make_step(NOON, NOON + 60 * S), watts(NOON + 24 * HOUR), watts(NOON + 24 * HOUR + 60 * S)
            ),
        ),
        pytest.param(
            "beyond all zones",
            marks=pytest.mark.given(
                make_step(NOON, NOON + 60 * S), watts(NOON + 15 * HOUR), watts(NOON + 15 * HOUR + 60 * S)
            ),
        ),
        pytest.param(
            "off by minutes",
            marks=pytest.mark.given(make_step(NOON, NOON + 60 * S), watts(NOON + 400 * S), watts(NOON + 460 * S)),
        ),
    ],
)
def test_where_not_exactly_one_zone_fits_none_is_taken(found: Silver, case: str) -> None:
    rows = set(found.rows("device_samples", "ts_ns", "ts_source", "reason"))
    assert rows == {(None, None, f"{ZONELESS}, and not exactly one fits the run")}, case


@pytest.mark.given(
    run(clock_zone="-05:30"),
    make_step(NOON, NOON + 60 * S),
    watts(NOON - int(5.5 * HOUR)),
    reading("DCGM_FI_DEV_POWER_USAGE", "1", DCGM, value_number=1.0, ts_ns=9),
)
def test_a_claimed_zone_is_taken_and_a_told_time_stays(found: Silver) -> None:
    assert found.rows("device_samples", "ts_ns", "ts_source", "reason") == [
        (NOON, "claimed", None),
        (9, "stated", None),
    ]


@pytest.mark.given(run(clock_zone="UTC"), make_step(NOON, NOON + 60 * S), watts(NOON + HOUR), watts(NOON + 2 * HOUR))
def test_a_claimed_zone_that_misses_the_run_is_said_to(found: Silver) -> None:
    said = "in the claimed zone no reading of its file lies within the run"
    assert found.rows("device_samples", "ts_source", "reason") == [("claimed", said), ("claimed", said)]
