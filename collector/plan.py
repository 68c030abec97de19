"""What the benchmark records: configurations by name, each with the baseline that it is held against."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import CollectorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MODES = ("native", "plain", "sealed")
MODELS = ("tiny", "resnet50", "bert-base", "gpt2")
# DDP's own cap; its first bucket is smaller.
BUCKET_CAP_MIB = 25.0


@dataclass(frozen=True)
class Configuration:
    """One run: a model on so many ranks, reduced in one way."""

    run_id: str
    model: str
    world: int
    mode: str
    variant: str = ""
    ring: dict[str, Any] = field(default_factory=dict)
    baseline: str | None = None
    repeat_of: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def plan_configurations(
    models: Sequence[str],
    worlds: Sequence[int],
    modes: Sequence[str],
    repeats: int,
    variants: Sequence[str] = (),
    variant_models: Sequence[str] = (),
    variant_worlds: Sequence[int] = (),
) -> list[Configuration]:
    """All configurations; a baseline comes before those that name it, and is repeated last."""
    for mode in modes:
        if mode not in MODES:
            raise CollectorError(f"modes: expected some of {', '.join(MODES)}, found {mode!r}")
    found: list[Configuration] = []
    for world in worlds:
        for model in models:
            found += _plan_modes(model, world, modes, repeats)
            if model in variant_models and world in variant_worlds:
                found += _plan_variants(model, world, variants)
    return found


def _plan_modes(model: str, world: int, modes: Sequence[str], repeats: int) -> Iterable[Configuration]:
    plain = f"{model}-plain-w{world}"
    for mode in MODES:
        if mode in modes:
            baseline = plain if mode == "sealed" and "plain" in modes else None
            ring = {} if mode == "native" else {"mode": mode}
            yield Configuration(f"{model}-{mode}-w{world}", model, world, mode, ring=ring, baseline=baseline)
    if "plain" in modes:
        for again in range(1, repeats + 1):
            yield Configuration(f"{plain}-again{again}", model, world, "plain", ring={"mode": "plain"}, repeat_of=plain)


def _plan_variants(model: str, world: int, variants: Sequence[str]) -> Iterable[Configuration]:
    plain = f"{model}-plain-w{world}"
    for variant in variants:
        ring = settings_of(variant)
        slug = variant.replace("=", "").replace("+", "-").replace("_", "-")
        baseline = plain
        if "bucket_cap_mib" in ring:
            # Another cap is another workload: it needs a baseline of its own.
            baseline = f"{plain}-{slug}"
            yield Configuration(baseline, model, world, "plain", variant, {**ring, "mode": "plain"})
        run_id = f"{model}-sealed-w{world}-{slug}"
        yield Configuration(run_id, model, world, "sealed", variant, {**ring, "mode": "sealed"}, baseline)


def settings_of(variant: str) -> dict[str, Any]:
    """The settings of `SealedRing` in words such as `chains=4+pipelined`."""
    found: dict[str, Any] = {}
    for word in variant.split("+"):
        name, _, value = word.partition("=")
        if name in {"pipelined", "direct"} and not value:
            found[name] = True
        elif name == "chains" and value.isdecimal():
            found[name] = int(value)
        elif name == "bucket_cap_mib" and value.replace(".", "", 1).isdecimal():
            found[name] = float(value)
        else:
            raise CollectorError(
                f"variant: expected chains=K, pipelined, direct or bucket_cap_mib=M, joined by '+', found {word!r}"
            )
    return found
