"""What `teetotal plan` is asked: options become a question, and a wrong one is answered with what was expected."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gold.hardware import HARDWARE, Hardware, read_hardware
from gold.pairs import OFF
from gold.strategy_counts import EXCHANGES
from gold.strategy_links import Cluster
from gold.strategy_question import Question
from gold.strategy_search import explain_no_layout
from gold.strategy_time import Workload
from lake.errors import ContractBroken, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gold.hardware import Gpu, Link
    from gold.strategy_question import MeasuredSealing

_Found = TypeVar("_Found")
_SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_MOST_GPUS = 4096
_ZERO = {"0": "ring_ddp", "1": "zero_1", "2": "zero_2", "3": "zero_3"}
_USUAL_GPU = "h100-sxm"
ALL = "all"


@dataclass(frozen=True)
class Sizes:
    """What was said of the model; what was not said is taken from `--model` or from a run."""

    model: str | None = None
    params: str | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    sequence: int | None = None
    vocabulary: int | None = None


@dataclass(frozen=True)
class Asked:
    """All options of the command but those of its output; a batch of 0 and a GPU without a name were not said."""

    sizes: Sizes
    gpus: int
    batch: int = 0
    gpus_per_node: int = 8
    gpu: str = ""
    links: tuple[str, ...] = ()
    regimes: tuple[str, ...] = (ALL,)
    zero: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    utilisation: float | None = None
    dtype: str = "bf16"
    bucket_mib: float | None = None
    hardware: Path | None = None


def read_options(options: Mapping[str, Any]) -> Asked:
    """The options as click gives them; what was not said keeps its default."""
    names = {one.name for one in fields(Sizes)}
    sizes = Sizes(**{name: value for name, value in options.items() if name in names})
    said = {name: value for name, value in options.items() if name not in names and value not in {None, ()}}
    return Asked(sizes, **said)


def read_hardware_file(path: Path | None) -> Hardware:
    """What is known, with what a user's file adds."""
    if path is None:
        return HARDWARE
    try:
        return read_hardware(path.read_bytes(), HARDWARE, name=path.name)
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--hardware") from error
    except ContractBroken as error:
        raise click.BadParameter(str(error), param_hint="--hardware") from error


def make_question(asked: Asked, measured: Mapping[str, MeasuredSealing] | None = None) -> Question:
    """The question, or an error that says which option is wrong and what would be right."""
    known = read_hardware_file(asked.hardware)
    gpu = _look_up("--gpu", known.gpu, asked.gpu or _USUAL_GPU)
    cluster = _make_cluster(asked, known, gpu)
    name, work = _make_workload(asked, known)
    peak = gpu.peak_flops.get(asked.dtype)
    if peak is None:
        raise click.BadParameter(
            f"{gpu.name} has no peak for {asked.dtype!r} ({nearest(asked.dtype, gpu.peak_flops)})", param_hint="--dtype"
        )
    if asked.utilisation is not None and not 0 < asked.utilisation <= 1:
        raise click.BadParameter(
            f"{asked.utilisation:g}: expected a fraction above 0 and at most 1 (for example 0.4)",
            param_hint="--utilisation",
        )
    if asked.bucket_mib is not None and not asked.bucket_mib > 0:
        raise click.BadParameter(f"{asked.bucket_mib:g}: expected a size above 0 MiB", param_hint="--bucket-mib")
    regimes = {one: known.regime(one) for one in _list_regimes(asked.regimes, known, gpu)}
    question = Question(
        name,
        work,
        cluster,
        regimes,
        peak,
        asked.utilisation or gpu.utilisation_fraction,
        _list_exchanges(asked),
        asked.bucket_mib * 2**20 if asked.bucket_mib else None,
        measured={one: rate for one, rate in (measured or {}).items() if one in regimes},
    )
    why = explain_no_layout(work, cluster, question.layouts)
    if why is not None:
        raise click.UsageError(why)
    return question


def _look_up(option: str, find: Callable[[str], _Found], name: str) -> _Found:
    try:
        return find(name)
    except ContractBroken as error:
        raise click.BadParameter(str(error), param_hint=option) from error


def _make_cluster(asked: Asked, known: Hardware, gpu: Gpu) -> Cluster:
    if not 1 <= asked.gpus <= _MOST_GPUS:
        raise click.BadParameter(f"{asked.gpus}: expected 1 to {_MOST_GPUS:,} GPUs", param_hint="--gpus")
    if asked.gpus_per_node < 1:
        raise click.BadParameter(f"{asked.gpus_per_node}: expected at least 1", param_hint="--gpus-per-node")
    if asked.gpus > asked.gpus_per_node and asked.gpus % asked.gpus_per_node:
        raise click.BadParameter(
            f"{asked.gpus} do not fill nodes of {asked.gpus_per_node} (ask for whole nodes, or say --gpus-per-node)",
            param_hint="--gpus",
        )
    links = [_look_up("--link", known.link, name) for name in asked.links]
    node = _pick(links, "node") or known.link(gpu.node_link)
    network = _pick(links, "network")
    if asked.gpus > asked.gpus_per_node and network is None:
        names = ", ".join(sorted(one.name for one in known.links.values() if one.scope == "network"))
        raise click.UsageError(f"{asked.gpus} GPUs are several nodes: say --link with what joins them ({names})")
    is_one_node = asked.gpus <= asked.gpus_per_node
    return Cluster(asked.gpus, min(asked.gpus, asked.gpus_per_node), gpu, node, None if is_one_node else network)


def _pick(links: Sequence[Link], scope: str) -> Link | None:
    mine = [one for one in links if one.scope == scope]
    if len(mine) > 1:
        where = "inside of a node" if scope == "node" else "between nodes"
        raise click.BadParameter(
            f"{mine[0].name} and {mine[1].name} are both links {where}: name one", param_hint="--link"
        )
    return mine[0] if mine else None


def _make_workload(asked: Asked, known: Hardware) -> tuple[str, Workload]:
    """The sizes of a known model, each of which an option may replace; without one, all of them must be said."""
    said = asked.sizes
    base = _look_up("--model", known.model, said.model) if said.model is not None else None
    given = {
        "--params": None if said.params is None else read_count(said.params),
        "--layers": said.layers,
        "--hidden": said.hidden,
        "--sequence": said.sequence,
        "--vocabulary": said.vocabulary,
    }
    names = ("parameters_count", "layers_count", "hidden_size", "sequence_length", "vocabulary_size")
    found = {
        option: value if value is not None or base is None else int(getattr(base, field))
        for (option, value), field in zip(given.items(), names, strict=True)
    }
    missing = [option for option, value in found.items() if value is None]
    if missing:
        raise click.UsageError(
            f"say --model NAME, or also {', '.join(missing)} (models: {', '.join(sorted(known.models))})"
        )
    if not asked.batch:
        raise click.UsageError("say --batch: the number of sequences per step, over all GPUs")
    for option, value in (*found.items(), ("--batch", asked.batch), ("--heads", said.heads or 1)):
        if value is None or value < 1:
            raise click.BadParameter(f"{value}: expected at least 1", param_hint=option)
    heads = said.heads or (base.heads_count if base is not None and said.hidden is None else None)
    params, layers, hidden, sequence, vocabulary = (int(value or 0) for value in found.values())
    if heads is not None and hidden % heads:
        raise click.BadParameter(f"{heads} heads do not divide a hidden size of {hidden}", param_hint="--heads")
    if vocabulary * hidden >= params:
        raise click.BadParameter(
            f"{params:,} parameters are fewer than those of the embedding, {vocabulary:,} times {hidden:,}",
            param_hint="--params",
        )
    name = said.model or f"{params / 1e9:.3g} B"
    return name, Workload(params, layers, hidden, sequence, vocabulary, asked.batch, heads)


def read_count(text: str) -> int:
    """A number of parameters: 1.5B, 350M, 13e9."""
    scale = _SUFFIXES.get(text[-1:].upper(), 1.0)
    try:
        value = float(text[:-1] if scale != 1.0 else text) * scale
    except ValueError:
        value = 0.0
    if not 1 <= value <= 1e15:
        raise click.BadParameter(f"{text[:40]!r}: expected a number such as 1.5B, 350M or 13e9", param_hint="--params")
    return round(value)


def _list_regimes(names: Sequence[str], known: Hardware, gpu: Gpu) -> list[str]:
    """The regimes asked about, that without a TEE first; a GPU has only those of its generation."""
    if ALL in names:
        return [one for one in known.regimes if one in gpu.regimes]
    for name in names:
        _look_up("--regime", known.regime, name)
        if name not in gpu.regimes:
            raise click.BadParameter(
                f"{name} does not exist on {gpu.name}; it has {', '.join(gpu.regimes)}", param_hint="--regime"
            )
    return [OFF, *dict.fromkeys(one for one in names if one != OFF)]


def _list_exchanges(asked: Asked) -> tuple[str, ...]:
    for name in asked.strategies:
        if name not in EXCHANGES:
            raise click.BadParameter(
                f"no strategy {name[:40]!r} ({nearest(name[:40], EXCHANGES)})", param_hint="--strategy"
            )
    chosen = (*asked.strategies, *(_ZERO[stage] for stage in asked.zero))
    return chosen or EXCHANGES
