"""One row per device and step: the energy that the GPU drew while the step ran, as far as its readings tell."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, divide_down, divide_to_fraction, join_reasons, select_declared, to_flag
from lake.tables import RUN_ID, Table, boolean, float64, int32, int64, text
from silver.steps import EVIDENCE
from silver.throughput import PERIODS

TIMERS = ("profile", "log")
SOURCES = ("counter", "power")
# So many readings within a step measure it; with fewer the line between those around it is a model of it.
ENOUGH = 3
# What a verdict needs: a sensor that averages over its own period tells nothing of a shorter window.
ENOUGH_FOR_A_VERDICT = 10
ENOUGH_PERIODS = 5
# A gap of more usual ones than this is no sampling: what happened in it nobody saw.
LONG_GAPS = 3

TABLE = Table(
    tier="gold",
    name="step_energy",
    grain="One row per device and step (or epoch of a log) that has a time, of runs whose power or energy was sampled.",
    key=("timed_by", "rank", "period", "step_number", "device_id"),
    inputs=("silver.device_samples", "silver.steps", "silver.throughput"),
    is_empty_without_first_input=True,
    columns=(
        RUN_ID,
        text("timed_by", "profile: a step of silver.steps; log: a period of silver.throughput.", one_of=TIMERS),
        int32("rank", "Rank whose step it is.", minimum=0),
        text("period", "What the row is of.", one_of=PERIODS),
        int64("step_number", "Number of the step or epoch.", minimum=0),
        int64("device_id", "GPU as its tool numbers it; 0 where the tool names none."),
        int64("ts_ns", "Start of the step, UTC."),
        int64("duration_ns", "Its duration.", minimum=0),
        int64(
            "stands_for_count", "Periods that it is the time of, where a log is not written at each of them.", minimum=1
        ),
        boolean("is_warmup", "Whether it is left out of pairs (R7)."),
        float64(
            "energy_j", "What the whole device drew meanwhile, for all ranks that share it.", nullable=True, minimum=0
        ),
        float64("mean_power_w", "Energy over duration.", nullable=True, minimum=0),
        text(
            "energy_source",
            "counter: difference of the device's own count; power: area under its power, straight between readings.",
            nullable=True,
            one_of=SOURCES,
        ),
        int64("samples_count", "Readings within the step.", minimum=0),
        int64("sampling_ns", "Usual time between readings of the device.", nullable=True, minimum=0),
        int64(
            "sensor_period_ns",
            "Usual time between readings that differ from the one before: how often the sensor itself has a new value, "
            "however often it is asked; null where no two differ.",
            nullable=True,
            minimum=0,
        ),
        boolean(
            "has_enough_readings",
            "Whether a verdict may rest on it: at least 10 readings, and at least 5 periods of the sensor, lie within.",
        ),
        text("evidence", "measured, or modelled where fewer than 3 readings lie within the step.", one_of=EVIDENCE),
        text("reason", "What makes it a model, or why there is no number, as sentences.", nullable=True),
    ),
)
_OF_DEVICE = ["run_id", "device_id"]
_KEY = [*_OF_DEVICE, "timed_by", "rank", "period", "step_number"]
_WATT_MW = 1000.0
_NS = 1e9
# Sums of whole numbers are the same on every engine in any order: twice the energy of a slice of time, in microjoules.
_JOULE_UJ = 1e6
_UJ_JOULES = 1e-6
_UJ_A_NS_W = 1000
_TWICE_UJ = 2e6
# No GPU draws or counts more, no clock says more, and what happens in hours without a reading nobody saw.
_MOST = {"power": 1e4, "energy": 1e12}
_END_OF_TIME_NS = 4 * 10**18
_MOST_GAP_NS = 10**13


def measure(device_samples: Frame, steps: Frame, throughput: Frame) -> Frame:
    """Take the area under straight lines between readings; beyond them, and over long gaps, nothing is known."""
    known = device_samples.filter(nw.col("quantity").is_in(["power", "energy"]))
    known = known.with_columns(
        _unnamed=to_flag(nw.col("device_id").is_null()), device_id=nw.col("device_id").fill_null(0)
    )
    lines = _lines(_readings(known))
    devices = known.select(*_OF_DEVICE).unique()
    periods = _periods(steps, throughput).join(devices, on="run_id", how="inner")
    edges = _interpolate_edges(periods, lines)
    begins, ends = (edges.filter(nw.col("_end") == end) for end in (0, 1))
    found = begins.join(ends.select(*_KEY, *_EDGE), on=_KEY, how="left", suffix="_at_end")
    found = found.join(_ways(lines), on=_OF_DEVICE, how="left")
    found = found.join(_sensor_periods(lines), on=_OF_DEVICE, how="left")
    return select_declared(_add_evidence(found), TABLE)


def _add_evidence(found: Frame) -> Frame:
    """Say what the readings allow."""
    is_known = ~nw.col("_microjoules").is_null() & ~nw.col("_microjoules_at_end").is_null()
    has_gap = (nw.col("_through_at_end") > nw.col("_before")).fill_null(False)
    is_timed, is_ambiguous = ~nw.col("sampling_ns").is_null(), (nw.col("_ambiguous") > 0).fill_null(False)
    is_measurable = is_known & ~has_gap & ~is_ambiguous
    samples = (nw.col("_count_at_end") - nw.col("_count")).fill_null(0)
    microjoules = nw.col("_microjoules_at_end") - nw.col("_microjoules")
    spent = nw.when(is_measurable).then(nw.when(microjoules > 0).then(microjoules).otherwise(nw.lit(0).cast(nw.Int64)))
    is_few, is_inferred = samples < ENOUGH, (nw.col("_inferred") > 0).fill_null(False)
    found = found.with_columns(
        samples_count=samples,
        has_enough_readings=(
            is_measurable
            & (samples >= ENOUGH_FOR_A_VERDICT)
            & (nw.col("duration_ns") >= nw.col("sensor_period_ns") * ENOUGH_PERIODS)
        ).fill_null(False),
        # Times a millionth, not by a million: Polars divides by a constant in another way than other engines.
        energy_j=spent.cast(nw.Float64) * _UJ_JOULES,
        mean_power_w=divide_to_fraction(spent * _UJ_A_NS_W, nw.col("duration_ns")),
        evidence=nw.when(~is_measurable)
        .then(nw.lit("unobservable"))
        .otherwise(nw.when(is_few | is_inferred).then(nw.lit("modelled")).otherwise(nw.lit("measured"))),
        reason=join_reasons(
            (~is_timed, "no two of the device's readings have a number and a time in UTC"),
            (is_ambiguous, "readings of one moment differ and do not say of which GPU they are"),
            (is_timed & ~is_ambiguous & ~is_known, "it does not lie between two readings"),
            (is_known & has_gap & ~is_ambiguous, "readings are missing, or the device's count began again"),
            (
                is_measurable & is_few,
                "fewer than 3 readings lie within it: its energy is that of the line between those around",
            ),
            (is_measurable & is_inferred, "the zone of the readings' clock is inferred"),
        ),
    )
    return found.with_columns(
        energy_source=nw.when(~nw.col("energy_j").is_null()).then(nw.col("_way")),
    )


# -- steps ------------------------------------------------------------------------------------------------------------


def _periods(steps: Frame, throughput: Frame) -> Frame:
    """The steps of profiles, and the periods of each rank's longest log."""
    columns = [
        *("run_id", "timed_by", "rank", "period", "step_number", "ts_ns", "duration_ns", "stands_for_count"),
        "is_warmup",
    ]
    profiled = steps.with_columns(
        timed_by=nw.lit("profile"), period=nw.lit("step"), stands_for_count=nw.lit(1).cast(nw.Int64)
    ).select(columns)
    logged = throughput.filter(~nw.col("ts_ns").is_null(), ~nw.col("duration_ns").is_null())
    logged = logged.with_columns(timed_by=nw.lit("log"), step_number=nw.col("period_number"))
    of_one = ["run_id", "rank", "period"]
    logged = logged.with_columns(_length=nw.col("ordinal").count().over(*of_one, "source_sha256"))
    logged = logged.with_columns(_longest=nw.col("_length").max().over(*of_one))
    logged = logged.filter(nw.col("_length") == nw.col("_longest"))
    logged = logged.with_columns(_first=nw.col("source_sha256").min().over(*of_one))
    logged = logged.filter(nw.col("source_sha256") == nw.col("_first"))
    timed = nw.concat([profiled, logged.select(columns)])
    return timed.filter(_is_sane(nw.col("ts_ns")), nw.col("duration_ns") < _END_OF_TIME_NS)


def _is_sane(moment: nw.Expr) -> nw.Expr:
    return (moment > 0) & (moment < _END_OF_TIME_NS)


# -- readings ---------------------------------------------------------------------------------------------------------


def _readings(known: Frame) -> Frame:
    """The largest number of a device and moment, of the better quantity and of the file that has most of it."""
    number, is_power = nw.col("value_number"), nw.col("quantity") == "power"
    is_sane = nw.when(is_power).then(number <= _MOST["power"]).otherwise(number <= _MOST["energy"])
    timed = known.filter(_is_sane(nw.col("ts_ns")), number >= 0, is_sane)
    timed = timed.with_columns(_is_power=to_flag(nw.col("quantity") == "power"))
    timed = timed.with_columns(_number=nw.col("ordinal").count().over(*_OF_DEVICE, "quantity", "source_sha256"))
    # Two counts are a measure; a single one is none, and then power is asked.
    timed = timed.filter((nw.col("_is_power") == 1) | (nw.col("_number") > 1))
    timed = timed.with_columns(_best=nw.col("_is_power").min().over(*_OF_DEVICE))
    timed = timed.filter(nw.col("_is_power") == nw.col("_best"))
    timed = timed.with_columns(_most=nw.col("_number").max().over(*_OF_DEVICE))
    timed = timed.filter(nw.col("_number") == nw.col("_most"))
    timed = timed.with_columns(_file=nw.col("source_sha256").min().over(*_OF_DEVICE))
    moments = timed.filter(nw.col("source_sha256") == nw.col("_file")).group_by(*_OF_DEVICE, "ts_ns")
    return moments.agg(
        _least=nw.col("value_number").min(),
        _value=nw.col("value_number").max(),
        _is_power=nw.col("_is_power").max(),
        _unnamed=nw.col("_unnamed").max(),
        _inferred=to_flag(nw.col("ts_source") == "inferred").max(),
    )


def _lines(readings: Frame) -> Frame:
    """Each reading with the next one, the energy until it, and how many long gaps lie before it."""
    lines = readings.with_columns(
        _next_ns=nw.col("ts_ns").shift(-1).over(*_OF_DEVICE, order_by="ts_ns"),
        _next=nw.col("_value").shift(-1).over(*_OF_DEVICE, order_by="ts_ns"),
    )
    lines = lines.with_columns(_gap_ns=nw.col("_next_ns") - nw.col("ts_ns"))
    usual = lines.group_by(*_OF_DEVICE).agg(
        _usual=nw.col("_gap_ns").median(),
        _way=nw.col("_is_power").max(),
        _doubtful=to_flag((nw.col("_unnamed") == 1) & (nw.col("_least") < nw.col("_value"))).max(),
        _any_inferred=nw.col("_inferred").max(),
    )
    lines = lines.join(usual, on=_OF_DEVICE, how="left")
    nothing, is_count = nw.lit(0).cast(nw.Int64), nw.col("_is_power") == 0
    is_bad = (nw.col("_gap_ns") > nw.col("_usual") * LONG_GAPS) | (is_count & (nw.col("_next") < nw.col("_value")))
    is_bad |= nw.col("_gap_ns") > _MOST_GAP_NS
    lines = lines.with_columns(_is_bad=to_flag(is_bad.fill_null(False)))
    is_line = ~is_count & (nw.col("_is_bad") == 0) & ~nw.col("_next").is_null()
    double_mw = ((nw.col("_value") + nw.col("_next")) * _WATT_MW).round(0)
    lines = lines.with_columns(
        _double_mw=nw.when(is_line).then(double_mw).otherwise(nw.lit(0.0)).cast(nw.Int64),
        _gap_us=divide_down(nw.when(is_line).then(nw.col("_gap_ns")).otherwise(nothing), nothing + 1000),
    )
    lines = lines.with_columns(_area=divide_down(nw.col("_double_mw") * nw.col("_gap_us"), nothing + 1000))
    lines = lines.with_columns(
        _areas=nw.col("_area").cum_sum().over(*_OF_DEVICE, order_by="ts_ns") - nw.col("_area"),
        _bads=nw.col("_is_bad").cum_sum().over(*_OF_DEVICE, order_by="ts_ns") - nw.col("_is_bad"),
    )
    total = nw.col("_areas").cast(nw.Float64) / _TWICE_UJ
    slope = (nw.col("_next") - nw.col("_value")) / (nw.col("_gap_ns").cast(nw.Float64) / _NS)
    return lines.with_columns(
        _until=nw.when(is_count).then(nw.col("_value")).otherwise(total),
        _power=nw.when(is_count).then(slope).otherwise(nw.col("_value")),
        _slope=nw.when(is_count).then(nw.lit(0.0)).otherwise(slope),
    )


def _ways(lines: Frame) -> Frame:
    """What is said of a device as a whole."""
    ways = lines.group_by(*_OF_DEVICE).agg(
        _usual=nw.col("_usual").max(),
        _ambiguous=nw.col("_doubtful").max(),
        _inferred=nw.col("_any_inferred").max(),
        _way=nw.col("_way").max(),
    )
    way = nw.when(nw.col("_way") == 0).then(nw.lit(SOURCES[0])).otherwise(nw.lit(SOURCES[1]))
    return ways.with_columns(sampling_ns=nw.col("_usual").round(0).cast(nw.Int64), _way=way).drop("_usual")


def _sensor_periods(lines: Frame) -> Frame:
    """How often a device's readings change: a tool may ask many times before the sensor has a new value."""
    ordered = {"order_by": "ts_ns"}
    moved = lines.with_columns(_previous=nw.col("_value").shift(1).over(*_OF_DEVICE, **ordered))
    moved = moved.filter(nw.col("_value") != nw.col("_previous"))
    moved = moved.with_columns(_since_ns=nw.col("ts_ns") - nw.col("ts_ns").shift(1).over(*_OF_DEVICE, **ordered))
    periods = moved.group_by(*_OF_DEVICE).agg(_period=nw.col("_since_ns").median())
    return periods.select(*_OF_DEVICE, sensor_period_ns=nw.col("_period").round(0).cast(nw.Int64))


# -- both -------------------------------------------------------------------------------------------------------------

_EDGE = ["_microjoules", "_count", "_before", "_through"]


def _interpolate_edges(periods: Frame, lines: Frame) -> Frame:
    """Both edges of every step on the line of its device: energy, readings and long gaps until then."""
    nothing = nw.lit(0).cast(nw.Int64)
    edges = nw.concat(
        [
            periods.with_columns(_at_ns=nw.col("ts_ns") + nw.col("duration_ns") * end, _end=nothing + end)
            for end in (0, 1)
        ]
    )
    keys = [*_KEY, "ts_ns", "duration_ns", "stands_for_count", "is_warmup", "_end"]
    # One order for readings and edges; a reading comes before an edge of the same moment.
    marks = lines.select(*_OF_DEVICE, _at_ns=nw.col("ts_ns"), _sample_ns=nw.col("ts_ns"), _edge=nothing)
    moments = edges.select(*_OF_DEVICE, "_at_ns").unique().with_columns(_sample_ns=nothing, _edge=nothing + 1)
    together = nw.concat([marks, moments.select("run_id", "device_id", "_at_ns", "_sample_ns", "_edge")])
    together = together.with_columns(_mark=nothing + 1 - nw.col("_edge"))
    together = together.with_columns(
        _last_ns=nw.col("_sample_ns").cum_max().over(*_OF_DEVICE, order_by=["_at_ns", "_edge"]),
        _count=nw.col("_mark").cum_sum().over(*_OF_DEVICE, order_by=["_at_ns", "_edge"]),
    )
    moments = together.filter(nw.col("_edge") == 1).select(*_OF_DEVICE, "_at_ns", "_last_ns", "_count")
    line = lines.select(*_OF_DEVICE, "_until", "_power", "_slope", "_is_bad", "_bads", _last_ns=nw.col("ts_ns"))
    moments = moments.join(line, on=[*_OF_DEVICE, "_last_ns"], how="left")
    since = (nw.col("_at_ns") - nw.col("_last_ns")).cast(nw.Float64) / _NS
    is_on = nw.col("_at_ns") == nw.col("_last_ns")
    between = nw.col("_power") * nw.col("_since") + nw.col("_slope") * nw.col("_since") * nw.col("_since") / 2.0
    joules = nw.when(is_on).then(nw.col("_until")).otherwise(nw.col("_until") + between)
    moments = moments.with_columns(_since=since).with_columns(
        # Whole microjoules: engines add in different orders, and the last digits of a double would tell.
        _microjoules=(joules * _JOULE_UJ).round(0).cast(nw.Int64),
        _before=nw.col("_bads"),
        _through=nw.col("_bads") + nw.when(is_on).then(nothing).otherwise(nw.col("_is_bad")),
    )
    edges = edges.select(*keys, "_at_ns")
    return edges.join(moments.select(*_OF_DEVICE, "_at_ns", *_EDGE), on=[*_OF_DEVICE, "_at_ns"], how="left")
