"""What `teetotal plan` prints: the question, a ranked table per regime, and where the strategy must change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold.strategy_question import MODEL_ERROR
from pipelines.cli.show import format_grid
from report.forecasts import format_interval
from report.plans import STRATEGIES, describe_crossovers, name_layout, select_best
from report.units import format_duration, format_number, format_percent, format_ratio, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from gold.strategy_crossovers import Crossover
    from gold.strategy_question import Question

    Row = dict[str, Any]

_NUMBERS = ("place", "step", "ratio", "compute", "exchange", "sealing", "bubble", "memory", "sealed", "messages")
_YEAR_DAYS = 365.0


def describe_question(question: Question) -> list[str]:
    """The question in two lines: model and cluster, and what kernels are taken to reach."""
    work, cluster = question.work, question.cluster
    links = [cluster.node.name, *([cluster.network.name] if cluster.network else [])]
    sequences, tokens = format_number(work.batch), format_number(work.sequence_length)
    model = f"{question.model}: {work.parameters_count / 1e9:.3g} B parameters, {work.layers_count} layers"
    batch = f"{sequences} sequences of {tokens} tokens per step"
    nodes = f"({cluster.gpus_per_node} per node; {', '.join(links)})"
    return [
        f"{model}, {batch}, on {format_number(cluster.gpus_count)} {cluster.gpu.name} {nodes}",
        f"kernels reach {format_percent(question.utilisation)} of {question.peak_flops / 1e12:.0f} TFLOP/s",
    ]


def make_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """The best layout of each strategy as texts."""
    return [
        {
            "place": "" if row["place_number"] is None else f"{row['place_number']}",
            "strategy": STRATEGIES[row["strategy"]],
            "layout": name_layout(row["data_size"], row["tensor_size"], row["pipeline_size"]),
            "micro-batch": f"{row['micro_batch_size']}{', recomputed' if row['is_recomputed'] else ''}",
            "step": format_duration(row["predicted_step_ns"]),
            "interval": format_interval(row),
            "ratio": format_ratio(row["slowdown_ratio"]),
            "compute": _format_share(row, "compute", "launch", "update"),
            "exchange": _format_share(row, "communication"),
            "sealing": _format_share(row, "sealing"),
            "bubble": _format_share(row, "bubble"),
            "memory": format_size(row["memory_bytes"]),
            "sealed": format_size(row["sealed_bytes"]) if row["sealed_bytes"] else "",
            "messages": format_number(row["sealed_message_count"]) if row["sealed_message_count"] else "",
            "verdict": row["verdict"],
        }
        for row in rows
    ]


def _format_share(row: Row, *parts: str) -> str:
    spent = sum(row[f"{part}_ns"] for part in parts)
    return format_percent(spent / row["predicted_step_ns"]) if spent else ""


def describe_regime(question: Question, regime: str, rows: Sequence[Row]) -> list[str]:
    """What stands over a regime's table: what it is, and what its first row means beyond its step."""
    mine = [row for row in rows if row["regime"] == regime]
    first = next((row for row in mine if row["place_number"] == 1), None)
    kind = "" if not mine[0]["is_scenario"] else " (scenario from published constants, no interval)"
    if first is None:
        return [f"{regime}{kind}: nothing fits; more GPUs, a GPU with more memory or a smaller batch would"]
    tied = list(dict.fromkeys(STRATEGIES[row["strategy"]] for row in mine if row["verdict"] == "tie"))
    cut = name_layout(first["data_size"], first["tensor_size"], first["pipeline_size"])
    named = f"{STRATEGIES[first['strategy']]} {cut}"
    verdict = f"tie of {', '.join(tied)}" if len(tied) > 1 else f"best is {named}"
    lines = [f"{regime}{kind}: {verdict}; its step is mostly {first['dominant_term']}"]
    seen = sorted(question.regimes[regime].published_slowdowns.values())
    if seen:
        ends = f"{format_ratio(seen[0])} to {format_ratio(seen[-1])}" if len(seen) > 1 else format_ratio(seen[0])
        lines.append(f"  published for whole training jobs, of other models and strategies: {ends}")
    lasting = _format_days(first["nonce_budget_days"])
    back = "all go back to a checkpoint" if first["must_roll_back"] else "from another replica"
    counts = (
        *([f"a key lasts {lasting}"] if lasting else []),
        f"checkpoint {format_duration(first['checkpoint_ns'])}",
        f"attestation after a restart {format_duration(first['reattestation_ns'])}",
        f"a lost rank: {format_size(first['lost_rank_bytes'])} sent again, {back}",
    )
    return [*lines, f"  {named}: {'; '.join(counts)}"]


def _format_days(days: float | None) -> str:
    if days is None:
        return ""
    years = days / _YEAR_DAYS
    return f"{format_number(round(days, 1))} days" if years < 2 else f"{format_number(round(years))} years"


def print_plan(
    question: Question, rows: Sequence[Row], crossovers: Sequence[Crossover] | None, console: Console, *, every: bool
) -> None:
    """The answer for a person."""
    for line in describe_question(question):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    shown = [row for row in rows if row["is_fitting"]] if every else select_best(rows)
    for regime in question.regimes:
        console.print()
        for line in describe_regime(question, regime, rows):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        cells = make_cells([row for row in shown if row["regime"] == regime])
        if cells:
            filled = [name for name in cells[0] if any(cell[name] for cell in cells)]
            format_grid(console, filled, cells, _NUMBERS)
    if crossovers is not None:
        console.print()
        console.print("where switching the TEE on changes the choice:", highlight=False)
        for line in describe_crossovers(crossovers, question):
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    console.print()
    console.print(
        f"modelled; steps within {format_percent(MODEL_ERROR)} of the best are a tie; sealed and messages are per rank "
        "and step; layout is data × tensor × pipeline, ratio to the same layout without a TEE; "  # noqa: RUF001
        "docs/plan.md says what is assumed",
        style="dim",
        highlight=False,
        soft_wrap=True,
    )
