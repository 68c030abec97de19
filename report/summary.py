"""The first page, for who decides: when, what was compared, the verdict, where it is paid, and what to do next."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gold.pairs import is_tee_overhead
from report.forecasts import RATE
from report.markup import element
from report.section import Section
from report.sentences import describe_share, dominant, is_concluded
from report.units import format_count, format_duration, format_ratio, legible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = dict[str, Any]
    Tables = Mapping[str, Sequence[Row]]
    Pairs = Sequence[tuple[Row, Row]]

_WORDS = {
    "slower": "slower",
    "faster": "faster",
    "no_difference": "no different",
    "not_shown": "undecided",
    "inconclusive": "undecided",
}
_MOST_NAMED = 4
UNKNOWN_MODEL = "an unknown model"


def summarise(tables: Tables, ordered: Pairs, made_on: str) -> Section:
    """Five lines; `ordered` are rows of gold.step_overhead with the row that leads each, the largest decided first."""
    secured = [pair for pair in ordered if is_tee_overhead(pair[0])]
    others = [pair for pair in ordered if not is_tee_overhead(pair[0])]
    lines = [
        ("Date", _tell_date(tables, made_on)),
        ("Compared", _tell_compared(tables, secured, others)),
        ("Verdict", _tell_verdict(secured or others)),
        ("Where", _tell_where(tables, secured or others)),
        ("Next", _tell_next(tables, secured or others)),
    ]
    cells = [part for name, text in lines for part in (element("dt", name), element("dd", legible(text)))]
    return Section("summary", "In five lines", before=(element("dl", *cells, class_="summary"),), kind="first")


def _tell_date(tables: Tables, made_on: str) -> str:
    days = sorted({row["recorded_at"][:10] for row in tables["silver.runs"] if row["recorded_at"]})
    recorded = (
        f"recorded {days[0]}" + (f" to {days[-1]}" if days[1:] else "") if days else "recorded at an unknown date"
    )
    return f"{f'made {made_on}; ' if made_on else ''}{format_count(len(tables['silver.runs']), 'run')} {recorded}"


def _count_verdicts(pairs: Pairs) -> str:
    counts = Counter(_WORDS[leading["verdict_class"]] for _, leading in pairs)
    return ", ".join(f"{counts[word]} {word}" for word in dict.fromkeys(_WORDS.values()) if counts[word])


def _tell_compared(tables: Tables, secured: Pairs, others: Pairs) -> str:
    """Runs under a TEE first; pairs of other runs are counted apart, because they say nothing of one."""
    told = [_tell_secured(tables, secured)] if secured else []
    if others:
        apart = f"{format_count(len(others), 'pair')} of other runs, no overhead of a TEE"
        told.append(f"{apart}: {_count_verdicts(others)}" if secured else apart)
    return "; ".join(told) or "nothing: no run here has a baseline"


def _tell_secured(tables: Tables, ordered: Pairs) -> str:
    models = {row["model"] or UNKNOWN_MODEL for row, _ in ordered}
    regimes = {row["regime"] or "an unknown regime" for row, _ in ordered}
    named = sorted(models)
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    gpus = sorted({row["gpu"] for row in tables["silver.runs"] if row["gpu"]})
    on = f" on {', '.join(gpus[:_MOST_NAMED])}" if gpus else ""
    return (
        f"{format_count(len(ordered), 'pair')} of {', '.join(named[:_MOST_NAMED])}{more}{on}: "
        f"{', '.join(sorted(regimes))} against the same training without it"
    )


def _tell_verdict(ordered: Pairs) -> str:
    if not ordered:
        return "none"
    slower = [leading["slowdown_ratio"] for _, leading in ordered if leading["verdict_class"] == "slower"]
    ends = sorted({format_ratio(one) for one in (min(slower), max(slower))}) if slower else []
    told = f"of {format_count(len(ordered), 'pair')}, {_count_verdicts(ordered)}"
    return told + (f"; slowdown {' to '.join(ends)}" if ends else "")


def _tell_where(tables: Tables, ordered: Pairs) -> str:
    decided = [row for row, leading in ordered if is_concluded(leading) and (row["overhead_ns"] or 0) > 0]
    if not decided:
        return "no overhead is shown, so nothing says where it is paid"
    row = decided[0]
    parts = [part for part in tables["gold.overhead_breakdown"] if part["run_id"] == row["run_id"]]
    where = dominant(row, parts)
    return f"largest in {row['run_id']}, {describe_share(row)}" + (f"; {where}" if where else "")


def _tell_next(tables: Tables, ordered: Pairs) -> str:
    """The remedy that saves most beyond the model's error, else the runs that would decide the largest open pair."""
    known = {row["run_id"] for row in tables["silver.runs"]}
    worth = [
        row
        for row in tables["gold.what_if"]
        if row["verdict"] == "worth it" and RATE not in row["change"] and row["run_id"] in known
    ]
    if worth:
        # What changes the mathematics is named only where nothing else is worth it, as `teetotal what-if` does.
        best = min(
            worth, key=lambda row: ("accumulate" in row["change"], -row["saved_ns"], row["run_id"], row["change"])
        )
        saved, now = (format_duration(best[name]) for name in ("saved_ns", "current_step_ns"))
        return f"try {best['change']} on {best['run_id']}: it would save {saved} of {now} per step, modelled"
    undecided = [leading for _, leading in ordered if not is_concluded(leading) and leading.get("more_runs_count")]
    if undecided:
        first = undecided[0]
        return f"record {format_count(first['more_runs_count'], 'more run')} per side of {first['run_id']} to decide it"
    if not ordered:
        return "record the same training with and without its TEE, three runs per side (docs/collector.md)"
    return "nothing is predicted to be worth it; what was tried is under What would make it cheaper"
