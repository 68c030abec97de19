"""The peers beside ours: same file, same questions, in turns; each in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import TIERS
from benchmarks.inputs import land_trace, trace
from benchmarks.measuring import CACHE, Cost, format_spread, measure_process, median, table, tiers

if TYPE_CHECKING:
    from benchmarks.inputs import Trace

# Ours with the tables that answer what the peers answer, with all, and as the command: with checks and records too.
OURS = "teetotal, the same answers"
WHOLE = "teetotal, all tables"
COMMAND = "`teetotal run`, with checks and records"
ANSWERS = ("gold.trace_summary", "gold.kernel_breakdown")


@dataclass(frozen=True)
class Peer:
    """A project on PyPI, at one version."""

    name: str
    version: str

    def python(self) -> Path:
        """The interpreter of its own environment, made on first use."""
        home = CACHE / "peers" / f"{self.name}-{self.version}"
        if not (home / "ready").exists():
            print(f"installing {self.name} {self.version} …", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
            wanted = f"{self.name}=={self.version}"
            pip = [
                str(home / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                wanted,
            ]
            subprocess.run(pip, check=True)
            (home / "ready").touch()
        return home / "bin" / "python"


PEERS = (Peer("HolisticTraceAnalysis", "0.5.0"), Peer("traceinsight", "0.6.1"))


def compare_peers(events: int, repeats: int, tracelens: Path | None = None) -> str:
    """One table: what each took on the trace, ratios to ours turn by turn, and whether they agree on the answer.

    TraceLens is not on PyPI: it takes part where somebody names a Python that has it.
    """
    chosen, scripts = trace(events), Path(__file__).parent
    asked = {f"{peer.name} {peer.version}": [peer.python(), scripts / "peer_hta.py", chosen.path] for peer in PEERS}
    if tracelens is not None:
        asked["TraceLens"] = [tracelens, scripts / "peer_tracelens.py", chosen.path]
    costs: dict[str, list[Cost]] = {name: [] for name in (OURS, WHOLE, COMMAND, *asked)}
    for _ in range(repeats):  # in turns, so that a noisy minute hits all alike
        costs[OURS].append(_ours(chosen, ANSWERS))
        costs[WHOLE].append(_ours(chosen))
        costs[COMMAND].append(_run_command(chosen))
        for name, words in asked.items():
            costs[name].append(measure_process(words))
    rows = [_row(name, found, costs, chosen) for name, found in costs.items()]
    names = (
        "",
        "wall s",
        "CPU s",
        "peak MB",
        "events per CPU-s",
        "its wall / ours",
        "its CPU / ours",
        "its peak / ours",
        "its wall / ours, all tables",
        "its wall / the command's",
    )
    agreed = [_agreement(name, costs[name][0], costs[OURS][0]) for name in asked]
    return "\n".join(
        [
            f"Peers, {chosen.name}, {chosen.plain_bytes / 1e6:,.1f} MB of JSON, gzip in:",
            "",
            table(names, rows),
            "",
            *agreed,
        ]
    )


def _ours(chosen: Trace, to: tuple[str, ...] = ()) -> Cost:
    """The pipeline in one process, from the packed file to some gold tables, or to all."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder:
        land_trace(Path(folder), chosen.path)
        return tiers(folder, *TIERS, to=to)


def _run_command(chosen: Trace) -> Cost:
    """What a person types, into an empty lake."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder:
        land_trace(Path(folder), chosen.path)
        places = ("--lake", f"{folder}/lake", "--landing", f"{folder}/landing")
        return measure_process([sys.executable, "-m", "benchmarks.command", *places, "run"])


def _row(name: str, found: list[Cost], costs: dict[str, list[Cost]], chosen: Trace) -> list[str]:
    turns = list(zip(found, costs[OURS], strict=True))
    return [
        name,
        format_spread([cost.wall_s for cost in found]),
        format_spread([cost.cpu_s for cost in found]),
        f"{median([cost.peak_mb for cost in found]):,.0f}",
        f"{chosen.events / median([cost.cpu_s for cost in found]):,.0f}",
        format_spread([cost.wall_s / mine.wall_s for cost, mine in turns]),
        format_spread([cost.cpu_s / mine.cpu_s for cost, mine in turns]),
        format_spread([cost.peak_mb / mine.peak_mb for cost, mine in turns]),
        *(
            format_spread([cost.wall_s / mine.wall_s for cost, mine in zip(found, costs[other], strict=True)])
            for other in (WHOLE, COMMAND)
        ),
    ]


def _agreement(name: str, peer: Cost, ours: Cost) -> str:
    """Whether a peer's answers are ours, but for the microsecond to which it rounds every event."""
    slack = ours.answers["gpu_events"] * 1.0
    apart = {key: abs(peer.answers[key] - ours.answers[key]) for key in peer.answers}
    wrong = [f"{key} by {value:,.0f} us" for key, value in apart.items() if value > slack]
    if wrong:
        return f"{name} DIFFERS: {', '.join(wrong)} (more than a microsecond a GPU event)"
    worst = max(apart[key] / ours.answers[key] for key in apart if ours.answers[key])
    times = ", ".join(key.removesuffix("_us") for key in apart)
    return f"{name} agrees on time ({times}): at most {worst:.2%} apart, in whole microseconds"
