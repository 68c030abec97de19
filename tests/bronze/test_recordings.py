"""The bundled recordings of real training: every event lands, to the nanosecond, whatever way the bytes are cut."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from benchmarks import exactness
from bronze.event_rows import EventRows
from bronze.limits import Limits
from tests.support.campaigns import is_soak, pick_size
from tests.support.traces import CarefulReader, read

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLES = Path(__file__).parents[2] / "samples"
RECORDINGS = exactness.recordings([SAMPLES])
# One of each kind of run is enough where the other ranks are alike; in the soak all are read.
FIRST_RANKS = [path for path in RECORDINGS if "-r0." in path.name]
READ = RECORDINGS if is_soak() else FIRST_RANKS
CUT = FIRST_RANKS[: pick_size(1, 3)]


def test_recordings_are_bundled() -> None:
    assert len(RECORDINGS) >= 2, f"{SAMPLES} holds no recordings"
    assert FIRST_RANKS


@pytest.mark.parametrize("path", READ, ids=lambda path: path.name)
def test_rows_of_a_recording_are_its_events_to_the_nanosecond(path: Path) -> None:
    result = exactness.check(path)
    assert result.events > 1000
    assert (result.landed, result.mismatches) == (result.events, 0)


@pytest.mark.parametrize("path", CUT, ids=lambda path: path.name)
def test_recording_reads_the_same_whatever_way_it_is_cut(path: Path) -> None:
    data = gzip.decompress(path.read_bytes())
    found = read(data, Limits(shard_bytes=1 << 20), block_bytes=100_003)
    assert (found.unreadable, found.is_complete) == ([], True)
    careful = read(data, reader=CarefulReader)
    assert careful.digest == found.digest
    assert careful == found


def test_recording_rewritten_by_another_writer_reads_the_same() -> None:
    data = gzip.decompress(FIRST_RANKS[0].read_bytes())
    compact = json.dumps(json.loads(data), separators=(",", ":")).encode()
    assert len(compact) < len(data)
    rows, same = read(data).rows, read(compact).rows
    assert [row | {"offset_bytes": 0} for row in rows] == [row | {"offset_bytes": 0} for row in same]


# -- the check itself --------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A recording of three events."""
    path = tmp_path / "small.json.gz"
    events = b'{"name": "a", "ph": "X", "ts": 1.5, "dur": 0.001}, {"ts": 1790857026123456.789}, {"ph": "M"}'
    path.write_bytes(gzip.compress(b'{"baseTimeNanoseconds": 7, "traceEvents": [' + events + b"]}"))
    return path


def test_check_expects_what_the_file_says(small: Path) -> None:
    assert exactness.events_of(small) == [
        (0, "a", "X", None, 1507, 1),
        (1, None, None, None, 1790857026123456796, None),
        (2, None, "M", None, None, None),
    ]


def test_check_passes_what_is_exact(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exactness.main([str(small.parent)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["3", "3", "0", "1", "files"]


def test_check_sees_a_nanosecond(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = EventRows.decode

    def late(self: EventRows, texts: pa.StringArray) -> pa.Table:
        table = decode(self, texts)
        place = table.column_names.index("ts_ns")
        return table.set_column(place, "ts_ns", pc.add(table.column("ts_ns"), 1))

    monkeypatch.setattr(EventRows, "decode", late)
    assert exactness.check(small).mismatches == 2
    assert exactness.main([str(small)]) == 1


def test_check_sees_a_lost_event(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = EventRows.rows
    monkeypatch.setattr(EventRows, "rows", lambda self, *args: rows(self, *args).slice(1))
    assert exactness.main([str(small)]) == 1


def test_check_counts_what_is_missing_and_what_is_too_much() -> None:
    events = [("a",), ("b",), ("c",)]
    assert exactness.mismatches(events, events) == 0
    assert exactness.mismatches(events, events[:2]) == 1
    assert exactness.mismatches(events, [*events, ("d",)]) == 1
    assert exactness.mismatches(events, events[1:]) == 3


def test_check_of_nothing_is_a_failure(tmp_path: Path) -> None:
    assert exactness.main([str(tmp_path)]) == 2
    assert exactness.main([]) == 2
