"""One row per epoch or step of a training log: how fast it went, as the log itself says."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, join_reasons, number_rows, select_declared, to_flag
from lake.tables import RUN_ID, Table, boolean, float64, int32, int64, text
from silver.steps import EVIDENCE
from silver.warmup import flag_warmup

PERIODS = ("epoch", "step", "block")
NUMBERINGS = ("number", "place")
DURATIONS = ("stated", "inferred", "interval", "difference")
_RECORDS = ("mllog", "line", "csv", "scalar")
# The intervals of an mllog line that are periods of training, by its key.
_STARTS = {
    "epoch_start": "epoch",
    "step_start": "step",
    "train_step_start": "step",
    "iteration_start": "step",
    "block_start": "block",
}
_ENDS = {
    f"{key.removesuffix('start')}{end}": period for key, period in _STARTS.items() for end in ("stop", "end", "finish")
}
# What a log may call the steps at its start that are no measure of training, in lower case.
_WARMING = ("warmup", "warm-up", "warm_up", "settling")
# After how many rises by little it is certain that they are a clock's, and the share of all that may go back.
_MANY = 7
_FEW = 4
_UNCLEAR = "its time may be a clock's or how long it took: call the column timestamp or duration"
# No rate and no loss is beyond it; what is not a number compares as larger than any on every engine.
_LARGEST = 1e300

TABLE = Table(
    tier="silver",
    name="throughput",
    grain="One row per epoch, step or block of epochs of a training log.",
    key=("source_sha256", "ordinal"),
    inputs=("bronze.training_log", "bronze.source_files", "bronze.runs"),
    is_empty_without_first_input=True,
    columns=(
        RUN_ID,
        int32("rank", "Rank that wrote the log, where the file's name says it; else 0.", minimum=0),
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of its (first) record among the training records of its source.", minimum=0),
        text(
            "record",
            "mllog: a pair of lines, or a rate; line: a line on a step; csv: a record of a table; scalar: the scalars "
            "of a step.",
            one_of=_RECORDS,
        ),
        text("period", "What the row is of.", one_of=PERIODS),
        int64("period_number", "Number of the epoch or step, as numbered_by says.", minimum=0),
        int64("period_ordinal", "Place among those of its source, from 0.", minimum=0),
        text(
            "numbered_by",
            "number: the source's own; place: the source has none, or repeats one.",
            one_of=NUMBERINGS,
        ),
        int64("epoch_number", "Epoch, as the source counts.", nullable=True),
        int64("step_number", "Step, as the source counts.", nullable=True),
        int64("ts_ns", "Start, UTC, as far as the source tells.", nullable=True),
        int64("end_ns", "End, UTC; of a table: when the record was written.", nullable=True),
        int64("duration_ns", "How long it took.", nullable=True, minimum=0),
        text(
            "duration_source",
            "stated: by the source; inferred: the source calls it only time, and it goes up and down as durations do; "
            "interval: between two marks; difference: since the record before was written, "
            "so that whatever else was done in between is part of it.",
            nullable=True,
            one_of=DURATIONS,
        ),
        int64(
            "stands_for_count",
            "Periods that its duration is the time of: those since the record before, where that is all that tells it.",
            minimum=1,
        ),
        float64("samples_per_second", "Throughput in samples, as the source says.", nullable=True, minimum=0),
        float64("tokens_per_second", "Throughput in tokens, as the source says.", nullable=True, minimum=0),
        int64("batch_size", "Samples per step, as the source says.", nullable=True),
        float64("loss_number", "Loss; null where it is no finite number.", nullable=True),
        boolean("is_warmup", "Whether it is left out of pairs (R7)."),
        text("warmup_reason", "Why it counts as warm-up, as a sentence.", nullable=True),
        text(
            "evidence",
            "measured: throughput or duration is the source's; modelled: inferred, or told by times of writing.",
            one_of=EVIDENCE,
        ),
        text("reason", "Why a number is missing, as sentences.", nullable=True),
    ),
)
_OF_ONE = ["source_sha256", "period"]
_LOGGED = [
    *("run_id", "source_sha256", "ordinal", "record", "epoch_number", "step_number", "ts_ns", "clock_ns", "began_ns"),
    *("duration_ns", "samples_per_second", "tokens_per_second", "batch_size", "loss_number", "phase"),
]
_COLUMNS = [
    *("run_id", "source_sha256", "ordinal", "record", "period", "epoch_number", "step_number", "ts_ns", "end_ns"),
    *("duration_ns", "duration_source", "samples_per_second", "tokens_per_second", "batch_size", "loss_number"),
    *("phase", "_fault"),
]


def conform(training_log: Frame, sources: Frame, runs: Frame) -> Frame:
    """Let a record of a table, the scalars of a step and an interval of a log be one period, timed by the source."""
    rows = nw.concat([_records(training_log), *_add_rates(_intervals(training_log), _rates(training_log))])
    ranks = sources.filter(nw.col("outcome") == "kept").select("source_sha256", "rank")
    rows = rows.join(ranks, on="source_sha256", how="left").with_columns(rank=nw.col("rank").fill_null(0))
    rows = _number_periods(rows).with_columns(_log=nw.concat_str(nw.col("source_sha256"), nw.col("period")))
    rows = flag_warmup(_add_pace(rows), runs, "_log", "period_ordinal", "_pace", "log", nw.col("period") == "step")
    rows = _apply_phases(rows)
    has_rate = ~nw.col("samples_per_second").is_null() | ~nw.col("tokens_per_second").is_null()
    has_time = ~nw.col("duration_ns").is_null()
    is_stated = has_rate | (has_time & ~nw.col("duration_source").is_in(["difference", "inferred"])).fill_null(False)
    return select_declared(
        rows.with_columns(
            evidence=nw.when(is_stated)
            .then(nw.lit("measured"))
            .otherwise(nw.when(has_time).then(nw.lit("modelled")).otherwise(nw.lit("unobservable"))),
            reason=join_reasons(
                (~nw.col("_fault").is_null(), nw.col("_fault")),
                (~has_rate & ~has_time & nw.col("_fault").is_null(), "the source gives neither its rate nor its time"),
            ),
        ),
        TABLE,
    )


def _records(log: Frame) -> Frame:
    """A record of a table; where it says no duration, the time since the record before it was written."""
    rows = nw.concat([one.select(_LOGGED) for one in (_choose_records(log), _gather_scalars(log))])
    rows = _read_clocks(rows)
    has_steps = ~nw.col("step_number").max().over("source_sha256").is_null()
    is_step = ~nw.col("step_number").is_null() | (nw.col("epoch_number").is_null() & nw.col("_has_steps"))
    rows = rows.with_columns(_has_steps=has_steps).with_columns(
        period=nw.when(is_step).then(nw.lit("step")).otherwise(nw.lit("epoch")),
        end_ns=nw.coalesce(nw.col("ts_ns"), nw.col("began_ns") + nw.col("duration_ns")),
    )
    rows = rows.with_columns(_at=nw.coalesce(nw.col("end_ns"), nw.col("_clock_ns")))
    rows = rows.with_columns(_since_ns=nw.col("_at") - nw.col("_at").shift(1).over(*_OF_ONE, order_by="ordinal"))
    is_stated = ~nw.col("duration_ns").is_null()
    rows = rows.with_columns(
        duration_source=nw.when(is_stated)
        .then(nw.when(nw.col("_is_length")).then(nw.lit("inferred")).otherwise(nw.lit("stated")))
        .otherwise(nw.when(~nw.col("_since_ns").is_null()).then(nw.lit("difference"))),
        duration_ns=nw.coalesce(nw.col("duration_ns"), nw.col("_since_ns")),
    )
    rows = _drop_backward_times(rows)
    rows = rows.with_columns(_fault=nw.when(nw.col("duration_ns").is_null()).then(nw.coalesce("_fault", "_unclear")))
    return rows.with_columns(
        ts_ns=nw.coalesce(nw.col("began_ns"), nw.col("end_ns") - nw.col("duration_ns")),
        samples_per_second=_if_rate("samples_per_second"),
        tokens_per_second=_if_rate("tokens_per_second"),
        loss_number=nw.when(nw.col("loss_number").is_between(-_LARGEST, _LARGEST)).then(nw.col("loss_number")),
    ).select(_COLUMNS)


def _choose_records(log: Frame) -> Frame:
    """Records of tables, and lines on steps; where a log has two kinds of those, of the one that speaks most often."""
    rows = log.filter(nw.col("record").is_in(["csv", "line"]))
    rows = rows.with_columns(_kind=nw.coalesce(nw.col("record_key"), nw.col("record")))
    rows = rows.with_columns(
        _count=nw.col("ordinal").count().over("source_sha256", "_kind"),
        _first=nw.col("ordinal").min().over("source_sha256", "_kind"),
    ).with_columns(_most=nw.col("_count").max().over("source_sha256"))
    lead = nw.when(nw.col("_count") == nw.col("_most")).then(nw.col("_first")).min().over("source_sha256")
    return rows.with_columns(_lead=lead).filter(nw.col("_first") == nw.col("_lead"))


def _read_clocks(rows: Frame) -> Frame:
    """Numbers under a name such as `time` are a clock if they run forward, and durations if they go up and down.

    Durations of one length go back or stand still as often as forward, and a clock goes on by far more than they
    differ. Few numbers that rise a little may be either: they are not guessed.
    """
    of_log = "source_sha256"
    ahead = nw.col("clock_ns") - nw.col("clock_ns").shift(1).over(of_log, order_by="ordinal")
    rows = rows.with_columns(_ahead=ahead, _forward=nw.when(ahead > 0).then(ahead.cast(nw.Float64)).otherwise(0.0))
    rows = rows.with_columns(_back=to_flag(nw.col("_ahead") < 0), _still=to_flag(nw.col("_ahead") <= 0))
    counts = {
        "_changes": nw.col("_ahead").count(),
        "_most": nw.col("clock_ns").max(),
        **{name: nw.col(name).sum() for name in ("_forward", "_back", "_still")},
    }
    rows = rows.with_columns(**{name: found.over(of_log) for name, found in counts.items()})
    goes_far = nw.col("_forward") * 2 >= nw.col("_most").cast(nw.Float64)
    is_forward = nw.col("_back") * _FEW < nw.col("_changes")
    is_clock = is_forward & (
        goes_far | ((nw.col("_changes") >= _MANY) & (nw.col("_still") * _FEW < nw.col("_changes")))
    )
    is_length = ~is_forward | (~goes_far & (nw.col("_still") * _FEW >= nw.col("_changes")))
    is_length = is_length & (nw.col("_changes") > 0)
    is_said = nw.col("duration_ns").is_null() & ~nw.col("clock_ns").is_null()
    return rows.with_columns(
        _clock_ns=nw.when(is_clock).then(nw.col("clock_ns")),
        _is_length=is_said & is_length,
        duration_ns=nw.when(is_said & is_length).then(nw.col("clock_ns")).otherwise(nw.col("duration_ns")),
        _unclear=nw.when(is_said & ~is_clock & ~is_length).then(nw.lit(_UNCLEAR)),
    )


def _gather_scalars(log: Frame) -> Frame:
    """Let the tag with most scalars of a file tell its steps; rates and the loss of a step come from other tags too.

    A tag with less than half as many speaks of other things: the rate of the whole run, an evaluation.
    """
    of_step = ["run_id", "source_sha256", "step_number"]
    rows = log.filter(nw.col("record") == "scalar", ~nw.col("step_number").is_null())
    rows = rows.with_columns(
        _count=nw.col("ordinal").count().over("source_sha256", "record_key"),
        _first=nw.col("ordinal").min().over("source_sha256", "record_key"),
    ).with_columns(_most=nw.col("_count").max().over("source_sha256"))
    is_most = nw.col("_count") == nw.col("_most")
    rows = rows.with_columns(_lead=nw.when(is_most).then(nw.col("_first")).min().over("source_sha256"))
    found = rows.filter(nw.col("_first") == nw.col("_lead"))
    often = rows.filter(nw.col("_count") * 2 >= nw.col("_most"))
    for name in ("samples_per_second", "tokens_per_second", "loss_number"):
        said = often.filter(~nw.col(name).is_null())
        # Of several the first one: which, every engine agrees on.
        said = said.filter(nw.col("ordinal") == nw.col("ordinal").min().over(*of_step))
        said = said.select(*of_step, nw.col(name).alias("_said"))
        found = found.join(said, on=of_step, how="left").with_columns(nw.col("_said").alias(name)).drop("_said")
    return found


def _intervals(log: Frame) -> Frame:
    """A start with the end that follows it; either alone stays as a row that says so."""
    starts, ends = list(_STARTS), list(_ENDS)
    period = nw.lit("epoch")
    for name in ("step", "block"):
        keys = [key for marked in (_STARTS, _ENDS) for key, of in marked.items() if of == name]
        period = nw.when(nw.col("record_key").is_in(keys)).then(nw.lit(name)).otherwise(period)
    marks = log.filter(nw.col("record") == "mllog", nw.col("record_key").is_in([*starts, *ends]))
    marks = marks.with_columns(
        period=period,
        _end=to_flag(nw.col("record_key").is_in(ends)),
    )
    of_one = [*_OF_ONE, "namespace", "epoch_number", "step_number"]
    marks = marks.with_columns(
        _next=nw.col("_end").shift(-1).over(*of_one, order_by="ordinal"),
        _next_ns=nw.col("ts_ns").shift(-1).over(*of_one, order_by="ordinal"),
        _last=nw.col("_end").shift(1).over(*of_one, order_by="ordinal"),
    )
    is_start, is_closed = nw.col("_end") == 0, (nw.col("_next") == 1).fill_null(False)
    marks = marks.filter(is_start | (nw.col("_last") == 1) | nw.col("_last").is_null())
    end = nw.when(~is_start).then(nw.col("ts_ns")).otherwise(nw.when(is_closed).then(nw.col("_next_ns")))
    marks = marks.with_columns(
        end_ns=end,
        ts_ns=nw.when(is_start).then(nw.col("ts_ns")),
        _open=nw.when(~is_start)
        .then(nw.lit("its start was not recorded"))
        .otherwise(nw.when(~is_closed).then(nw.lit("its end was not recorded"))),
    )
    marks = _drop_backward_times(
        marks.with_columns(duration_ns=nw.col("end_ns") - nw.col("ts_ns"), duration_source=nw.lit("interval"))
    )
    return marks.with_columns(_fault=nw.coalesce(nw.col("_open"), nw.col("_fault"))).select(_COLUMNS)


def _apply_phases(rows: Frame) -> Frame:
    """A log that names its phases knows best its warm-up; where a profiler was on, steps without it count."""
    phase = nw.col("phase").str.to_lowercase()
    is_bare, is_warming, is_recorded = phase == "bare", phase.is_in(_WARMING), phase == "recorded"
    rows = rows.with_columns(
        _phases=nw.col("phase").count().over(*_OF_ONE), _bare=to_flag(is_bare.fill_null(False)).max().over(*_OF_ONE)
    )
    is_slowed = (is_recorded & (nw.col("_bare") == 1)).fill_null(False)
    own = (
        nw.when(is_warming.fill_null(False))
        .then(nw.concat_str(nw.lit("its log calls it "), nw.col("phase")))
        .otherwise(nw.when(is_slowed).then(nw.lit("the profiler was on, and the log times other steps without it")))
    )
    reason = nw.when(nw.col("_phases") > 0).then(own).otherwise(nw.col("warmup_reason"))
    return rows.with_columns(warmup_reason=reason).with_columns(is_warmup=~nw.col("warmup_reason").is_null())


def _rates(log: Frame) -> Frame:
    """Lines that give a rate, of the step or epoch that they name; one that names none is a step by its place."""
    rates = log.filter(nw.col("record") == "mllog", ~nw.col("samples_per_second").is_null())
    is_epoch = nw.col("step_number").is_null() & ~nw.col("epoch_number").is_null()
    none = nw.lit(None).cast(nw.Int64)
    return rates.with_columns(
        period=nw.when(is_epoch).then(nw.lit("epoch")).otherwise(nw.lit("step")),
        samples_per_second=_if_rate("samples_per_second"),
        end_ns=nw.col("ts_ns"),
        ts_ns=none,
        duration_ns=none,
        duration_source=nw.lit(None).cast(nw.String),
        _fault=nw.lit(None).cast(nw.String),
    ).select(_COLUMNS)


def _add_rates(intervals: Frame, rates: Frame) -> tuple[Frame, Frame]:
    """Give an interval the last rate of its number; rates of no interval stay rows of their own."""
    of_one = ["run_id", "source_sha256", "period", "_own"]
    intervals, rates = intervals.with_columns(_own=_own_number()), rates.with_columns(_own=_own_number())
    rates = rates.with_columns(_last=nw.col("ordinal").max().over(*of_one))
    last = rates.filter(nw.col("ordinal") == nw.col("_last"), ~nw.col("_own").is_null())
    known = intervals.join(last.select(*of_one, _rate=nw.col("samples_per_second")), on=of_one, how="left")
    known = known.with_columns(samples_per_second=nw.coalesce(nw.col("samples_per_second"), nw.col("_rate")))
    return known.select(_COLUMNS), rates.join(intervals.select(*of_one), on=of_one, how="anti").select(_COLUMNS)


def _own_number() -> nw.Expr:
    return nw.when(nw.col("period") == "step").then(nw.col("step_number")).otherwise(nw.col("epoch_number"))


def _drop_backward_times(rows: Frame) -> Frame:
    """A time that runs backwards is a clock's fault: it is left out and said."""
    is_back = (nw.col("duration_ns") < 0).fill_null(False)
    rows = rows.with_columns(_fault=nw.when(is_back).then(nw.lit("its clock runs backwards")))
    rows = rows.with_columns(duration_ns=nw.when(~is_back).then(nw.col("duration_ns")))
    return rows.with_columns(duration_source=nw.when(~nw.col("duration_ns").is_null()).then(nw.col("duration_source")))


def _if_rate(column: str) -> nw.Expr:
    """A rate that can be divided by: positive and finite, or null."""
    return nw.when((nw.col(column) > 0) & (nw.col(column) < _LARGEST)).then(nw.col(column))


def _number_periods(rows: Frame) -> Frame:
    """Number the periods of a log by their own numbers where those are distinct, else by place."""
    rows = number_rows(rows.with_columns(_own=_own_number()), "_place", _OF_ONE, "ordinal")
    is_odd = nw.col("_own").is_null() | (nw.col("_own") < 0).fill_null(False)
    rows = rows.with_columns(
        period_ordinal=nw.col("_place") - 1,
        _odd=to_flag(is_odd).sum().over(*_OF_ONE),
        _repeats=nw.col("ordinal").count().over(*_OF_ONE, "_own"),
    )
    rows = rows.with_columns(_repeats=nw.col("_repeats").max().over(*_OF_ONE))
    is_own = (nw.col("_odd") == 0) & (nw.col("_repeats") == 1)
    rows = rows.with_columns(
        period_number=nw.when(is_own).then(nw.col("_own")).otherwise(nw.col("period_ordinal")),
        numbered_by=nw.when(is_own).then(nw.lit("number")).otherwise(nw.lit("place")),
    )
    since = nw.col("period_number") - nw.col("period_number").shift(1).over(*_OF_ONE, order_by="ordinal")
    is_since = (nw.col("duration_source") == "difference") & (since > 1)
    one = nw.lit(1).cast(nw.Int64)
    return rows.with_columns(stands_for_count=nw.when(is_since.fill_null(False)).then(since).otherwise(one))


def _add_pace(rows: Frame) -> Frame:
    """How long a period took, up to a factor: by the rate where its log gives any, else by the duration."""
    one = nw.lit(1.0)
    rate = nw.coalesce(nw.col("samples_per_second"), nw.col("tokens_per_second"))
    rows = rows.with_columns(_rate=rate).with_columns(_rates=nw.col("_rate").count().over(*_OF_ONE))
    return rows.with_columns(
        _pace=nw.when(nw.col("_rates") > 0)
        .then(one / nw.col("_rate"))
        .otherwise(nw.col("duration_ns").cast(nw.Float64) / nw.col("stands_for_count").cast(nw.Float64))
    )
