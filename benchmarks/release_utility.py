"""`python -m benchmarks.release_utility [LAKE]`: how far released statistics are from the true ones, by epsilon.

Without a lake: a fleet of 10,000 runs of 1,000 tenants, drawn with a fixed seed.
"""

from __future__ import annotations

import random
import statistics
import sys
from pathlib import Path

from gold.private_statistics import MeasuredRun, release_statistics
from lake.keyring import KeyringFile
from lake.locations import Location
from lake.store import Lake
from pipelines.cli.release import load_noise, read_runs

_EPSILONS = (0.1, 0.5, 1.0, 2.0)
_DRAWS = 20
_MOST = 4
_TENANTS, _FLEET = 1_000, 10_000
# Share of the fleet, and the median slowdown, of each regime: made up, of the size of published ones.
_REGIMES = {
    "hopper_spt_cc": (0.5, 1.07),
    "hopper_ppcie": (0.2, 1.25),
    "blackwell_mpt_nvle": (0.2, 1.03),
    "sw_per_hop_aesgcm": (0.1, 1.9),
}
_STATISTICS = ("count", "mean", "p10", "p50", "p90")


def draw_fleet(seed: int = 7) -> list[MeasuredRun]:
    """Runs of tenants of very different size: the first have the most."""
    chance = random.Random(seed)
    names = list(_REGIMES)
    shares = [share for share, _ in _REGIMES.values()]
    runs = []
    for number in range(_FLEET):
        regime = chance.choices(names, shares)[0]
        slowdown = 1 + (_REGIMES[regime][1] - 1) * chance.lognormvariate(0, 0.6)
        step_ms = chance.lognormvariate(5, 1)
        tenant = int(_TENANTS * chance.random() ** 2)
        values = {"slowdown": slowdown, "overhead": step_ms * (slowdown - 1)}
        runs.append(MeasuredRun(f"run-{number}", f"tenant-{tenant}", regime, "H100", 7 * 10**9, values))
    return runs


def _no_noise(values: list[int], *_: object) -> tuple[list[int], float]:
    return list(values), 0.0


def measure(runs: list[MeasuredRun], most: int) -> None:
    """Print, for each epsilon and statistic, the median distance from the exact one over groups and draws."""
    noise = load_noise()
    exact = release_statistics(runs, ("regime",), ("slowdown",), 1.0, 10**6, _no_noise)  # type: ignore[arg-type]
    true = {(one.group, one.statistic): one.value for one in exact}
    counts = {group: value for (group, name), value in true.items() if name == "count" and value}
    print(f"{len(runs):,} runs of {len({run.tenant for run in runs}):,} tenants, {len(counts)} groups with runs")
    print(f"{'epsilon':>8} {'told':>5} " + " ".join(f"{name:>8}" for name in _STATISTICS))
    for epsilon in _EPSILONS:
        errors: dict[str, list[float]] = {name: [] for name in _STATISTICS}
        told = 0
        for _ in range(_DRAWS):
            for one in release_statistics(runs, ("regime",), ("slowdown",), epsilon, most, noise):
                if one.group in counts and one.value is not None:
                    told += one.statistic == "mean"
                    errors[one.statistic].append(abs(one.value - (true[one.group, one.statistic] or 0)))
        medians = [statistics.median(found) if found else float("nan") for found in errors.values()]
        print(f"{epsilon:>8} {told / _DRAWS / len(counts):>5.0%} " + " ".join(f"{value:8.3f}" for value in medians))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        place = Path(sys.argv[1]).resolve()
        measure(read_runs(Lake(Location.of(place), KeyringFile(place.parent / "keyring.json"))), _MOST)
    else:
        for most in (1, _MOST, 10):
            print(f"at most {most} runs of a tenant count")
            measure(draw_fleet(), most)
