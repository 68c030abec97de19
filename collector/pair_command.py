"""The command `pair`: its arguments, and the plan that they ask for."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .errors import CollectorError
from .manifest import check_run_id
from .pair import PairRecorder
from .pair_plan import BASELINE, CANDIDATE, Definition, PairPlan, Side, load_plan
from .pair_size import LEAST_BARE_STEPS, LEAST_REPEATS
from .plan import MODELS, MODES, settings_of
from .window import Window

_CC_MODES = ("off", "on", "devtools")
_MOST_REPEATS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command; without what to record, it continues the plan."""
    add = parser.add_argument
    add("--plan", type=Path, required=True, help="file of the plan; where it exists, recording continues")
    add("--side", choices=(BASELINE, CANDIDATE), help="record only this side: the machine is in its CC mode now")
    add("--time-limit", type=float, metavar="S", help="start no run that would not end within so many seconds")
    add("--patience", type=float, default=600.0, metavar="S", help="give a run up after so many seconds")
    add("--landing", type=Path, help="landing zone; each run becomes a folder in it")
    add("--model", choices=MODELS, help="a model of the benchmark; or name a script instead")
    add("--name", help="how run ids begin; needed with a script")
    add("--world", type=int, default=1, help="ranks on this host")
    add("--baseline", default="plain", help="of a model: native, plain or sealed, for example plain+bucket_cap_mib=4")
    add("--candidate", action="append", help="the same, for example sealed+pipelined; may be given several times")
    add("--baseline-cc", choices=_CC_MODES, help="CC mode that the baseline needs; a reboot lies between two modes")
    add("--candidate-cc", choices=_CC_MODES, help="CC mode that the candidate needs")
    add("--candidate-regime", help="regime of the candidate in run.toml, for example hopper_spt_cc")
    add("--baseline-args", type=shlex.split, default=[], help="further arguments of the script, on this side only")
    add("--candidate-args", type=shlex.split, default=[], help="further arguments of the script, on this side only")
    number = parser.add_mutually_exclusive_group()
    number.add_argument("--repeats", type=int, help=f"runs a side; {LEAST_REPEATS} by default")
    number.add_argument("--detect", type=float, metavar="FRACTION", help="as many runs as detect this, 0.05 for 5 %%")
    add("--most", type=int, default=_MOST_REPEATS, help="with --detect, the most runs a side")
    add("--per-block", type=int, default=1, help="runs a side before the other side's turn; more need fewer reboots")
    add("--seed", type=int, default=0, help="of the order of the third block and those after it")
    add("--traces", type=int, default=1, help="repeats a side that leave a trace; the first ones")
    add("--trace-ranks", type=_numbers, default=[], help="ranks that leave a trace in them; all by default")
    add("--warmup", type=int, default=3, help="steps before anything is timed")
    add("--bare", type=int, default=30, help=f"steps timed without the profiler, at least {LEAST_BARE_STEPS}")
    add("--steps", type=int, default=2, help="steps in a trace")
    add("--batch-size", type=int, help="of a model: samples per rank")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="of a model")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of run.toml, on both sides")
    add("script", nargs="?", help="training script; a step ends with each optimizer.step()")
    add("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def run_pair(options: argparse.Namespace) -> int:
    """Begin or continue the plan."""
    path: Path = options.plan.absolute()
    asked = None if options.model is None and options.script is None else _define(options)
    if path.exists():
        plan = load_plan(path)
        if asked is not None and asked != plan.definition:
            raise CollectorError(
                f"{path} is the plan of something else: continue it with --plan alone, or begin another"
            )
    elif asked is None:
        plan = load_plan(path)  # says that it is not there
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        plan = PairPlan(asked)
    return PairRecorder(path, plan, options.side, options.time_limit, options.patience).run()


def _define(options: argparse.Namespace) -> Definition:
    _check(options)
    return Definition(
        landing=str(options.landing.absolute()),
        workload=_workload(options),
        window=asdict(Window(options.warmup, options.bare, options.steps)),
        sides=_sides(options),
        repeats=None if options.detect is not None else options.repeats or LEAST_REPEATS,
        detect_fraction=options.detect,
        most_repeats=options.most if options.detect is not None else options.repeats or LEAST_REPEATS,
        runs_per_block=options.per_block,
        traces=options.traces,
        traced_ranks=tuple(options.trace_ranks),
        claims=dict(claim(text) for text in options.set),
        seed=options.seed,
    )


def _check(options: argparse.Namespace) -> None:
    least = {
        "bare": (options.bare, LEAST_BARE_STEPS),
        "warmup": (options.warmup, 0),
        "steps": (options.steps, 1),
        "world": (options.world, 1),
        "per-block": (options.per_block, 1),
        "traces": (options.traces, 0),
        "most": (options.most, LEAST_REPEATS),
        "repeats": (LEAST_REPEATS if options.repeats is None else options.repeats, 1),
    }
    for name, (found, needed) in least.items():
        if found < needed:
            raise CollectorError(f"--{name}: expected at least {needed}, found {found}")
    if options.detect is not None and not 0 < options.detect < 10:
        raise CollectorError(f"--detect: expected a fraction above 0, such as 0.05 for 5 %, found {options.detect:g}")
    if options.landing is None:
        raise CollectorError("--landing: expected the landing zone that the runs go to")
    if (options.model is None) == (options.script is None):
        raise CollectorError("expected either --model or a script, and not both")
    if options.script is not None and options.name is None:
        raise CollectorError("--name: expected a name for the pair, since run ids begin with it")


def _workload(options: argparse.Namespace) -> dict[str, Any]:
    if options.script is not None:
        script = str(Path(options.script).absolute())
        return {"script": script, "arguments": options.arguments, "world": options.world}
    import torch

    is_cuda = torch.cuda.is_available() if options.device == "auto" else options.device == "cuda"
    return {
        "model": options.model,
        "world": options.world,
        "batch_size": options.batch_size,
        "device": "cuda" if is_cuda else "cpu",
    }


def _sides(options: argparse.Namespace) -> tuple[Side, ...]:
    candidates = options.candidate or ["sealed"]
    if options.script is not None:
        regimes = ("cc_off", options.candidate_regime)
        named = [(BASELINE, "script", options.baseline_args), (CANDIDATE, "script", options.candidate_args)]
        sides = [
            Side(role, f"{options.name}-{role}", mode, "", {}, cc, regime, tuple(arguments))
            for (role, mode, arguments), cc, regime in zip(
                named, (options.baseline_cc, options.candidate_cc), regimes, strict=True
            )
        ]
    else:
        sides = [_model_side(options, BASELINE, options.baseline, options.baseline_cc, None)]
        for words in candidates:
            sides.append(_model_side(options, CANDIDATE, words, options.candidate_cc, options.candidate_regime))
    for side in sides:
        check_run_id(f"{side.run_id}-again99-retry99")
    return tuple(sides)


def _model_side(options: argparse.Namespace, role: str, words: str, cc_mode: str | None, regime: str | None) -> Side:
    """A side in words such as `sealed+pipelined`."""
    mode, _, variant = words.partition("+")
    if mode not in MODES:
        raise CollectorError(f"--{role}: expected one of {', '.join(MODES)} first, found {mode!r}")
    slug = variant.replace("=", "").replace("+", "-").replace("_", "-")
    cc = f"cc-{cc_mode}" if options.baseline_cc != options.candidate_cc else ""
    parts = (options.name or options.model, mode, f"w{options.world}", slug, cc)
    ring = {"mode": mode, **(settings_of(variant) if variant else {})}
    return Side(role, "-".join(part for part in parts if part), mode, variant, ring, cc_mode, regime)


def claim(text: str) -> tuple[str, str | int | float]:
    """A field of the manifest as it is typed; what looks like a number is one."""
    name, _, value = text.partition("=")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]
