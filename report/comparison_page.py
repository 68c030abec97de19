"""The page of two runs that a person compares: what differs, the verdict, where it is paid, and what changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from report import ranges, waterfall
from report.markup import element, table
from report.page import write_sections
from report.section import Section
from report.summary import UNKNOWN_MODEL
from report.units import NOTHING, format_size, legible
from report.verdict_list import list_verdicts
from report.work_tables import list_changes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from report.markup import Markup

    Row = dict[str, Any]
    Rows = Sequence[Row]


def write_comparison(tables: Mapping[str, Rows], compared: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """The page as one HTML file; `tables` are rows by the full names of their tables, `compared` as JSON has them."""
    (step,) = tables["gold.step_overhead"]
    facts = {
        legible(name): {"model": legible(step["model"] or UNKNOWN_MODEL), "baseline": ""}
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
        list_changes("collectives", "Collectives", compared["collectives"]),
        list_changes("kernels", "Kernels", compared["kernels"]),
        list_changes("operations", "Calls of the CUDA API and copies", compared["operations"]),
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


def _describe_memory(memory: Row | None) -> str:
    if memory is None:
        return "No device was sampled on both sides, so memory is unobservable."
    ends = f"{format_size(memory['baseline_peak_bytes'])} (A), {format_size(memory['peak_bytes'])} (B)"
    return f"Peak in use, sampled: {ends}. {memory['verdict']}."
