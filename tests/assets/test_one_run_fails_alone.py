"""An exception that nobody foresaw is the fault of its run: it is explained, and the neighbours go on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
import duckdb
import pytest

from assets.build import comparisons
from assets.build.context import BuildContext
from assets.build.silver import SilverBuild
from assets.build.tiers import build_tier
from assets.launch_checks import LaunchChecks, check_specs
from bronze import read_file as reading
from bronze import runs
from bronze.limits import Limits
from gold import step_overhead
from lake.engines import engine
from lake.errors import OutOfMemory, UnexpectedFault
from tests.support.small_runs import OFF, TEE, trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from bronze.file_report import FileReport
    from lake.landing_zone import LandingZone
    from lake.staging import Stage
    from lake.store import Lake
    from tests.conftest import LandFiles

POLARS = partial(engine, "polars")


@pytest.fixture
def place(lake: Lake, zone: LandingZone, land_files: LandFiles) -> BuildContext:
    """A landing zone with two runs, one of which is `ill` as soon as a test makes it so."""
    land_files.write({"rank0.json": trace(100)}, "good", OFF)
    land_files.write({"ill.json": trace(120)}, "ill", TEE)
    return BuildContext(lake, zone, Limits())


@pytest.fixture
def raise_while_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes the reader of `ill.json` raise."""

    def arrange(error: BaseException) -> None:
        def read_file(report: FileReport, *rest: Any) -> None:
            if report.name == "ill.json":
                raise error
            reading.read_file(report, *rest)

        monkeypatch.setattr("bronze.land.read_file", read_file)

    return arrange


def test_a_reader_that_raises_fails_its_run_and_says_where(
    place: BuildContext, raise_while_reading: Callable[[BaseException], None]
) -> None:
    raise_while_reading(OverflowError("date value out of range\nand more\x1b[31m"))
    good, ill = build_tier(place, "bronze", ["good", "ill"], POLARS)
    assert good.fault is None
    assert {one.rows for one in good.written if one.table == "bronze.trace_events"} == {6}
    assert isinstance(ill.fault, UnexpectedFault)
    assert str(ill.fault) == (
        "run ill: OverflowError: date value out of range while reading ill.json "
        "(this is a fault of teetotal: please report it)"
    )


def test_a_run_without_enough_memory_says_what_to_do(
    place: BuildContext, raise_while_reading: Callable[[BaseException], None]
) -> None:
    raise_while_reading(MemoryError())
    good, ill = build_tier(place, "bronze", ["good", "ill"], POLARS)
    assert good.fault is None
    assert isinstance(ill.fault, OutOfMemory)
    assert str(ill.fault).startswith("run ill: MemoryError while reading ill.json (there was not enough memory")


def test_a_transform_that_raises_fails_its_run_and_names_the_table(
    place: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_tier(place, "bronze", ["good", "ill"], POLARS)
    fill = SilverBuild.fill

    def fill_or_raise(self: SilverBuild, stage: Stage, *rest: Any) -> None:
        if stage.table.name == "clock_offsets" and stage.run_id == "ill":
            raise ZeroDivisionError("division by zero")
        fill(self, stage, *rest)

    monkeypatch.setattr(SilverBuild, "fill", fill_or_raise)
    good, ill = build_tier(place, "silver", ["good", "ill"], POLARS)
    assert good.fault is None
    assert "ZeroDivisionError: division by zero while making silver.clock_offsets" in str(ill.fault)


@pytest.mark.parametrize(
    "stop",
    [
        KeyboardInterrupt(),
        SystemExit(1),
        dg.DagsterExecutionInterruptedError(),
        duckdb.InterruptException("INTERRUPT Error: Query interrupted"),
    ],
    ids=lambda stop: type(stop).__name__,
)
def test_a_stop_is_no_fault_of_a_run(place: BuildContext, monkeypatch: pytest.MonkeyPatch, stop: BaseException) -> None:
    def raise_stop(*_: object, **__: object) -> None:
        raise stop

    monkeypatch.setattr("assets.build.tiers.bronze.materialise", raise_stop)
    with pytest.raises(type(stop)):
        build_tier(place, "bronze", ["good", "ill"], POLARS)


def test_a_pair_that_cannot_be_compared_fails_alone(
    lake: Lake, zone: LandingZone, land_files: LandFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = BuildContext(lake, zone, Limits())
    for run_id, manifest in (("good", TEE), ("ill", TEE), ("off", OFF)):
        land_files.write({"rank0.json": trace(100)}, run_id, manifest)
    for tier in ("bronze", "silver", "gold"):
        build_tier(place, tier, ["good", "ill", "off"], POLARS)
    measure = step_overhead.measure

    def measure_or_raise(pair: Any, *rest: Any) -> Any:
        if pair.run_id == "ill":
            raise IndexError("list index out of range")
        return measure(pair, *rest)

    monkeypatch.setattr(step_overhead, "measure", measure_or_raise)
    written, faults = comparisons.make_pairs(lake)
    assert {one.run_id for one in written} == {"good"}
    assert str(faults.pop("ill")).startswith(
        "run ill: IndexError: list index out of range while comparing ill with off"
    )
    assert faults == {}


def test_a_run_whose_rows_cannot_be_read_fails_its_check_alone(place: BuildContext) -> None:
    lake = place.lake
    build_tier(place, "bronze", ["good", "ill"], POLARS)
    for path in lake.snapshot(runs.TABLE).files("ill"):
        (lake.place.directory / runs.TABLE.path / path).unlink()
    checking = LaunchChecks(place, {spec.key for spec in check_specs([runs.TABLE])})
    broken = checking.check([runs.TABLE], ["good", "ill"])
    assert set(broken) == {"ill"}
    assert "bronze.runs, run ill: data file" in str(broken["ill"])
