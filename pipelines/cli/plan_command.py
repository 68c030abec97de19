"""The command `teetotal plan`; what it needs is imported when it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from pipelines.settings import Settings


@click.command()
@click.option("--model", metavar="NAME", help="A public model: gpt-2-xl, llama-2-13b, llama-2-70b, …")
@click.option(
    "--params", metavar="P", help="Parameters, such as 1.5B; with --layers, --hidden, --sequence, --vocabulary."
)
@click.option("--layers", type=int, metavar="L", help="Transformer layers.")
@click.option("--hidden", type=int, metavar="H", help="Hidden size.")
@click.option("--heads", type=int, metavar="A", help="Attention heads, which a tensor degree must divide.")
@click.option("--sequence", type=int, metavar="S", help="Tokens per sequence.")
@click.option("--vocabulary", type=int, metavar="V", help="Size of the vocabulary.")
@click.option("--batch", type=int, metavar="B", help="Sequences per step, over all GPUs.")
@click.option("--gpus", type=int, required=True, metavar="N", help="GPUs, up to 4,096.")
@click.option("--gpus-per-node", type=int, default=8, show_default=True, metavar="K")
@click.option("--gpu", metavar="NAME", help="GPU: a100-80gb, h100-sxm, h200-sxm, b200-sxm, … [default: h100-sxm]")
@click.option(
    "--link", "links", multiple=True, metavar="NAME", help="Link of a node or between nodes: nvlink4, infiniband-ndr, …"
)
@click.option(
    "--regime",
    "regimes",
    multiple=True,
    metavar="R",
    help="Regime to compare with cc_off; all that the GPU has by default.",
)
@click.option(
    "--zero", multiple=True, type=click.Choice(["0", "1", "2", "3"]), help="Only these stages of ZeRO; 0 is ring DDP."
)
@click.option("--strategy", "strategies", multiple=True, metavar="NAME", help="Only these: ring_ddp, gossip, zero_3, …")
@click.option(
    "--utilisation", type=float, metavar="U", help="Share of the peak that kernels reach, without communication."
)
@click.option("--dtype", default="bf16", show_default=True, metavar="NAME", help="Number format of the peak.")
@click.option("--bucket-mib", type=float, metavar="M", help="Bucket cap in MiB; the best for each strategy by default.")
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    help="Take model, batch, GPU, utilisation and cost of sealing from a run of the lake.",
)
@click.option(
    "--hardware",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="GPUs, links, regimes and models of your own (TOML).",
)
@click.option("--every", is_flag=True, help="Print every layout that fits, not only the best of each strategy.")
@click.option("--no-crossovers", is_flag=True, help="Do not search where the choice changes.")
@click.option(
    "--figure", type=click.Path(path_type=Path), metavar="FILE", help="Draw strategies against regimes (SVG)."
)
@click.option(
    "--scaling", type=click.Path(path_type=Path), metavar="FILE", help="Draw the step against the number of GPUs (SVG)."
)
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.pass_obj
def plan(
    chosen: Settings,
    /,
    run_id: str | None,
    every: bool,
    no_crossovers: bool,
    figure: Path | None,
    scaling: Path | None,
    form: str,
    **options: Any,
) -> None:
    """Compare strategies for a training job, without a TEE and under each regime.

    Data parallel ring, parameter server, decentralised and gossip exchange, ZeRO-1 to 3, with tensor and pipeline
    parallelism: every layout of the GPUs is timed and sized, ranked, and called a tie where the order is not decided.
    Every number is modelled; regimes without pairs in the lake are scenarios from published constants.
    """
    from gold import strategy_plan
    from gold.strategy_crossovers import find_crossovers
    from pipelines.cli import plan_figures, plan_questions, plan_text, show

    asked = plan_questions.read_options(options)
    measured = None
    if run_id is not None:
        from pipelines.cli.plan_runs import take_run

        taken = take_run(session.open_built_lake(chosen), run_id, asked)
        asked, measured = taken.asked, taken.measured
        for line in taken.lines:
            session.print_lines(line, err=True)
    question = plan_questions.make_question(asked, measured)
    answer = strategy_plan.measure(question)
    if form != "table":
        show.write_rows(answer.to_reader(), form, sys.stdout.buffer)
    else:
        found = None if no_crossovers else find_crossovers(question)
        plan_text.print_plan(question, answer.to_pylist(), found, session.console(), every=every)
    plan_figures.write_figures(question, answer.to_pylist(), figure, scaling)
