"""What `teetotal compare` says of two runs: for a person, for a program, and as a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gold import energy_overhead, overhead_breakdown, pairs, step_overhead, throughput_overhead
from pipelines.cli import session
from pipelines.cli.report import read_versions, write_page
from pipelines.cli.show import format_grid
from pipelines.cli.verdicts import format_answer
from report.comparison_page import write_comparison
from report.units import format_change, format_duration, format_number, format_ratio, format_size
from report.work_tables import WORDS, cut_text, describe_work, summarise_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from assets.build.run_comparison import RunComparison

    Row = dict[str, Any]

_MOST_ROWS = 10
_LONGEST_NAME = 64
_WORK = ("collectives", "kernels", "operations")


def describe_comparison(found: RunComparison) -> Row:
    """All of a comparison for other programs; rows have the columns of the lake's own tables where it has them."""
    (step,) = found.rows(step_overhead.TABLE)
    return {
        "baseline": list(found.pair.baselines),
        "candidate": list(found.pair.candidates),
        "differences": found.differences,
        "step": step,
        "log": next(iter(found.rows(throughput_overhead.TABLE)), None),
        "energy": next(iter(found.rows(energy_overhead.TABLE)), None),
        "parts": found.rows(overhead_breakdown.TABLE),
        **{name: getattr(found, name) for name in _WORK},
        "memory": found.memory,
        "notes": list(found.notes),
    }


def format_json(answer: Row) -> str:
    """The same as text."""
    return json.dumps(answer, ensure_ascii=False, indent=2, allow_nan=False)


def write_html(found: RunComparison, out: Path) -> int:
    """The page of a comparison; gives its size in bytes."""
    shown = (pairs.TABLE, step_overhead.TABLE, throughput_overhead.TABLE, overhead_breakdown.TABLE)
    tables = {table.full_name: found.rows(table) for table in shown} | {"gold.attested_runs": []}
    return write_page(out, write_comparison(tables, describe_comparison(found), read_versions()))


def print_comparison(answer: Row, console: Console) -> None:
    """What differs first, then the verdict, where it is paid, and what changed, the largest change first."""
    for line in _format_head(answer):
        session.print_lines(line)
    for name in _WORK:
        rows = answer[name]
        session.print_lines("")
        session.print_lines(f"{name}: {summarise_changes(rows) if rows else 'not recorded on both sides'}")
        if rows:
            _print_changes(rows, console)
    session.print_lines("")
    session.print_lines(f"memory: {_format_memory(answer['memory'])}")
    for note in answer["notes"]:
        session.print_lines(f"note: {note}")


def _format_head(answer: Row) -> Iterator[str]:
    for letter, side in (("A", "baseline"), ("B", "candidate")):
        names = answer[side]
        yield f"{letter}: {', '.join(names)} ({len(names)} run{'' if len(names) == 1 else 's'})"
    differing = answer["differences"]
    yield "differs in" if differing else "no difference in software, hardware or settings, as far as they say"
    for row in differing:
        yield f"  {row['field']}: {row['baseline_value'] or 'not said'} (A), {row['value'] or 'not said'} (B)"
    step = answer["step"]
    yield ""
    if step["slowdown_ratio"] is not None:
        steps = f"A {format_duration(step['baseline_step_ns'])}, B {format_duration(step['step_ns'])}"
        counts = f"{step['baseline_steps_count']} and {step['steps_count']} steps"
        yield f"step: {steps}, {format_change(step['overhead_ns'])}; {counts}; {step['evidence']}"
    yield from format_answer(step, answer["log"], answer["parts"], ("A", "B"))
    yield from (f"  {step[name]}" for name in ("caveat",) if step[name])


def _print_changes(rows: Sequence[Row], console: Console) -> None:
    shown = rows[:_MOST_ROWS]
    cells = [
        {
            "per step": cut_text(describe_work(row), _LONGEST_NAME),
            "change": WORDS[row["change"]],
            "A": format_duration(row["baseline_step_total_ns"]),
            "B": format_duration(row["step_total_ns"]),
            "difference": format_change(row["overhead_ns"]),
            "ratio": format_ratio(row["slowdown_ratio"]),
            "times": _format_times(row),
            "exposed": _format_exposed(row),
        }
        for row in shown
    ]
    names = [name for name in cells[0] if any(cell[name] for cell in cells)]
    format_grid(console, names, cells, ("A", "B", "difference", "ratio"))
    if len(rows) > len(shown):
        session.print_lines(f"and {len(rows) - len(shown)} more, with smaller changes (--format json has all)")


def _format_times(row: Row) -> str:
    counts = row["baseline_step_count"], row["step_count"]
    return "" if counts == (None, None) else " to ".join(format_number(one or 0) for one in counts)


def _format_exposed(row: Row) -> str:
    ends = [row.get(name) for name in ("baseline_step_exposed_ns", "step_exposed_ns")]
    return "" if None in ends else " to ".join(map(format_duration, ends))


def _format_memory(memory: Row | None) -> str:
    if memory is None:
        return "no device was sampled on both sides, so it is unobservable"
    ends = f"peak {format_size(memory['baseline_peak_bytes'])} (A), {format_size(memory['peak_bytes'])} (B)"
    return f"{ends}; {memory['verdict']}; {memory['evidence']}"
