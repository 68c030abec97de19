"""Which events are intervals that can be believed: a rule is a sentence, and every event falls under exactly one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import narwhals as nw

from lake.frames import Frame, compute_once, number_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    Rule("graph_nodes", "merged", "A CUDA graph whose nodes were recorded is timed by them, not by its launch too."),
    Rule("idle_process", "merged", "A process that used no GPU, beside processes that did, is no rank of the run."),
    Rule("no_process", "merged", "A row of the host that names no process, in a recording of several, is no rank's."),
    Rule(
        "unknown_rank",
        "rejected",
        "Nothing tells which process or GPU the row is of: silver.nsys_ranks has the reason.",
    ),
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
    Rule(
        "warmup_step",
        "flagged",
        "First launch, warm-up steps and a last one in which nothing ran are left out of pairs (R7); counted in steps.",
    ),
    Rule(
        "site_conflict",
        "flagged",
        "A name that a site's pattern and one of ours give different kinds is of the site's.",
    ),
    Rule("unknown_on_gpu", "flagged", "GPU work whose name no pattern knows counts as compute."),
)
# Rules that settle rows of Nsight Systems unseen, and refuse them.
REFUSED_UNSEEN = ("unknown_rank",)
REJECTED = tuple(rule.id for rule in RULES if rule.effect == "rejected")
# The phase of an event that says when it began and how long it took: no other can be an interval.
COMPLETE = "X"
_PHASE, _START, _LENGTH = nw.col("phase"), nw.col("ts_ns"), nw.col("duration_ns")
_UNTIMED = {"flow_arrow": ("s", "t", "f"), "metadata": ("M",), "mark": ("i", "I", "R", "C")}
_KNOWN = (COMPLETE, *(phase for phases in _UNTIMED.values() for phase in phases))
# What speaks against an event, in the order in which it is asked.
_RULED = (
    *((_PHASE.is_in(phases), rule) for rule, phases in _UNTIMED.items()),
    (~_PHASE.is_in(_KNOWN) | _PHASE.is_null(), "unknown_phase"),
    (_START.is_null() | _LENGTH.is_null(), "no_time"),
    (nw.col("_origin_ns").fill_null(0) >= _START, "zero_timestamp"),
    (_START <= 0, "zero_timestamp"),
    (_LENGTH < 0, "negative_duration"),
    ((_LENGTH > _LONGEST_NS) | (_START > _LATEST_NS - _LONGEST_NS), "overflow"),
)


def sentence_of(rule: str) -> nw.Expr:
    """The sentence of the rule that a column names."""
    sentence = nw.lit("")
    for entry in RULES:
        sentence = nw.when(nw.col(rule) == entry.id).then(nw.lit(entry.sentence)).otherwise(sentence)
    return sentence


def select_rejected(events: Frame, sources: Frame) -> Frame:
    """The events that a rule rejects, each with the first that does, named only where one does."""
    is_open = ~_is_ruled(tuple(_UNTIMED)) & nw.col("_fate").is_null()
    found = _from_origin(events, sources).filter(is_open, _is_ruled(REJECTED))
    return found.with_columns(rule=_first_rule(_RULED)).drop("_origin_ns")


def settle_by_phase() -> nw.Expr:
    """The rule that makes no interval of an event, by its fate and its phase alone; null where there is none."""
    by_phase = _first_rule([(condition, rule) for condition, rule in _RULED if rule in _UNTIMED])
    return nw.when(~nw.col("_fate").is_null()).then(nw.col("_fate")).otherwise(by_phase)


def select_intervals(events: Frame, sources: Frame) -> Frame:
    """The events that no rule speaks against; which one would is not asked here."""
    is_known = _PHASE.is_in([COMPLETE]) & nw.col("_fate").is_null()
    return _from_origin(events, sources).filter(is_known, ~_is_ruled(REJECTED)).drop("_origin_ns")


def _is_ruled(rules: Sequence[str]) -> nw.Expr:
    """Whether the condition of at least one of these rules holds."""
    found = nw.lit(False)
    for condition, rule in _RULED:
        if rule in rules:
            found |= condition.fill_null(False)
    return found


def _first_rule(ruled: Sequence[tuple[nw.Expr, str]]) -> nw.Expr:
    """The first of these rules whose condition holds."""
    verdict = nw.lit(None).cast(nw.String)
    for condition, rule in reversed(ruled):
        verdict = nw.when(condition).then(nw.lit(rule)).otherwise(verdict)
    return verdict


def _from_origin(events: Frame, sources: Frame) -> Frame:
    """Events beside the origin of their trace's clock."""
    origins = sources.filter(nw.col("outcome") == "kept").select(
        "source_sha256", _origin_ns=nw.col("base_ns").fill_null(0)
    )
    return events.join(origins, on="source_sha256", how="left")


def drop_duplicates(intervals: Frame) -> Frame:
    """Of equal intervals keep the first, and let it say how many more it stands for."""
    # Equal events have equal times: only events that share theirs are compared further.
    at_once = nw.col("ordinal").count().over("rank", "ts_ns", "duration_ns")
    intervals = compute_once(intervals.with_columns(_at_once=at_once))
    alone = intervals.filter(nw.col("_at_once") == 1).with_columns(duplicates_count=nw.lit(0).cast(nw.Int64))
    crowd = intervals.filter(nw.col("_at_once") > 1).with_columns(
        duplicates_count=nw.col("ordinal").count().over(*IDENTITY).cast(nw.Int64) - 1
    )
    first = number_rows(crowd, "_place", IDENTITY, "ordinal").filter(nw.col("_place") == 1).drop("_place")
    return nw.concat([alone, first]).drop("_at_once")
