"""The generated parts of docs/plan.md and its figures: `python -m pipelines.cli.plan_page` writes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gold import strategy_plan
from gold.pairs import OFF
from gold.strategy_checks import check_steps
from gold.strategy_crossovers import find_crossovers
from pipelines.cli.plan_figures import write_figures
from pipelines.cli.plan_questions import Asked, Sizes, make_question
from report.plans import STRATEGIES, describe_crossovers, name_layout
from report.units import format_duration, format_number, format_percent, format_ratio, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gold.strategy_question import Question

    Row = dict[str, Any]

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "plan.md"
_GPUS = ("h100-sxm", "b200-sxm")
_BLOCK = re.compile(r"(<!-- (?P<name>[a-z0-9-]+): written by plan_page -->\n).*?(<!-- end -->)", re.DOTALL)
EXAMPLES = {
    "1-5b-on-8": Asked(Sizes(model="gpt-2-xl"), 8, batch=128),
    "13b-on-64": Asked(Sizes(model="llama-2-13b"), 64, batch=1024, links=("infiniband-ndr",)),
    "70b-on-512": Asked(Sizes(model="llama-2-70b"), 512, batch=2048, links=("infiniband-ndr",)),
}


def list_questions(name: str) -> list[Question]:
    """An example on a GPU of each generation, so that every regime has one."""
    asked = EXAMPLES[name]
    return [make_question(Asked(**{**vars(asked), "gpu": gpu})) for gpu in _GPUS]


def fill_page(text: str) -> str:
    """The page with its blocks as the planner gives them now."""
    return _BLOCK.sub(lambda found: f"{found[1]}{_render(found['name'])}\n{found[3]}", text)


def _render(name: str) -> str:
    return "\n".join(_render_checks() if name == "checks" else _render_example(name))


def _render_example(name: str) -> list[str]:
    asked, questions = EXAMPLES[name], list_questions(name)
    links = "".join(f" --link {one}" for one in asked.links)
    command = f"teetotal plan --model {asked.sizes.model} --batch {asked.batch} --gpus {asked.gpus}{links}"
    lines = ["```", *(f"$ {command} --gpu {question.cluster.gpu.name}" for question in questions), "```", ""]
    lines += [
        "| GPU | regime | best, or tie with it | step | over cc_off | mostly | memory | sealed per rank and step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for question in questions:
        rows = strategy_plan.measure(question).to_pylist()
        lines += [_render_regime(question, rows, regime) for regime in question.regimes]
    for question in questions:
        lines += ["", f"Where switching the TEE on changes the choice, on {question.cluster.gpu.name}:", ""]
        lines += [f"- {line}" for line in describe_crossovers(find_crossovers(question), question)]
    return lines


def _render_regime(question: Question, rows: Sequence[Row], regime: str) -> str:
    firsts = {row["regime"]: row for row in rows if row["place_number"] == 1}
    row, off = firsts.get(regime), firsts.get(OFF)
    cells = [question.cluster.gpu.name, f"`{regime}`"]
    if row is None or off is None:
        return f"| {' | '.join([*cells, 'nothing fits', *[''] * 5])} |"
    mine = [one for one in rows if one["regime"] == regime]
    tied = list(dict.fromkeys(STRATEGIES[one["strategy"]] for one in mine if one["verdict"] == "tie"))
    cut = name_layout(row["data_size"], row["tensor_size"], row["pipeline_size"])
    others = ", ".join(name for name in tied if name != STRATEGIES[row["strategy"]])
    named = f"{STRATEGIES[row['strategy']]} {cut}{f'; tie with {others}' if others else ''}"
    sealed = f"{format_size(row['sealed_bytes'])} in {format_number(row['sealed_message_count'])} messages"
    cells += [
        named,
        format_duration(row["predicted_step_ns"]),
        format_ratio(row["predicted_step_ns"] / off["predicted_step_ns"]),
        row["dominant_term"],
        format_size(row["memory_bytes"]),
        sealed if row["sealed_bytes"] else "nothing",
    ]
    return f"| {' | '.join(cells)} |"


def _render_checks() -> list[str]:
    lines = [
        "| public configuration | GPUs | layout | published step | by stated utilisation | kernels reach | predicted |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in check_steps():
        predicted = (
            "given" if row["is_given"] else f"{row['predicted_s']:.3g} s, {_format_error(row['error_fraction'])}"
        )
        cells = [
            f"[{row['set']}]({row['url']}), {STRATEGIES[row['exchange']]}",
            format_number(row["gpus"]),
            name_layout(*row["degrees"]),
            f"{row['measured_s']:.3g} s",
            _format_error(row["stated_error_fraction"]),
            format_percent(row["utilisation"]),
            predicted,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _format_error(fraction: float) -> str:
    return f"{fraction * 100:+.1f} %".replace("-0.0", "+0.0").replace("-", "−")  # noqa: RUF001


def write_page() -> None:
    """Write the blocks of the page, and its figures."""
    PAGE.write_text(fill_page(PAGE.read_text("utf-8")), "utf-8")
    places = DOCS / "figures"
    places.mkdir(exist_ok=True)
    for name in EXAMPLES:
        for question in list_questions(name):
            rows = strategy_plan.measure(question).to_pylist()
            stem = f"plan-{name}-{question.cluster.gpu.name.partition('-')[0]}"
            scaling = places / f"{stem}-gpus.svg" if question.cluster.gpu.name == _GPUS[0] else None
            write_figures(question, rows, places / f"{stem}.svg", scaling)


if __name__ == "__main__":
    write_page()
