"""An independent check of bronze: are the rows that land the events of the file, to the nanosecond?

    python -m benchmarks.exactness PATH…

Lands every `*.json.gz` under the paths into a lake of its own, and holds the table against what the standard library
reads from the same file, numbers as decimals. What is expected is worked out here alone, with nothing of ours.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COLUMNS = ("ordinal", "name", "phase", "category", "ts_ns", "duration_ns")
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Result:
    """What became of one file: its events, the rows that landed, and how many rows are not what the file says."""

    path: Path
    events: int
    landed: int
    mismatches: int

    @property
    def is_exact(self) -> bool:
        """Whether every event is there, once, and as the file has it."""
        return self.events == self.landed and not self.mismatches


def recordings(paths: Iterable[Path]) -> list[Path]:
    """The recordings among the paths and below them."""
    return sorted({found for path in paths for found in ([path] if path.is_file() else path.rglob("*.json.gz"))})


def check(path: Path) -> Result:
    """Land one recording and hold the rows against the file."""
    expected = events_of(path)
    landed = rows_of(path)
    return Result(path, len(expected), len(landed), mismatches(expected, landed))


def mismatches(expected: Sequence[tuple[Any, ...]], landed: Sequence[tuple[Any, ...]]) -> int:
    """How many events are missing, too many, or not as expected at their place."""
    wrong = sum(event != row for event, row in zip(expected, landed, strict=False))
    return wrong + abs(len(expected) - len(landed))


def events_of(path: Path) -> list[tuple[Any, ...]]:
    """What the file says of each event, in its order: its place, and times as whole nanoseconds of its decimal text."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal, strict=False)
    is_object = isinstance(document, dict)
    base = document.get("baseTimeNanoseconds", 0) if is_object else 0
    return [
        (
            ordinal,
            event.get("name"),
            event.get("ph"),
            event.get("cat"),
            _nanoseconds(event.get("ts"), base),
            _nanoseconds(event.get("dur"), 0),
        )
        for ordinal, event in enumerate(document["traceEvents"] if is_object else document)
    ]


def _nanoseconds(microseconds: Decimal | int | None, base: int) -> int | None:
    """A decimal number of microseconds as whole nanoseconds; a fraction of one would be an error of the check."""
    if microseconds is None:
        return None
    exact = Decimal(microseconds).scaleb(3)
    if exact != int(exact):
        raise ValueError(f"{microseconds} us is no whole number of nanoseconds")
    return int(exact) + base if int(exact) + base in _INT64 else None


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    """The rows that land from the file, in the order of their ordinals, read back without the lake's own readers."""
    from assets.build.bronze import materialise
    from bronze.limits import Limits
    from lake.landing_zone import LandingZone
    from lake.locations import Location
    from lake.store import Lake

    with tempfile.TemporaryDirectory(prefix="teetotal-exactness-") as scratch:
        run = Path(scratch, "landing", "run")
        run.mkdir(parents=True)
        shutil.copyfile(path, run / path.name)
        (run / "run.toml").write_text("", "utf-8")
        lake = Location.of(Path(scratch, "lake"))
        materialise(Lake(lake), LandingZone(Location.of(run.parent)), "run", Limits())
        table = pa.table(DeltaTable(str(lake.child("bronze", "trace_events"))).to_pyarrow_table())
    ordered = table.sort_by("ordinal").select(_COLUMNS)
    return list(zip(*(column.to_pylist() for column in ordered.columns), strict=True))


def main(arguments: Sequence[str]) -> int:
    """Print a line a file and a total; 1 where anything differs, 2 where there is nothing to check."""
    found = recordings(map(Path, arguments))
    if not found:
        print("usage: python -m benchmarks.exactness PATH… (files or directories with *.json.gz)", file=sys.stderr)
        return 2
    results = []
    print(f"{'events':>12} {'landed':>12} {'mismatches':>12}  file")
    for path in found:
        result = check(path)
        results.append(result)
        print(f"{result.events:>12,} {result.landed:>12,} {result.mismatches:>12,}  {path}", flush=True)
    events, landed = sum(result.events for result in results), sum(result.landed for result in results)
    wrong = sum(result.mismatches for result in results)
    print(f"{events:>12,} {landed:>12,} {wrong:>12,}  {len(results)} files")
    return 0 if all(result.is_exact for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
