"""What `teetotal gate` decides and how it says so: for a person, a program, and a pull request."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from assets.build.comparisons import compare_pair
from assets.build.freshness import Look
from assets.build.run_comparison import list_rows, select_pair, split_side
from gold import pairs, step_overhead, time_breakdown
from gold.gate import Bound, bound_part, bound_slowdown, combine
from gold.overhead_breakdown import GROUPS, average_part
from gold.run_differences import list_differences
from gold.time_breakdown import PARTS
from lake.errors import EvidenceRejected, nearest
from report.markdown import escape_markdown
from report.units import NOTHING, format_change
from silver import runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gold.pairs import Pair
    from lake.store import Lake

    Row = dict[str, Any]

EXITS = {"within": 0, "exceeded": 1, "undecided": 3}
_WORDS = {"within": "within its limits", "exceeded": "exceeds a limit", "undecided": "undecided"}


@dataclass(frozen=True)
class Decision:
    """What a gate decided of a pair, and by which limits."""

    pair: Pair
    outcome: str
    bounds: tuple[Bound, ...]
    differences: list[Row]
    verdict: str
    caveat: str | None


def read_limits(given: Sequence[str]) -> dict[str, float]:
    """Limits of parts in nanoseconds, as typed: part=ms."""
    limits = {}
    for limit in given:
        name, equals, value = limit.partition("=")
        known = (*PARTS, *GROUPS)
        if not equals:
            raise _wrong(f"{limit[:80]!r}: expected PART=MS", "for example hop=2.5")
        if name not in known:
            raise _wrong(f"{name[:80]!r}: no such part of a step", nearest(name[:80], known))
        try:
            limits[name] = float(value) * 1e6
        except ValueError:
            limits[name] = float("nan")
        if not abs(limits[name]) < 1e18:
            raise _wrong(f"{limit[:80]}: expected a number of milliseconds", f"for example {name}=2.5")
    return limits


def _wrong(what: str, hint: str) -> click.BadParameter:
    return click.BadParameter(f"{what} ({hint})", param_hint="--max-overhead")


def choose_sides(lake: Lake, run: str | None, against: str | None) -> tuple[str, str]:
    """The run to judge and its baseline: the last one recorded, and the baseline that it names, unless said."""
    if run is not None and against is not None:
        return run, against
    look = Look(lake)
    index = look.measured_runs
    if not index:
        raise EvidenceRejected(
            "the lake has no run with gold tables", "land one with `teetotal land`, then `teetotal run`"
        )
    if run is None:
        run = _find_last(lake, index, against)
    if against is None:
        leader = pairs.group_repeats(index)[split_side(index, run)[0]][0]
        found = look.pairs.get(leader)
        against = (found and found.baseline_run_id) or index[leader]["baseline"]
    if against is None:
        raise EvidenceRejected(f"{run} names no baseline", "name one: --against RUN, or --baseline-tag NAME")
    return run, against


def _find_last(lake: Lake, index: pairs.Index, against: str | None) -> str:
    """The run that was recorded last, as the manifests say, the baseline's own group aside."""
    groups = pairs.group_repeats(index)
    named = [name.strip() for name in (against or "").split(",")]
    own = {member for name in named if name in groups for member in groups[name]}
    rows = lake.scan(runs.TABLE, [name for name in index if name not in own]).select("run_id", "recorded_at").collect()
    dated = sorted((recorded_at, run_id) for run_id, recorded_at in rows.iter_rows() if recorded_at is not None)
    if not dated:
        raise EvidenceRejected(
            "no run says when it was recorded, so none is the last", "name the run to judge: --run ID"
        )
    return groups[dated[-1][1]][0]


def decide_gate(
    lake: Lake, run: str, against: str, slowdown: float, parts: Mapping[str, float], margin: float
) -> Decision:
    """Compare as `teetotal compare` does, and hold the intervals against the limits."""
    pair, index = select_pair(lake, against, run)
    noise = pairs.find_noise_groups({pair.run_id: pair}, index).get(pair.run_id, [])
    (step,) = compare_pair(lake, pair, noise, margin)[step_overhead.TABLE].to_pylist()
    if step["slowdown_ratio"] is None:
        raise EvidenceRejected(f"nothing to decide of {pair.run_id} against {pair.baseline_run_id}: {step['reason']}")
    bounds = [bound_slowdown(step, slowdown)]
    traced = {
        name: list_rows(lake, time_breakdown.TABLE, [name]) if parts else []
        for name in (*pair.candidates, *pair.baselines)
    }
    for part, limit in parts.items():
        sides = [[average_part(traced[name], part) for name in names] for names in (pair.candidates, pair.baselines)]
        ours, theirs = ([value for value in side if value is not None] for side in sides)
        lacking = sum(value is None for side in sides for value in side)
        bounds.append(bound_part(part, ours, theirs, limit, lacking=lacking))
    described = [list_rows(lake, runs.TABLE, names) for names in (pair.candidates, pair.baselines)]
    caveat = "; ".join(filter(None, (pair.caveat, step["caveat"]))) or None
    return Decision(pair, combine(bounds), tuple(bounds), list_differences(*described), step["verdict"], caveat)


def describe_decision(found: Decision) -> Row:
    """The decision for other programs."""
    return {
        "outcome": found.outcome,
        "exit_status": EXITS[found.outcome],
        "candidate": list(found.pair.candidates),
        "baseline": list(found.pair.baselines),
        "limits": [asdict(bound) for bound in found.bounds],
        "differences": found.differences,
        "verdict": found.verdict,
        "caveat": found.caveat,
    }


def format_text(found: Decision) -> Iterator[str]:
    """The decision for a person: the outcome, then each limit."""
    yield f"{found.pair.run_id} against {found.pair.baseline_run_id}: {_WORDS[found.outcome]}"
    for bound in found.bounds:
        limit, value, interval = _format_values(bound)
        yield f"  {bound.what}: {value}, {interval}; limit {limit}: {bound.outcome} ({bound.evidence})"
        yield from [f"    {bound.reason}"] if bound.reason else []
    yield f"  {found.verdict}"


def format_markdown(found: Decision) -> Iterator[str]:
    """The decision for a pull request."""
    yield f"### teetotal: {escape_markdown(found.pair.run_id)} {_WORDS[found.outcome]}"
    yield ""
    yield "| of a step | measured | 95 % interval | limit | outcome | evidence |"
    yield "|---|---|---|---|---|---|"
    for bound in found.bounds:
        limit, value, interval = _format_values(bound)
        what, outcome = escape_markdown(bound.what), f"**{bound.outcome}**"
        yield f"| {what} | {value} | {interval} | {limit} | {outcome} | {bound.evidence} |"
    yield ""
    yield from (f"- {escape_markdown(f'{bound.what}: {bound.reason}')}" for bound in found.bounds if bound.reason)
    sides = (("candidate", found.pair.candidates), ("baseline", found.pair.baselines))
    yield from (f"- {name}: {escape_markdown(', '.join(names))}" for name, names in sides)
    for row in found.differences:
        text = f"{row['field']}: {row['baseline_value'] or 'not said'} to {row['value'] or 'not said'}"
        yield f"- differs in {escape_markdown(text)}"
    yield f"- {escape_markdown(found.verdict)}"
    yield from [f"- {escape_markdown(found.caveat)}"] if found.caveat else []


def _format_values(bound: Bound) -> tuple[str, str, str]:
    """Limit, value and interval in the unit of the bound."""

    def format_value(value: float | None) -> str:
        if value is None:
            return NOTHING
        return f"{value:.3f}x" if bound.what == "slowdown" else format_change(value)

    interval = "no interval" if bound.low is None else f"{format_value(bound.low)} to {format_value(bound.high)}"
    return format_value(bound.limit), format_value(bound.value), interval
