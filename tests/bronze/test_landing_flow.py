"""How files flow: side by side, fetched ahead, so many bytes in flight and no more, memory flat in the file's size."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from bronze import trace_events, unreadable
from bronze.land import land_run
from bronze.limits import Limits
from bronze.prefetch import prefetch
from tests.support.campaigns import pick_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake.store import Lake

_ROOT = Path(__file__).parent.parent.parent
# Events of a small file and of one that is ten times larger.
LENGTHS = (pick_size(50_000, 100_000), pick_size(500_000, 1_000_000))
_EVENT = (
    '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": %d.125, "dur": 2.25, "args": {"stream": 7}}'
)


def _trace(events: int, rank: int = 0) -> bytes:
    body = ",\n  ".join(_EVENT % number for number in range(events))
    return f'{{"distributedInfo": {{"rank": {rank}}}, "traceEvents": [\n  {body}\n  ]}}'.encode()


@dataclass
class Wire:
    """What is under way over a slow link, and the most that ever was."""

    now: int = 0
    most: int = 0
    fetches: list[tuple[float, float]] = field(default_factory=list)


class Arrived:
    """The bytes of a file that has come over the link."""

    def __init__(self, data: bytes, wire: Wire) -> None:
        self._data = data
        self._wire = wire
        self.sha256 = sha256(data).hexdigest()
        self.content_sha256: str | None = self.sha256
        self.problem: str | None = None
        self.is_sealed = False

    def blocks(self) -> Iterator[bytes]:
        yield self._data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.now -= len(self._data)


@dataclass(frozen=True)
class Slow:
    """A file behind a link with latency."""

    name: str
    data: bytes
    wire: Wire
    latency_s: float = 0.2
    problem: str | None = None
    etag: str = ""

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    async def fetch(self, *, is_copied: bool = False) -> Arrived:  # noqa: ARG002
        begun = time.monotonic()
        self.wire.now += len(self.data)
        self.wire.most = max(self.wire.most, self.wire.now)
        await asyncio.sleep(self.latency_s)
        self.wire.fetches.append((begun, time.monotonic()))
        return Arrived(self.data, self.wire)


def _land(lake: Lake, sources: list[Slow], limits: Limits) -> int:
    with lake.stage(trace_events.TABLE, "run") as events, lake.stage(unreadable.TABLE, "run") as byte_ranges:
        sinks = {"trace_events": events, "unreadable": byte_ranges}
        landed = asyncio.run(
            land_run(
                "run",
                b"",
                sources,
                sinks=sinks,
                limits=limits,
                progress=lambda _name, _bytes, _rows: None,
            )
        )
        return sum(report.events_count for report in landed.files)


def test_fetches_of_a_run_overlap(lake: Lake) -> None:
    wire = Wire()
    sources = [Slow(f"r{rank}.json", _trace(50, rank), wire) for rank in range(8)]
    assert _land(lake, sources, Limits()) == 400
    begun = max(start for start, _ in wire.fetches)
    ended = min(end for _, end in wire.fetches)
    assert begun < ended, "every fetch began before the first had ended"


def test_no_more_bytes_are_in_flight_than_allowed(lake: Lake) -> None:
    wire = Wire()
    sources = [Slow(f"r{rank}.json", _trace(50, rank), wire, 0.01) for rank in range(8)]
    allowed = 3 * max(source.size_bytes for source in sources)
    assert _land(lake, sources, Limits(bytes_in_flight=allowed)) == 400
    assert 0 < wire.most <= allowed
    assert wire.now == 0


def test_a_file_larger_than_what_may_be_in_flight_still_lands(lake: Lake) -> None:
    assert _land(lake, [Slow("a.json", _trace(200), Wire(), 0)], Limits(bytes_in_flight=10)) == 200


def test_an_error_ahead_arrives_where_the_block_would_have() -> None:
    def blocks() -> Iterator[bytes]:
        yield b"one"
        raise ValueError("two")

    coming = prefetch(blocks())
    assert next(coming) == b"one"
    with pytest.raises(ValueError, match="two"):
        next(coming)


def test_a_producer_that_is_no_longer_wanted_stops() -> None:
    made = []

    def blocks() -> Iterator[bytes]:
        for number in range(10_000):
            made.append(number)
            yield b"x"

    coming = prefetch(blocks())
    next(coming)
    coming.close()  # type: ignore[attr-defined]
    count = len(made)
    time.sleep(0.2)
    assert len(made) == count < 100


def test_a_file_ten_times_larger_takes_the_same_memory(tmp_path: Path) -> None:
    peaks = [_peak_bytes(tmp_path / str(events), events) for events in LENGTHS]
    assert peaks[1] < 1.1 * peaks[0], peaks


def _peak_bytes(folder: Path, events: int) -> int:
    run = folder / "landing" / "run"
    run.mkdir(parents=True)
    with gzip.open(run / "trace.json.gz", "wt", compresslevel=1) as file:
        file.write('{"traceEvents": [\n  ')
        for number in range(events):
            file.write((",\n  " if number else "") + _EVENT % number)
        file.write("\n  ]}")
    (run / "run.toml").write_text("")
    words = ["-m", "benchmarks.tier", "bronze", "--lake", str(folder / "lake"), "--landing", str(folder / "landing")]
    small = {**os.environ, "TEETOTAL_SHARD_BYTES": str(1 << 20)}
    done = subprocess.run([sys.executable, *words], cwd=_ROOT, env=small, check=True, capture_output=True)
    peak: int = json.loads(done.stdout)["peak_bytes"]
    return peak
