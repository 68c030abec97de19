"""Traces as bytes, and what the reader makes of them: shared by the tests of bronze."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from bronze.kineto import KinetoReader
from bronze.limits import Limits
from bronze.trace_events import TABLE
from lake.digest import ContentDigest

if TYPE_CHECKING:
    from bronze.tolerant_parser import UnreadableRange

# A good trace, to be landed beside a bad one: two events, microseconds since a base.
GOOD = (
    b'{"baseTimeNanoseconds": 1000, "traceEvents": ['
    b'{"ph": "X", "name": "a", "ts": 1, "dur": 2}, {"ph": "X", "name": "b", "ts": 3, "dur": 4}]}'
)


class CarefulReader(KinetoReader):
    """The reader without its fast cut."""

    def _fast(self, *_: object) -> None:
        return None


@dataclass(frozen=True)
class Reading:
    """Everything that a reader has to say of a trace."""

    rows: list[dict[str, Any]]
    unreadable: list[UnreadableRange]
    envelope: dict[str, Any]
    envelope_text: str
    is_complete: bool
    digest: str

    def column(self, name: str) -> list[Any]:
        """One column of the rows."""
        return [row[name] for row in self.rows]

    @property
    def row(self) -> dict[str, Any]:
        """The only row of a trace that should have one."""
        assert len(self.rows) == 1, (self.rows, self.unreadable)
        return self.rows[0]


def read(
    data: bytes,
    limits: Limits | None = None,
    *,
    block_bytes: int = 1 << 20,
    reader: type[KinetoReader] = KinetoReader,
) -> Reading:
    """Read a trace that is all in memory."""
    blocks = (data[start : start + block_bytes] for start in range(0, len(data), block_bytes))
    found = reader(blocks, limits or Limits())
    rows: list[dict[str, Any]] = []
    digest = ContentDigest(TABLE.file_schema)
    for batch in found:
        rows += pl.DataFrame(batch).to_dicts()
        digest.update(batch)
    assert found.events_count == len(rows)
    assert found.residue_count == sum(row["residue"] is not None for row in rows)
    text = found.envelope.to_text() or "{}"
    unreadable = found.take_unreadable()
    return Reading(rows, unreadable, json.loads(text), text, found.is_complete, digest.hexdigest())


def trace(*events: str, before: str = "", after: str = "") -> bytes:
    """A trace around the texts of its events; `before` and `after` are members of the document."""
    array = '"traceEvents": [\n  ' + ",\n  ".join(events) + "\n  ]"
    return ("{\n  " + ",\n  ".join(member for member in (before, array, after) if member) + "\n}").encode()


def native(events: list[dict[str, Any]], **members: object) -> bytes:
    """A trace in the byte layout of Kineto itself: one event over several lines, its arguments indented."""
    texts = []
    for event in events:
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in event.items() if key != "args"]
        if "args" in event:
            inner = json.dumps(event["args"]).removeprefix("{").removesuffix("}")
            is_object = isinstance(event["args"], dict)
            lines.append(
                '"args": {\n      ' + inner + "\n    }" if is_object else f'"args": {json.dumps(event["args"])}'
            )
        texts.append("{\n    " + ",\n    ".join(lines) + "\n  }" if lines else "{}")
    others = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in members.items()]
    return trace(*texts, before=",\n  ".join(others))
