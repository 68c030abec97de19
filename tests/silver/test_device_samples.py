from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.silver.rows import reading

if TYPE_CHECKING:
    from tests.silver.rows import Silver

SMI, DCGM = "nvidia_smi", "dcgm"


@pytest.mark.given(
    reading("power.draw", "310.5", SMI, unit="W", value_number=310.5, wall_ns=5),
    reading("power.draw", "310500", SMI, unit="mW", value_number=310_500.0, wall_ns=5),
    reading("utilization.gpu", "40", SMI, unit="%", value_number=40.0, wall_ns=5),
    reading("DCGM_FI_DEV_FB_USED", "2", DCGM, value_number=2.0, ts_ns=9),
    reading("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "5000", DCGM, value_number=5000.0),
)
def test_readings_come_into_one_unit_and_a_clock_without_a_zone_is_not_utc(found: Silver) -> None:
    zone = "its clock names no zone, so it cannot be joined to a step"
    rows = found.rows("device_samples", "quantity", "unit", "value_number", "ts_ns", "reason")
    assert rows == [
        ("power", "W", 310.5, None, zone),
        ("power", "W", 310.5, None, zone),
        ("gpu_utilization", "1", 0.4, None, zone),
        ("memory_used", "B", 2_097_152.0, 9, None),
        ("energy", "J", 5.0, None, "the tool says no time"),
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
