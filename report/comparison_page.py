"""The page of two runs that a person compares: what differs, the verdict, where it is paid, and what changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gold.work_changes import CHANGES
from report import ranges, waterfall
from report.markup import element, table
from report.page import write_sections
from report.sections import Section, list_verdicts
from report.units import NOTHING, format_change, format_duration, format_number, format_ratio, format_size, legible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from report.markup import Markup

    Row = dict[str, Any]
    Rows = Sequence[Row]

MOST_ROWS = 40
_LONGEST_NAME = 48
WORDS = {name: name.replace("_", " ") for name in CHANGES}


def write_comparison(tables: Mapping[str, Rows], compared: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """The page as one HTML file; `tables` are rows by the full names of their tables, `compared` as JSON has them."""
    (step,) = tables["gold.step_overhead"]
    facts = {
        legible(name): {"model": legible(step["model"] or "unknown"), "baseline": ""}
        for name in (step["run_id"], step["baseline_run_id"])
    }
    drawn = replace(
        waterfall.overhead_breakdown(tables["gold.overhead_breakdown"]),
        subtitle="mean step of all ranks, in ms, from the baseline (A) to the run (B); pieces sum to the difference",
    )
    parts = (("overhead_breakdown", drawn),) if tables["gold.overhead_breakdown"] else ()
    slower = (("step_overhead", ranges.step_overhead([step])),) if step["slowdown_ratio"] else ()
    made = [
        Section("differences", "What differs in what they say of themselves", before=(_list_fields(compared),)),
        Section("verdicts", "Verdict", before=tuple(list_verdicts(tables)), figures=slower),
        Section("overhead", "Where it is paid", figures=parts),
        _list_changes("collectives", "Collectives", compared["collectives"]),
        _list_changes("kernels", "Kernels", compared["kernels"]),
        _list_changes("operations", "Calls of the CUDA API and copies", compared["operations"]),
        Section("memory", "Memory of the GPU", _describe_memory(compared["memory"])),
        Section("provenance", "Provenance", ", ".join(f"{name} {value}" for name, value in versions.items())),
    ]
    lead = f"A, the baseline: {', '.join(compared['baseline'])}. B: {', '.join(compared['candidate'])}. "
    lead += "Every number says where it comes from."
    title = f"{step['run_id']} against {step['baseline_run_id']}"
    return write_sections(title, lead, facts, [section for section in made if section.is_there])[0]


def _list_fields(compared: Mapping[str, Any]) -> Markup:
    rows = compared["differences"]
    if not rows:
        return element("p", "Nothing: software, hardware and settings are the same, as far as they say.", class_="lead")
    cells = [(None, [row["field"], row["baseline_value"] or NOTHING, row["value"] or NOTHING]) for row in rows]
    return table("Fields that differ", [("field", False), ("A", False), ("B", False)], cells)


def _list_changes(name: str, title: str, rows: Rows) -> Section:
    """The largest changes of a step's time; what only one side has is new or gone."""
    if not rows:
        return Section(name, title, "Not recorded on both sides.")
    has_exposed = any(row.get("step_exposed_ns") is not None for row in rows)
    columns = [("what", False), ("change", False), ("A per step", True), ("B per step", True), ("difference", True)]
    columns += [("ratio", True), ("q", True), ("times A", True), ("times B", True)]
    columns += [("exposed A", True), ("exposed B", True)] if has_exposed else []
    lines = [(None, _format_cells(row, has_exposed=has_exposed)) for row in rows[:MOST_ROWS]]
    left = len(rows) - len(lines)
    lead = f"{summarise_changes(rows)}. Time per rank and step, measured"
    lead += f"; the {MOST_ROWS} largest changes of {len(rows)}." if left > 0 else "."
    return Section(name, title, lead, (table(title, columns, lines),))


def _format_cells(row: Row, *, has_exposed: bool) -> list[str]:
    cells = [
        cut_text(describe_work(row), _LONGEST_NAME),
        WORDS[row["change"]],
        format_duration(row["baseline_step_total_ns"]),
        format_duration(row["step_total_ns"]),
        format_change(row["overhead_ns"]),
        format_ratio(row["slowdown_ratio"]),
        format_number(row["q_value"]),
        format_number(row["baseline_step_count"]),
        format_number(row["step_count"]),
    ]
    if has_exposed:
        cells += [format_duration(row.get(name)) for name in ("baseline_step_exposed_ns", "step_exposed_ns")]
    return cells


def describe_work(row: Row) -> str:
    """The name of a kind of work, with what sets it apart from others of that name."""
    kind = "" if row["kind"] in {"compute", "call"} else f" ({row['kind'].replace('_', ' ')})"
    return f"{row['name'] or 'unnamed'}{kind}{': ' + row['detail'] if row['detail'] else ''}"


def cut_text(text: str, longest: int) -> str:
    """A text of at most so many letters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def summarise_changes(rows: Rows) -> str:
    """How many kinds of work changed, and how."""
    counts = {name: sum(row["change"] == name for row in rows) for name in WORDS}
    return f"{len(rows)} compared: " + ", ".join(f"{count} {WORDS[name]}" for name, count in counts.items() if count)


def _describe_memory(memory: Row | None) -> str:
    if memory is None:
        return "No device was sampled on both sides, so memory is unobservable."
    ends = f"{format_size(memory['baseline_peak_bytes'])} (A), {format_size(memory['peak_bytes'])} (B)"
    return f"Peak in use, sampled: {ends}. {memory['verdict']}."
