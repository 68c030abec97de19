from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.change_points import NOISES, draw_nights, make_history
from gold.history import NOTHING_CHANGED, TABLE, RecordedRun, describe_workload, measure, partition
from gold.run_differences import SOFTWARE
from silver.ring_settings import OPTIONS
from silver.runs import TABLE as RUNS

NIGHTS = 12


def step(step_ns: int | None, source: str = "log", evidence: str = "measured", period: str = "step") -> dict[str, Any]:
    known = {"source": source, "period": period, "step_ns": step_ns, "evidence": evidence}
    return {**known, "rounding_fraction": None}


def record(run_id: str, recorded_at: str | None, *steps: dict[str, Any], **fields: Any) -> RecordedRun:
    empty = dict.fromkeys(RUNS.column_names)
    return RecordedRun({**empty, "run_id": run_id, "recorded_at": recorded_at, **fields}, steps)


def make_rows(*recorded: RecordedRun) -> list[dict[str, Any]]:
    rows = measure("model=m", "cc_off", recorded)
    assert rows.schema == TABLE.arrow_schema
    return [dict(row) for row in rows.to_pylist()]


def draw(shift: float, versions: list[str]) -> list[dict[str, Any]]:
    return make_history(draw_nights(np.random.default_rng(7), NOISES[0], NIGHTS, shift), versions)


def test_a_change_point_names_the_driver_that_changed_with_it() -> None:
    rows = draw(0.2, ["570"] * 6 + ["575"] * 6)
    (found,) = [row for row in rows if row["is_change_point"]]
    assert (found["run_id"], found["session_number"]) == ("night006-0", 7)
    assert found["changed"] == "driver_version 570 to 575"
    assert found["change_low_ratio"] < found["change_ratio"] < found["change_high_ratio"]
    assert found["change_ratio"] == pytest.approx(np.exp(0.2), rel=0.02)
    assert found["verdict"].startswith("slower from here: 1.2")
    assert found["verdict"].endswith("over 6 and 6 days; driver_version 570 to 575")
    assert {row["verdict"] for row in rows if row is not found} == {"no change point"}


def test_the_interval_of_a_change_holds_what_the_rounding_of_logs_leaves_open() -> None:
    """Days of 12 and then of 13 ms, by logs in whole milliseconds."""
    steps = [12.0 + place % 3 / 100 + (place >= NIGHTS // 2) for place in range(NIGHTS)]
    recorded = [
        record(f"r{place:02}", f"2026-10-{place + 1:02}", {**step(round(ms * 1e6)), "rounding_fraction": 0.5 / ms})
        for place, ms in enumerate(steps)
    ]
    (found,) = [row for row in make_rows(*recorded) if row["is_change_point"]]
    assert found["change_low_ratio"] < 1.005
    assert found["change_high_ratio"] > 1.16


def test_a_change_without_a_recorded_cause_says_so_and_what_changed_nearby() -> None:
    assert [row["changed"] for row in draw(-0.2, ["570"] * NIGHTS) if row["is_change_point"]] == [NOTHING_CHANGED]
    (near,) = [row["changed"] for row in draw(-0.2, ["570"] * 7 + ["575"] * 5) if row["is_change_point"]]
    assert near == f"{NOTHING_CHANGED}; one day of recordings later, driver_version 570 to 575"


def test_a_driver_that_changes_nothing_is_no_change_point() -> None:
    assert not any(row["is_change_point"] for row in draw(0.0, ["570"] * 6 + ["575"] * 6))


def test_ten_runs_of_one_day_conclude_nothing() -> None:
    slow = [
        record(f"r{place}", f"2026-11-16T{place:02}:00:00+00:00", step(100 + 100 * (place > 4))) for place in range(10)
    ]
    rows = make_rows(*slow)
    assert {row["verdict"] for row in rows} == {"nothing concluded: 1 day of recordings, and a change shows from 8 on"}
    assert {row["session_number"] for row in rows} == {1}


def test_runs_are_in_the_order_of_recording_in_utc() -> None:
    rows = make_rows(
        record("late", "2026-11-16T23:30:00-02:00", step(3)),
        record("b", "2026-11-16T10:00:00", step(2)),
        record("unsaid", None, step(9)),
        record("a", "2026-11-16T13:00:00+05:00", step(1)),
        record("odd", "yesterday", step(9)),
    )
    assert [(row["run_id"], row["session_number"]) for row in rows] == [
        ("a", 1),
        ("b", 1),
        ("late", 2),
        ("odd", None),
        ("unsaid", None),
    ]
    assert rows[3]["reason"] == "its manifest does not say when it was recorded (recorded_at)"


def test_one_history_goes_by_one_source_and_by_measured_steps() -> None:
    rows = make_rows(
        record("both", "2026-11-16", step(100), step(130, "trace")),
        record("log", "2026-11-17", step(101)),
        record("traced", "2026-11-18", step(131, "trace")),
        record("epochs", "2026-11-19", step(10**9, "log", period="epoch")),
        record("inferred", "2026-11-20", step(99, evidence="modelled")),
        record("none", "2026-11-21"),
    )
    assert {row["source"] for row in rows} == {"log"}
    found = [(row["run_id"], row["step_ns"], row["evidence"], row["reason"]) for row in rows]
    missing = "it has no step time by its log, which this history goes by"
    assert found == [
        ("both", 100, "measured", None),
        ("log", 101, "measured", None),
        ("traced", None, "unobservable", missing),
        ("epochs", None, "unobservable", missing),
        ("inferred", 99, "modelled", "the bounds of its steps were inferred"),
        ("none", None, "unobservable", missing),
    ]
    (alone,) = make_rows(record("none", "2026-11-21"))
    assert (alone["source"], alone["reason"]) == (None, "it has no step time")


def test_firmware_and_overhead_are_shown_where_they_are_known() -> None:
    sides = {"baseline_run_id": "off", "regime": "hopper_ppcie", "baseline_regime": "cc_off"}
    overhead = {**sides, "overhead_ns": 7, "slowdown_ratio": 1.07}
    known = record("tee", "2026-11-16", step(107))
    (row,) = make_rows(RecordedRun(known.run, known.steps, overhead, "96.00.5E"))
    assert (row["vbios_version"], row["baseline_run_id"], row["overhead_ns"]) == ("96.00.5E", "off", 7)


def test_a_change_of_firmware_is_named() -> None:
    rows = []
    for night in range(NIGHTS):
        level = 100 + night % 3 + 40 * (night >= 6)
        known = record(f"r{night:02}", f"2026-11-{night + 1:02}", step(level))
        rows.append(RecordedRun(known.run, known.steps, None, "96.01" if night >= 6 else "96.00"))
    assert [row["changed"] for row in make_rows(*rows) if row["is_change_point"]] == ["vbios_version 96.00 to 96.01"]


def test_versions_of_software_may_change_within_a_workload_and_nothing_else() -> None:
    parts = dict.fromkeys(("model", "gpu", *SOFTWARE, "world_size"), "1")

    def describe(**changed: str) -> str | None:
        text = "|".join(f"{name}={value}" for name, value in (parts | changed).items() if name not in OPTIONS)
        chains = changed.get("ring_chains", "1")
        return describe_workload({"workload": text, "family": f"model=1|ring_chains={chains}"})

    same = describe()
    assert same == "model=1|gpu=1|world_size=1|ring_chains=1|ring_pipelined=|ring_direct=|ring_transport="
    assert {describe(**{name: "2"}) for name in SOFTWARE} == {same}
    for name in ("model", "gpu", "world_size", "ring_chains"):
        assert describe(**{name: "2"}) != same
    assert describe_workload({"workload": None, "family": None}) is None
    assert partition("w", "cc_off") != partition("w", "hopper_ppcie"), "results are never averaged over regimes"


@pytest.mark.parametrize("count", [1, 7, 8])
def test_few_days_say_how_many_are_needed(count: int) -> None:
    rows = make_rows(*(record(f"r{day}", f"2026-11-{day:02}", step(100 + day)) for day in range(1, count + 1)))
    is_told = rows[0]["verdict"].startswith("nothing concluded")
    assert is_told == (count < 8)
