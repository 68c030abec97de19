"""Answers as sentences, the same in the terminal and on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold.pairs import is_tee_overhead
from report.colours import WORDS
from report.units import finite, format_change, format_percent, format_ratio
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]


_CONCLUDED = {"slower", "faster", "more", "less", "no_difference"}
_UNDECIDED = {"not_shown": "not shown", "inconclusive": "inconclusive"}


def is_concluded(answer: Row) -> bool:
    """Whether the numbers of an answer allow a conclusion."""
    return answer["verdict_class"] in _CONCLUDED


def name_pair(row: Row) -> str:
    """Who is compared with whom; of a pair that says nothing of a TEE, that it does not."""
    names = f"{row['run_id']} against {row['baseline_run_id']}"
    return names if is_tee_overhead(row) else f"{names}, a difference between two runs and no overhead of a TEE"


def name_regimes(row: Row) -> str:
    """The regime; of a pair that says nothing of a TEE, both."""
    return str(row["regime"]) if is_tee_overhead(row) else f"{row['regime']} against {row['baseline_regime']}"


def headline(answer: Row, name: str = "slowdown_ratio") -> str:
    """What may stand in large letters: the ratio where something is concluded, else that nothing is."""
    return format_ratio(answer[name]) if is_concluded(answer) else _UNDECIDED[answer["verdict_class"]]


def lead(step: Row, log: Row | None) -> Row:
    """The answer with the best evidence: measured before modelled, a log before a trace, steps before rates."""
    if log is None or log["slowdown_ratio"] is None:
        return step
    if step["slowdown_ratio"] is None:
        return log
    weakness = [EVIDENCE.index(answer["evidence"]) for answer in (step, log)]
    if weakness[0] != weakness[1]:
        return step if weakness[0] < weakness[1] else log
    return step if step["source"] == "log" else log


def tell_verdict(answer: Row) -> str:
    """The verdict with its source; where the sources disagree, it says so itself, and first."""
    if answer.get("disagreement") or answer["slowdown_ratio"] is None:
        return str(answer["verdict"])
    source = "training log" if answer.get("source", "log") == "log" else "trace"
    return f"by its {source}: {answer['verdict']}"


def describe_other_source(step: Row, leading: Row) -> str | None:
    """What the weaker source says, beside the one that leads; None where there is none."""
    if leading is not step:
        return f"by its trace: {step['verdict']}" if step["source"] == "trace" else None
    if step["other_source"] is None:
        return None
    where = "training log" if step["other_source"] == "log" else "trace"
    bounds = [step[f"other_slowdown_{end}_ratio"] for end in ("low", "high")]
    interval = ", no interval" if None in bounds else f", {bounds[0]:.2f} to {bounds[1]:.2f}"
    return f"by its {where}: {step['other_slowdown_ratio']:.2f}x{interval}"


def dominant(answer: Row, parts: Sequence[Row]) -> str | None:
    """Where most of a pair's overhead goes; None where no part stands out."""
    share = answer["dominant_fraction"]
    delta = next((row["overhead_ns"] for row in parts if row["part"] == answer["dominant_part"]), None)
    if delta is None or not finite(share):
        return None
    total = sum(row["overhead_ns"] or 0 for row in parts)
    where = WORDS[answer["dominant_part"]]
    sentence = f"{where}: {ms(delta)} ms per step; other parts shrink beside it, so that {ms(total)} ms remain"
    if share <= 1:
        most = "most" if share > 0.5 else "the largest part"
        sentence = f"{most} of it is spent on {where}: {ms(delta)} of {ms(total)} ms per step ({share:.0%})"
    return sentence if is_concluded(answer) else f"in these two traces, {sentence}"


def describe_share(answer: Row) -> str:
    """The overhead of a step as a time and as a share of the step, so that large and small steps are both readable."""
    if answer["overhead_ns"] is None or not answer["step_ns"]:
        return "no overhead is known"
    share = format_percent(answer["overhead_ns"] / answer["step_ns"])
    return f"{format_change(answer['overhead_ns'])} per step, {share} of the step"


def ms(overhead_ns: int) -> str:
    """A change in milliseconds, with its sign."""
    return f"{overhead_ns / 1e6:+.1f}"
