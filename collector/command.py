"""Record a script or a pair, run the benchmark, or say what this machine is."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import device
from .errors import CollectorError
from .hop import Hops, run_hops
from .manifest import check_run_id
from .pair_command import add_arguments, claim, run_pair
from .parent import end_with_parent
from .plan import plan_configurations
from .signing import KEY_VARIABLE, identify_key, make_key, make_nonce, read_key
from .window import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

# Only what trains or asks for a device imports torch: a process that starts others and waits has no use for it.


def run_command(arguments: Sequence[str] | None, program: str) -> int:
    """The command; 0 when all went well, 1 when something failed, 2 for wrong usage."""
    options = _parser(program).parse_args(arguments)
    try:
        return int(options.does(options))
    except CollectorError as error:
        sys.stderr.write(f"collector: {error}\n")
        return 1


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    commands = parser.add_subparsers(required=True)
    _add_run(commands.add_parser("run", help="record a training script; a step ends with each optimizer.step()"))
    pair = commands.add_parser("pair", help="record baseline and candidate in turns, as often as the question needs")
    add_arguments(pair)
    pair.set_defaults(does=run_pair)
    _add_bench(commands.add_parser("bench", help="train models under native, plain and sealed reduction"))
    _add_hop(commands.add_parser("hop", help="hold the ring's hops against cryptography alone, without training"))
    _add_key(commands.add_parser("key", help="make a key that signs recordings, and print a run's attestation nonce"))
    facts = commands.add_parser("facts", help="print what would go into run.toml from this machine")
    facts.set_defaults(does=_facts)
    rank = commands.add_parser("rank", help="one rank of the benchmark; started by it")
    rank.add_argument("plan", type=Path)
    rank.add_argument("rank", type=int)
    rank.set_defaults(does=_rank)
    hop_rank = commands.add_parser("hop-rank", help="one rank of hop; started by it")
    hop_rank.add_argument("plan", type=Path)
    hop_rank.add_argument("rank", type=int)
    hop_rank.set_defaults(does=_hop_rank)
    return parser


def _add_window(parser: argparse.ArgumentParser) -> None:
    usual = Window()
    parser.add_argument("--warmup", type=int, default=usual.warmup_steps, help="steps before anything is timed")
    parser.add_argument("--bare", type=int, default=usual.bare_steps, help="steps timed without the profiler")
    parser.add_argument("--steps", type=int, default=usual.recorded_steps, help="steps in the trace")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--landing", type=Path, required=True, help="landing zone; the run becomes a folder in it")
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of run.toml")
    _add_window(parser)
    parser.add_argument("--signing-key", type=Path, help=f"PEM file; {KEY_VARIABLE} by default, else nothing is signed")
    parser.add_argument("--cycles", type=int, default=1, help="how often bare and recorded steps take turns")
    parser.add_argument("--live", action="store_true", help="show each cycle as it is recorded; closed at the end")
    parser.add_argument("--trace-rank", action="append", type=int, help="a rank that leaves a trace; all by default")
    parser.add_argument("--extra", type=json.loads, default={}, help="further fields under [extra], as JSON")
    parser.add_argument(
        "--seal-for",
        type=Path,
        metavar="PUBLIC_KEY_FILE",
        help="encrypt all that is written for this lake, with --live each cycle",
    )
    parser.add_argument("script", help="training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(does=_run)


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="PEM file; made where it is not there")
    parser.add_argument("--run-id", required=True, help="the run whose attestation is asked with the nonce")
    parser.set_defaults(does=_key)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", type=_words, default=["tiny"], help="tiny, resnet50, bert-base, gpt2")
    parser.add_argument("--worlds", type=_numbers, default=[1, 2], help="ranks, for example 1,2,4")
    parser.add_argument("--modes", type=_words, default=["native", "plain", "sealed"])
    parser.add_argument("--repeats", type=int, default=0, help="further recordings of each plain run")
    parser.add_argument("--variants", type=_words, default=[], help="for example chains=4,pipelined,chains=4+direct")
    parser.add_argument("--variant-models", type=_words, default=[], help="models that the variants are run on")
    parser.add_argument("--variant-worlds", type=_numbers, default=[], help="worlds that the variants are run on")
    _add_window(parser)
    parser.add_argument("--trim-ranks", type=_numbers, default=[], help="ranks that leave a trace; all by default")
    parser.add_argument("--batch-size", type=int, default=None, help="samples per rank; each model has its own")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--hop-seconds", type=float, default=0.5, help="how long each rate is measured")
    parser.add_argument("--time-limit", type=float, default=900.0, metavar="S", help="no configuration starts after it")
    parser.add_argument("--patience", type=float, default=180.0, metavar="S", help="a silent configuration is given up")
    parser.add_argument("--out", type=Path, required=True, help="gets landing/, bench.json and bench.md")
    parser.set_defaults(does=_bench)


def _add_hop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--worlds", type=_numbers, default=[2, 4], help="ranks, for example 2,4")
    parser.add_argument("--chains", type=_numbers, default=[1], help="parallel chains, for example 1,4")
    parser.add_argument("--chunks-kib", type=_numbers, default=[256, 512, 1024, 2048], help="sizes of pipelined chunks")
    parser.add_argument("--transports", type=_words, default=["auto", "tcp"], help="auto, tcp")
    parser.add_argument("--bucket-mib", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each row is measured, about")
    parser.set_defaults(does=_hop)


def _key(options: argparse.Namespace) -> int:
    run_id = check_run_id(options.run_id)
    key = read_key(options.file) if options.file.exists() else make_key(options.file)
    sys.stdout.write(f"key {identify_key(key)}\nattestation_nonce {make_nonce(key, run_id)}\n")
    return 0


def _run(options: argparse.Namespace) -> int:
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from .recording import record

    end_with_parent()
    claims: dict[str, Any] = dict(claim(text) for text in options.set)
    is_traced = options.trace_rank is None or int(os.environ.get("RANK", "0")) in options.trace_rank
    # The script picks its device itself, later; a GPU that is there is recorded.
    where = "cuda" if torch.cuda.is_available() else None
    with record(
        options.landing,
        options.run_id,
        window=replace(_window(options), cycles=options.cycles),
        device=where,
        is_traced=is_traced,
        signing_key=options.signing_key,
        is_live=options.live,
        seal_for=options.seal_for,
        extra=options.extra,
        **claims,
    ) as recording:
        hook = register_optimizer_step_post_hook(lambda *_: recording.step())
        sys.argv = [options.script, *options.arguments]
        try:
            runpy.run_path(options.script, run_name="__main__")
        finally:
            hook.remove()
    return 0


def _bench(options: argparse.Namespace) -> int:
    import torch

    from .benchmark import Benchmark

    is_cuda = torch.cuda.is_available() if options.device == "auto" else options.device == "cuda"
    configurations = plan_configurations(
        options.models,
        options.worlds,
        options.modes,
        options.repeats,
        options.variants,
        options.variant_models or options.models[:1],
        options.variant_worlds or options.worlds[-1:],
    )
    bench = Benchmark(
        options.out,
        "cuda" if is_cuda else "cpu",
        _window(options),
        options.time_limit,
        options.patience,
        options.trim_ranks,
        options.batch_size,
        options.hop_seconds,
    )
    return 1 if bench.run(configurations) else 0


def _hop(options: argparse.Namespace) -> int:
    asked = Hops(options.chains, options.chunks_kib, options.transports, options.bucket_mib, options.seconds)
    for table in (asked.table(world) for world in options.worlds):
        sys.stdout.write(table + "\n")
        sys.stdout.flush()
    return 0


def _hop_rank(options: argparse.Namespace) -> int:
    run_hops(options.plan, options.rank)
    return 0


def _rank(options: argparse.Namespace) -> int:
    from .rank import run

    run(options.plan, options.rank)
    return 0


def _facts(_: argparse.Namespace) -> int:
    import torch

    where = torch.device("cuda", 0) if torch.cuda.is_available() else None
    mode, _said = device.confidential()
    found = {"cc_mode": mode, **device.gpu(where), **device.software(), **device.processor()}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


def _window(options: argparse.Namespace) -> Window:
    return Window(options.warmup, options.bare, options.steps)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _numbers(text: str) -> list[int]:
    return [int(word) for word in _words(text)]
