"""A lake of two runs that both engines of `teetotal query` are asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assets.build.bronze import materialise
from bronze.limits import Limits
from lake.identity import MANIFEST
from lake.landing_zone import LandingZone
from lake.locations import Location

if TYPE_CHECKING:
    from pathlib import Path

    from lake.store import Lake

_TRACE = (
    b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": %d},'
    b' {"ph": "X", "cat": "kernel", "name": "l", "pid": 0, "tid": 7, "ts": 5, "dur": 1}]}'
)


def bring_two(root: Path, lake: Lake, manifest: str = 'regime = "cc_off"\n') -> None:
    """A kernel of 2 µs in one run, of 3 µs in the other, of 1 µs in both; as far as bronze."""
    for run_id, microseconds in (("a", 2), ("007", 3)):
        directory = root / "landing" / run_id
        directory.mkdir(parents=True)
        (directory / MANIFEST).write_text(manifest)
        (directory / "rank0.json").write_bytes(_TRACE % microseconds)
        materialise(lake, LandingZone(Location.of(root / "landing")), run_id, Limits())
