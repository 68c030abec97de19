"""The benchmark's tables: step by model, world and mode; what sealing reached; how far a variant moved it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .plan import Configuration

    Results = Mapping[str, Mapping[str, Any]]

_WHAT = (
    "Measured; steps are medians of rank 0 without the profiler, wall clock. Sealing is done in software beside the "
    "training (regime sw_per_hop_aesgcm, an emulation): no run was inside a TEE."
)


def tables(configurations: Sequence[Configuration], results: Results, faults: Mapping[str, str]) -> str:
    """All tables as Markdown."""
    parts = [_WHAT, _steps(configurations, results), _sealing(configurations, results)]
    if any(item.variant for item in configurations):
        parts.append(_variants(configurations, results))
    if faults:
        parts.append("\n".join(["Not recorded:", *(f"- {run_id}: {why}" for run_id, why in faults.items())]))
    return "\n\n".join(parts) + "\n"


def _steps(configurations: Sequence[Configuration], results: Results) -> str:
    header = ("model", "ranks", "native ms", "plain ms", "sealed ms", "sealed / plain", "noise of plain")
    rows = []
    for model, world in dict.fromkeys((item.model, item.world) for item in configurations):
        native, plain, sealed = (_step(results, f"{model}-{mode}-w{world}") for mode in ("native", "plain", "sealed"))
        again = [_step(results, item.run_id) for item in configurations if item.repeat_of == f"{model}-plain-w{world}"]
        moved = [abs(other / plain - 1) for other in again if other and plain]
        ratio = f"{sealed / plain:.2f}" if sealed and plain else "-"
        rows.append(
            (model, str(world), _ms(native), _ms(plain), _ms(sealed), ratio, f"{max(moved):.1%}" if moved else "-")
        )
    return markdown(header, rows)


def _sealing(configurations: Sequence[Configuration], results: Results) -> str:
    header = (
        "run",
        "seal GB/s",
        "open GB/s",
        "hop GB/s",
        "one core alone GB/s",
        "same threads alone GB/s",
        "spans / alone",
        "hop / alone",
        "all-reduce / alone",
    )
    rows = []
    for item in configurations:
        found = results.get(item.run_id, {})
        hops = found.get("hops")
        if hops:
            rows.append(
                (
                    item.run_id,
                    _gb(hops["seal_bytes_per_s"]),
                    _gb(hops["open_bytes_per_s"]),
                    _gb(hops["hop_bytes_per_s"]),
                    _gb(found["core_seal_bytes_per_s"]),
                    _gb(hops["alone_seal_bytes_per_s"]),
                    f"{hops['span_fraction']:.0%}",
                    f"{hops['hop_fraction']:.0%}",
                    f"{hops['all_reduce_fraction']:.0%}",
                )
            )
    return markdown(header, rows)


def _variants(configurations: Sequence[Configuration], results: Results) -> str:
    header = ("run", "step ms", "its plain baseline ms", "ratio", "sealed without the variant ms")
    rows = []
    for item in configurations:
        if item.variant and item.mode == "sealed":
            step, baseline = _step(results, item.run_id), _step(results, item.baseline or "")
            without = _step(results, f"{item.model}-sealed-w{item.world}")
            ratio = f"{step / baseline:.2f}" if step and baseline else "-"
            rows.append((item.run_id, _ms(step), _ms(baseline), ratio, _ms(without)))
    return markdown(header, rows)


def _step(results: Results, run_id: str) -> float | None:
    found = results.get(run_id, {}).get("bare_step_s")
    return float(found) if found is not None else None


def _ms(seconds: float | None) -> str:
    return f"{seconds * 1000:.1f}" if seconds is not None else "-"


def _gb(rate: float) -> str:
    return f"{rate / 1e9:.2f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
