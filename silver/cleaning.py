"""Which events are intervals that can be believed: a rule is a sentence, and every event falls under exactly one."""

from __future__ import annotations

from dataclasses import dataclass

import narwhals as nw

from lake.frames import Frame, numbered

EFFECTS = ("kept", "merged", "rejected", "flagged", "split")
# Sums of what is kept must fit 64 bits: nothing lasts over three days, nothing ends after the year 2116.
_LONGEST_NS = 1 << 48
_LATEST_NS = 1 << 62
# What makes two events one: name, place, time, ids and size. Work of one name that started at the same nanosecond
# on the same stream for the same call is the same work; that its other arguments are equal too is not asked (reading
# them all would cost as much again).
IDENTITY = (
    "source_sha256",
    "rank",
    "category",
    "name",
    "process_id",
    "thread_id",
    "ts_ns",
    "duration_ns",
    "correlation_id",
    "external_id",
    "device_id",
    "stream_id",
    "payload_bytes",
)


@dataclass(frozen=True)
class Rule:
    """One rule: what it does to the events that it names, and why, as a sentence."""

    id: str
    effect: str
    sentence: str


RULES = (
    Rule("flow_arrow", "merged", "A flow arrow is carried by the correlation of the two spans that it joins."),
    Rule("metadata", "merged", "A metadata event names a process or a thread and is no interval."),
    Rule("mark", "merged", "An instant or a counter has no duration and is no interval."),
    Rule(
        "duplicate", "merged", "An event with the name, place, time, ids and size of another of its source is the same."
    ),
    Rule(
        "second_profile", "merged", "A rank that has a trace of its framework is timed by it, not by Nsight's rows too."
    ),
    Rule("seen_elsewhere", "merged", "A launch of which the API's or the GPU's own report tells is taken from there."),
    Rule("launch_and_kernel", "split", "A row that tells a launch and its kernel is two events: one more than landed."),
    Rule("unknown_phase", "rejected", "An event whose phase is none of X M s t f i I R C has no agreed meaning."),
    Rule("no_time", "rejected", "A complete event without a start or a duration that 64 bits can hold is no interval."),
    Rule("zero_timestamp", "rejected", "An event at or before the origin of its trace's clock was never stamped."),
    Rule("negative_duration", "rejected", "A negative duration is a clock fault; CUDA events have them under CC (R2)."),
    Rule("overflow", "rejected", "An event that lasts over 78 hours or ends after the year 2116 was never measured."),
    Rule("orphan", "flagged", "GPU work whose launch was not recorded is kept and reported as orphan GPU time."),
    Rule("before_launch", "flagged", "GPU work that starts before its launch is kept as recorded: clocks disagree."),
    Rule(
        "relabelled_copy", "flagged", "A pinned copy that CC reports as Device-to-Device, Managed is relabelled (R1)."
    ),
    Rule(
        "hidden_copy", "flagged", "A copy between Managed memories under CC may be any: its direction is unknown (R1)."
    ),
    Rule("session_clock", "flagged", "Its time counts from the start of the session, not from 1970."),
    Rule("rounded_size", "flagged", "Its size is rounded to thousandths of a megabyte; one that is then 0 is unknown."),
    Rule("queued_work", "flagged", "A copy call under CC holds queued work: its time is not copy time (R5)."),
    Rule("devtools", "flagged", "What is recorded in devtools mode is not the shipped mode (R3)."),
    Rule("no_gpu_rows", "flagged", "No GPU rows with CC on are unobservable, not an idle GPU (R4)."),
    Rule("warmup_step", "flagged", "The first launch and warm-up steps are left out of pairs (R7); counted in steps."),
    Rule("unknown_on_gpu", "flagged", "GPU work whose name no pattern knows counts as compute."),
)
REJECTED = tuple(rule.id for rule in RULES if rule.effect == "rejected")
NO_INTERVALS = ("flow_arrow", "metadata", "mark", "second_profile", "seen_elsewhere")


def sentence_of(rule: str) -> nw.Expr:
    """The sentence of the rule that a column names."""
    sentence = nw.lit("")
    for entry in RULES:
        sentence = nw.when(nw.col(rule) == entry.id).then(nw.lit(entry.sentence)).otherwise(sentence)
    return sentence


def judged(events: Frame, sources: Frame) -> Frame:
    """Name the first rule that an event falls under; null where it is an interval (duplicates are found later)."""
    origins = sources.filter(nw.col("outcome") == "kept").select(
        "source_sha256", _origin_ns=nw.col("base_ns").fill_null(0)
    )
    phase, start, length = nw.col("phase"), nw.col("ts_ns"), nw.col("duration_ns")
    is_complete = phase == "X"
    rules = (
        (phase.is_in(["s", "t", "f"]), "flow_arrow"),
        (phase == "M", "metadata"),
        (phase.is_in(["i", "I", "R", "C"]), "mark"),
        (~is_complete | phase.is_null(), "unknown_phase"),
        (start.is_null() | length.is_null(), "no_time"),
        (start <= nw.col("_origin_ns").fill_null(0), "zero_timestamp"),
        (start <= 0, "zero_timestamp"),
        (length < 0, "negative_duration"),
        ((length > _LONGEST_NS) | (start > _LATEST_NS - _LONGEST_NS), "overflow"),
    )
    verdict = nw.lit(None).cast(nw.String)
    for condition, rule in reversed(rules):
        verdict = nw.when(condition).then(nw.lit(rule)).otherwise(verdict)
    verdict = nw.when(~nw.col("_fate").is_null()).then(nw.col("_fate")).otherwise(verdict)
    return events.join(origins, on="source_sha256", how="left").with_columns(rule=verdict).drop("_origin_ns")


def intervals(events: Frame, sources: Frame) -> Frame:
    """The events that no rule speaks against."""
    return judged(events, sources).filter(nw.col("rule").is_null()).drop("rule")


def once(intervals: Frame) -> Frame:
    """Of equal intervals keep the first, and let it say how many more it stands for."""
    # Equal events have equal times: only events that share theirs are compared further.
    intervals = intervals.with_columns(_at_once=nw.col("ordinal").count().over("rank", "ts_ns", "duration_ns"))
    alone = intervals.filter(nw.col("_at_once") == 1).with_columns(duplicates_count=nw.lit(0).cast(nw.Int64))
    crowd = intervals.filter(nw.col("_at_once") > 1).with_columns(
        duplicates_count=nw.col("ordinal").count().over(*IDENTITY).cast(nw.Int64) - 1
    )
    first = numbered(crowd, "_place", IDENTITY, "ordinal").filter(nw.col("_place") == 1).drop("_place")
    return nw.concat([alone, first]).drop("_at_once")
