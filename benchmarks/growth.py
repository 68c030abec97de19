"""How cost grows: with events, with files of a run, and with the runs that a lake already holds."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks import TIERS
from benchmarks.inputs import land_export, land_ranks, land_trace, trace
from benchmarks.measuring import CACHE, ROOT, Cost, measure_process, table, tiers

SAMPLE = ROOT / "samples" / "resnet50-native-w2" / "resnet50-native-w2-r0.json.gz"
_RANK_EVENTS = 100_000


def with_events(sizes: list[int]) -> str:
    """Seconds and peak of each tier for ever more events: time should be linear, memory flat."""
    rows = []
    for events in sizes:
        chosen = trace(events)
        with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder:
            land_trace(Path(folder), chosen.path)
            costs = [tiers(folder, tier) for tier in TIERS]
        rows.append([chosen.name, *_cells(costs), f"{sum(cost.cpu_s for cost in costs) / chosen.events * 1e6:.1f}"])
    names = ("trace", *_names(TIERS), "CPU-s a million")
    return "\n".join(["Growth with events:", "", table(names, rows)])


def with_exports(sizes: list[int]) -> str:
    """The same for exports of Nsight Systems with eight processes."""
    CACHE.mkdir(exist_ok=True)
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder:
            found = land_export(Path(folder), size)
            costs = [tiers(folder, tier) for tier in TIERS]
        cpu_s = sum(cost.cpu_s for cost in costs)
        rows.append([f"{found / 1e6:.1f} M rows", *_cells(costs), f"{cpu_s / found * 1e6:.1f}"])
    names = ("export", *_names(TIERS), "CPU-s a million")
    return "\n".join(["Growth with the rows of an Nsight Systems export:", "", table(names, rows)])


def with_files(counts: list[int]) -> str:
    """The same for runs of ever more ranks, each with a trace of its own."""
    CACHE.mkdir(exist_ok=True)
    rows = []
    for ranks in counts:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder:
            events = land_ranks(Path(folder), ranks, _RANK_EVENTS)
            costs = [tiers(folder, tier) for tier in TIERS]
        name = f"{ranks} of {events // ranks / 1e3:.0f} k events"
        rows.append([name, *_cells(costs), f"{sum(cost.cpu_s for cost in costs) / events * 1e6:.1f}"])
    names = ("ranks", *_names(TIERS), "CPU-s a million")
    return "\n".join(["Growth with files:", "", table(names, rows)])


def with_lake(counts: list[int]) -> str:
    """What one more run takes in a lake of ever more runs: it should not matter how many there are."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder:
        there = 0
        for count in counts:
            measure_process([sys.executable, "-m", "benchmarks.crowd", folder, str(there), str(count)])
            there = count
            land_trace(Path(folder), SAMPLE, run_id=f"one-more-{count}")
            cost = tiers(folder, *TIERS, run_id=f"one-more-{count}")
            rows.append([f"{count:,}", f"{cost.wall_s:.1f}", f"{cost.cpu_s:.1f}", f"{cost.peak_mb:,.0f}"])
    names = ("runs in the lake", "one more: wall s", "CPU s", "peak MB")
    return "\n".join(["Growth with the lake:", "", table(names, rows)])


def _names(names: tuple[str, ...]) -> list[str]:
    return [f"{tier}: wall s / CPU s / peak MB" for tier in names]


def _cells(costs: list[Cost]) -> list[str]:
    return [f"{cost.wall_s:.1f} / {cost.cpu_s:.1f} / {cost.peak_mb:,.0f}" for cost in costs]
