"""A memory of the runs that were up to date and checked, beside the lake: a look at many runs asks only of the others.

It says no more than the lake does. A run stays in it while its landing directory bears the same mark, its data files
are there with their sizes, and no commit has touched it; whatever else decides stands in `rules`. A memory that is
lost, of other rules or of another log is an empty one (docs/decisions/0052).
"""

from __future__ import annotations

import hashlib
import io
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.cut_off import delete_object, fetch_object
from lake.datafiles import compare_sizes, run_of
from lake.errors import LakeError
from lake.locations import make_private, report_unreachable
from lake.log_entries import UnknownLog, list_changed_partitions, list_versions, read_entries, read_entry
from lake.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lake.locations import Location
    from lake.snapshot import Snapshot
    from lake.tables import Table

_FILE = "_staging/settled_runs.parquet"
_SCHEMA = pa.schema(
    [("table", pa.dictionary(pa.int16(), pa.string())), ("path", pa.string()), ("size_bytes", pa.int64())]
)
_NOTES = b"teetotal.settled_runs"


class SettledRuns:
    """What was remembered, less what has been touched since; to be read before anything else is looked at."""

    def __init__(self, place: Location, rules: str, tables: Sequence[Table]) -> None:
        self._place = place
        self._rules = rules
        self._roots = {table.full_name: place.child(*table.path.split("/")) for table in tables}
        # The last entry of each log that was looked at: version and digest; none where there was no table.
        self._ends: dict[str, tuple[int, str] | None] = {}
        self._marks: dict[str, str] = {}
        self._texts: dict[str, Any] = {}
        self._files = _SCHEMA.empty_table()
        self._is_changed = False

    @classmethod
    def read(cls, place: Location, rules: str, tables: Sequence[Table]) -> SettledRuns:
        """The memory as far as it still holds."""
        found = cls(place, rules, tables)
        if not found._recall():
            found = cls(place, rules, tables)
            found._ends = {name: _find_end(root) for name, root in found._roots.items()}
        return found

    @staticmethod
    def is_kept(place: Location) -> bool:
        """Whether a lake has such a memory."""
        with report_unreachable(f"{place}/{_FILE} could not be looked for"):
            if place.is_local:
                return (place.directory / _FILE).is_file()
            try:
                obstore.head(place.store, _FILE)
            except FileNotFoundError:
                return False
            return True

    def __bool__(self) -> bool:
        return bool(self._marks)

    def find(self, marks: Mapping[str, str]) -> set[str]:
        """Those of these runs, by the mark of their landing directory, of which it still holds."""
        same = {run_id for run_id, mark in marks.items() if self._marks.get(run_id) == mark}
        return same - self._find_damaged(same)

    def find_text(self, run_id: str) -> Any:
        """What was to be said of a run; none where nobody has said it."""
        return self._texts.get(run_id)

    def add(self, marks: Mapping[str, str], snapshots: Iterable[Snapshot]) -> None:
        """Remember runs that were found up to date, with the mark of their landing directory."""
        self._forget(set(marks))
        self._marks |= marks
        rows: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}
        for snapshot in snapshots:
            for run_id in marks:
                for path, size in snapshot.sizes(run_id).items():
                    for name, value in zip(rows, (snapshot.table.full_name, path, size), strict=True):
                        rows[name].append(value)
        self._files = pa.concat_tables([self._files, pa.table(rows, schema=_SCHEMA)])
        self._is_changed = self._is_changed or bool(marks)

    def add_texts(self, texts: Mapping[str, Any]) -> None:
        """Remember what is to be said of runs that are remembered."""
        new = {run_id: text for run_id, text in texts.items() if run_id in self._marks and run_id not in self._texts}
        self._texts |= new
        self._is_changed = self._is_changed or bool(new)

    def write(self) -> None:
        """Keep it for the next look; where that is not possible, the next one takes longer."""
        if not self._is_changed:
            return
        notes = {"rules": self._rules, "ends": self._ends, "marks": self._marks, "texts": self._texts}
        sink = io.BytesIO()
        rows = self._files.replace_schema_metadata({_NOTES: json.dumps(notes).encode()})
        pq.write_table(rows, sink, compression="zstd")
        with suppress(LakeError, OSError), report_unreachable(f"{self._place}/{_FILE} could not be written"):
            if self._place.is_local:
                path = self._place.directory / _FILE
                make_private(path.parent)
                write_private(path, sink.getvalue(), "the memory of settled runs")
            else:
                obstore.put(self._place.store, _FILE, sink.getvalue())
        self._is_changed = False

    def _recall(self) -> bool:
        data = _read_file(self._place)
        if data is None:
            return False
        try:
            rows = pq.read_table(io.BytesIO(data))
            notes = json.loads(rows.schema.metadata[_NOTES])
            if notes["rules"] != self._rules or notes["ends"].keys() != self._roots.keys():
                return False
            self._marks, self._texts = notes["marks"], notes["texts"]
            self._files = rows.replace_schema_metadata().cast(_SCHEMA)
            touched = set[str]()
            for name, end in notes["ends"].items():
                self._ends[name] = _read_on(self._roots[name], end, touched)
        except (UnknownLog, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
            return False
        self._is_changed = notes["ends"] != {name: end and list(end) for name, end in self._ends.items()}
        self._forget(touched)
        return True

    def _forget(self, run_ids: set[str]) -> None:
        known = run_ids & self._marks.keys()
        if not known:
            return
        for run_id in known:
            del self._marks[run_id]
            self._texts.pop(run_id, None)
        run_of_path = pc.extract_regex(self._files["path"], r"^run_id=(?P<run>[^/]+)/")
        is_known = pc.is_in(pc.struct_field(run_of_path, "run"), pa.array(sorted(known), pa.string()))
        self._files = self._files.filter(pc.invert(is_known))

    def _find_damaged(self, run_ids: set[str]) -> set[str]:
        """Those of which a data file is missing or not as large as it was written."""
        if not run_ids:
            return set()
        files = self._files.unify_dictionaries().combine_chunks()
        tables = files["table"].chunk(0) if files.num_rows else pa.array([], _SCHEMA.field("table").type)
        sizes: list[dict[str, int]] = [{} for _ in tables.dictionary]
        facts = (tables.indices.to_pylist(), files["path"].to_pylist(), files["size_bytes"].to_pylist())
        for table, path, size in zip(*facts, strict=True):
            sizes[table][path] = size
        found = zip(tables.dictionary.to_pylist(), sizes, strict=True)
        return {run_of(path) for table, mine in found for path in compare_sizes(self._roots[table], mine)} & run_ids


def remove_memory(place: Location) -> None:
    """Remove the memory: what is left of a forgotten run is in no file."""
    with report_unreachable(f"{place}/{_FILE} could not be removed"), suppress(FileNotFoundError):
        if place.is_local:
            (place.directory / _FILE).unlink()
        else:
            delete_object(place.store, _FILE)


def _read_file(place: Location) -> bytes | None:
    with report_unreachable(f"{place}/{_FILE} could not be read"):
        try:
            if place.is_local:
                return (place.directory / _FILE).read_bytes()
            return fetch_object(place.store, _FILE)
        except FileNotFoundError:
            return None


def _find_end(root: Location) -> tuple[int, str] | None:
    """The last entry of a table's log: its version and digest; none where there is no table."""
    with report_unreachable(f"the log of {root} could not be read"):
        last = max(list_versions(root), default=-1)
        entry = read_entry(root, last)
    return None if entry is None else (last, hashlib.sha256(entry).hexdigest())


def _read_on(root: Location, end: Sequence[Any] | None, touched: set[str]) -> tuple[int, str] | None:
    """The end of a log now; the runs that commits since `end` changed are added to `touched`."""
    version, known = end or (0, None)
    with report_unreachable(f"the log of {root} could not be read"):
        entries = read_entries(root, version - 1)
    if (hashlib.sha256(entries[0]).hexdigest() if entries else None) != known:
        raise UnknownLog  # the table is new, or its log was restored from a backup or purged
    for entry in entries[1:]:
        touched |= list_changed_partitions(entry)
    return (version + len(entries) - 1, hashlib.sha256(entries[-1]).hexdigest()) if entries else None
