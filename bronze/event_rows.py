"""Texts of trace events in, rows of `bronze.trace_events` out: the one decoder behind the fast and the careful cut."""

from __future__ import annotations

import json
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bronze import tolerant_parser
from bronze.kineto_arguments import ARGUMENTS, Argument
from bronze.trace_events import TABLE
from lake.connections import open_ordered
from lake.tables import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import duckdb
    import numpy.typing as npt

# The keys of an event that have a column of their own, in the order of the columns that the query gives.
_EVENT = {
    "ph": "VARCHAR",
    "cat": "VARCHAR",
    "name": "VARCHAR",
    "pid": "VARCHAR",
    "tid": "VARCHAR",
    "ts": "DOUBLE",
    "dur": "DOUBLE",
    "id": "VARCHAR",
    "bp": "VARCHAR",
    "s": "VARCHAR",
    "args": "JSON",
}
KEYS = frozenset(_EVENT)
_TYPES = {Kind.TEXT: "VARCHAR", Kind.INT64: "BIGINT"}
_NUMBER = r'"{}"\s*:\s*"?((-?[0-9]+)(?:\.([0-9]+))?)"?\s*[,}}]'
_MOST_DIGITS = 64
# DuckDB reads so many parts of a shard side by side.
_AT_ONCE = 2
_CONTEXT = Context(prec=80)
_LABELS = ("phase", "category", "name", "process_id", "thread_id", "flow_id", "binding_point", "scope")


_RARE_QUERY = "SELECT json_transform(text, $rare_arguments) AS rare FROM events"
_KEYS_QUERY = "SELECT len(json_keys(text)) AS keys FROM events"
_COMMON = tuple(argument for argument in ARGUMENTS if argument.is_common)
_RARE = tuple(argument for argument in ARGUMENTS if not argument.is_common)


@cache
def _events_query() -> str:
    return files(__package__).joinpath("trace_events.sql").read_text("utf-8")


@cache
def _digits_query() -> str:
    return files(__package__).joinpath("trace_event_digits.sql").read_text("utf-8")


def _structure(arguments: Iterable[Argument]) -> str:
    """The JSON shape of arguments that the decoder is asked for."""
    return json.dumps({source: _TYPES[argument.column.kind] for argument in arguments for source in argument.sources})


class EventRows:
    """A decoder of one source: it knows the base time, and counts the rows it has given."""

    def __init__(self, base_ns: int) -> None:
        self._connection: duckdb.DuckDBPyConnection = open_ordered(_AT_ONCE)
        self._parameters: dict[str, object] = {
            "event": json.dumps(_EVENT),
            "common": _structure(_COMMON),
            "rare": "|".join(f'"{re.escape(source)}"' for argument in _RARE for source in argument.sources),
            "base_ns": base_ns,
        }
        self._digits: dict[str, object] = {
            "ts_number": _NUMBER.format("ts"),
            "dur_number": _NUMBER.format("dur"),
            "base_ns": base_ns,
        }
        self.count = 0

    def decode(self, texts: pa.StringArray) -> pa.Table:
        """The columns that the texts themselves say; raises DuckDB's error where one is not JSON."""
        decoded = self._ask(_events_query(), texts, self._parameters)
        if pc.any(decoded.column("is_coarse")).as_py():
            exact = self._ask(_digits_query(), texts, self._digits)
            for name in ("ts_ns", "duration_ns"):
                known = pc.coalesce(decoded.column(name), exact.column(name))
                decoded = decoded.set_column(decoded.column_names.index(name), name, known)
        return decoded

    def keys_count(self, texts: pa.StringArray) -> npt.NDArray[np.int64]:
        """How many keys each event has at its top level, doubled ones counted twice."""
        answer = self._ask(_KEYS_QUERY, texts, {})
        return np.asarray(answer.column("keys").to_numpy(), np.int64)

    def _ask(self, query: str, texts: pa.StringArray, parameters: dict[str, object]) -> pa.Table:
        length = max(-(-len(texts) // _AT_ONCE), 1)
        parts = [texts.slice(first, length) for first in range(0, len(texts), length)]
        self._connection.register("events", pa.table({"text": pa.chunked_array(parts, pa.string())}))
        try:
            return self._connection.sql(query, params=parameters).to_arrow_table()
        finally:
            self._connection.unregister("events")

    def _rare(self, decoded: pa.Table) -> dict[str, pa.Array]:
        """The arguments that few events have, decoded from those alone; null for all others."""
        places = np.flatnonzero(pc.fill_null(decoded.column("has_rare"), False).to_numpy())
        if not len(places):
            kinds = {name: TABLE.arrow_schema.field(name).type for name in (a.column.name for a in _RARE)}
            return {name: pa.nulls(decoded.num_rows, kind) for name, kind in kinds.items()}
        texts = _combine_chunks(decoded.column("args").take(pa.array(places)))
        answer = self._ask(_RARE_QUERY, texts, {"rare_arguments": _structure(_RARE)})
        indices = np.full(decoded.num_rows, -1, np.int64)
        indices[places] = np.arange(len(places))
        spread = pa.array(indices, mask=indices < 0)
        return {
            name: array.take(spread)
            for name, array in _arguments(_RARE, _combine_chunks(answer.column("rare"))).items()
        }

    def rows(
        self, decoded: pa.Table, offsets: npt.NDArray[np.int64], residue: Sequence[str | None] | None
    ) -> pa.RecordBatch:
        """Complete decoded columns to rows of the table, numbered on from the last."""
        count = decoded.num_rows
        columns = {name: _combine_chunks(decoded.column(name)) for name in decoded.column_names[: len(_EVENT)]}
        columns |= _arguments(_COMMON, _combine_chunks(decoded.column("common")))
        columns |= self._rare(decoded)
        columns["ordinal"] = pa.array(np.arange(self.count, self.count + count, dtype=np.int64))
        columns["offset_bytes"] = pa.array(offsets)
        columns["residue"] = pa.nulls(count, pa.string()) if residue is None else pa.array(residue, pa.string())
        self.count += count
        return pa.RecordBatch.from_arrays(
            [columns[field.name] for field in TABLE.file_schema], schema=TABLE.file_schema
        )


def count_carried_keys(decoded: pa.Table) -> int:
    """How many top-level keys the decoded columns carry, over all rows."""
    return sum(decoded.num_rows - decoded.column(index).null_count for index in range(len(_EVENT)))


def count_carried_keys_by_row(decoded: pa.Table) -> npt.NDArray[np.int64]:
    """The same for each row."""
    carried = np.zeros(decoded.num_rows, np.int64)
    for index in range(len(_EVENT)):
        carried += pc.is_valid(decoded.column(index)).to_numpy()
    return carried


def exact_times(decoded: pa.Table, texts: Sequence[str], base_ns: int) -> pa.Table:
    """Fill in the times that the query could not tell from the text, from the event's own digits."""
    for column, key, base in (("ts_ns", "ts", base_ns), ("duration_ns", "dur", 0)):
        times = decoded.column(column).to_pylist()
        unknown = [index for index, time in enumerate(times) if time is None]
        for index in unknown:
            times[index] = _nanoseconds(tolerant_parser.list_numbers(texts[index]).get(key), base)
        if unknown:
            place = decoded.column_names.index(column)
            decoded = decoded.set_column(place, column, pa.array(times, pa.int64()))
    return decoded


def _nanoseconds(microseconds: object, base_ns: int) -> int | None:
    """Microseconds as digits, in whole nanoseconds; none where it is no number that fits."""
    if not isinstance(microseconds, str) or len(microseconds) > _MOST_DIGITS:
        return None
    try:
        scaled = Decimal(microseconds).scaleb(3, _CONTEXT)
        whole = int(scaled.to_integral_value(ROUND_HALF_UP)) + base_ns if abs(scaled) < 1 << 63 else None
    except (ArithmeticError, ValueError):
        return None
    return whole if whole is not None and -(1 << 63) <= whole < 1 << 63 else None


def argument_bytes(decoded: pa.Table) -> list[pa.Buffer]:
    """The bytes of all argument texts, one after the other."""
    return [data for chunk in decoded.column("args").chunks if (data := chunk.buffers()[2]) is not None]


def colons_in_labels(decoded: pa.Table) -> int:
    """How many colons in names and other labels look like those of keys."""
    return sum(
        pc.sum(pc.count_substring_regex(decoded.column(name), pattern=r"[\x00-\x22]:")).as_py() or 0 for name in _LABELS
    )


def _arguments(arguments: Iterable[Argument], fields: pa.StructArray) -> dict[str, pa.Array]:
    """One array an argument, from whichever of its source names is there."""
    found = dict(zip((field.name for field in fields.type), fields.flatten(), strict=True))
    return {
        argument.column.name: found[argument.sources[0]]
        if len(argument.sources) == 1
        else pc.coalesce(*(found[source] for source in argument.sources))
        for argument in arguments
    }


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
