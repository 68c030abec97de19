"""The append-only log of all statements, in the lake: files of lines, and a signed state that says how far it goes.

`_lineage/<number of its first statement>.jsonl` holds one envelope per line; nothing is ever written to it again. The
root over all lines is a Merkle tree's (RFC 9162), so a checkpoint that somebody kept shows every later change.
"""

from __future__ import annotations

import base64
import json
import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import AlreadyExistsError, NotFoundError

from lake.cut_off import fetch_object, list_objects, put_new
from lake.errors import ContractBroken
from lake.lineage.delta_entries import find_statement, read_entries
from lake.lineage.envelope import parse_envelope, sign_payload
from lake.lineage.merkle import extend_peaks, fold_peaks, hash_leaf
from lake.lineage.notes import Checkpoint, decode_base64
from lake.lineage.statements import is_signed, parse_statement
from lake.locations import make_private, report_unreachable
from lake.locks import hold_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lake.durability import Disk
    from lake.lineage.notes import PublicKey, Signer
    from lake.locations import Location

DIRECTORY = "_lineage"
_STATE = f"{DIRECTORY}/state.json"
_STATE_KIND = "application/vnd.teetotal.log-state+json"
_FILE = re.compile(rf"{DIRECTORY}/([0-9]{{20}})\.jsonl")


@dataclass(frozen=True)
class LogState:
    """How far the log goes, as its last writer signed it; and up to which version each table's commits are in it."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    checkpoint: str = ""


@dataclass(frozen=True)
class Leaves:
    """The statements of the log, line by line, and what is wrong with the files that hold them."""

    lines: list[bytes]
    faults: list[str]

    @property
    def hashes(self) -> list[bytes]:
        """The leaves of the tree."""
        return [hash_leaf(line) for line in self.lines]


class StatementLog:
    """The log of one lake."""

    def __init__(self, place: Location) -> None:
        self._place = place

    def read(self) -> Leaves:
        """All statements; a file that is missing or longer than the next one allows is a fault."""
        lines: list[bytes] = []
        faults = []
        for first, name in self._list_files():
            if first != len(lines):
                faults.append(f"{name} should begin with statement {len(lines)}: a file is missing or was changed")
            lines += self._read_lines(name)
        return Leaves(lines, faults)

    def read_state(self, keys: Sequence[PublicKey]) -> LogState:
        """How far the log goes; nothing where no believed key has signed it."""
        envelope = parse_envelope(self._get(_STATE) or b"")
        if envelope is None or envelope.kind != _STATE_KIND or not is_signed(envelope, keys):
            return LogState()
        loaded: Any = json.loads(envelope.payload)
        peaks = tuple(decode_base64(peak) for peak in loaded["peaks"])
        return LogState(loaded["size"], peaks, loaded["versions"], loaded["checkpoint"])

    def append_commits(
        self,
        tables: Iterable[str],
        touched: Mapping[str, int],
        signer: Signer,
        keys: Sequence[PublicKey],
        disk: Disk | None,
        begin: Callable[[], list[bytes]] = list,
    ) -> LogState:
        """Add the statements of all commits that are not in the log yet, also those that a killed run left behind.

        A statement is durable with its commit, because it is part of it; only a signed one is taken. `touched` are
        versions that were committed just now, whatever the state says; `begin` gives what a new log begins with.
        """
        names = list(tables)
        with report_unreachable(f"the log of statements in {self._place} could not be written"), ExitStack() as stack:
            if self._place.is_local:
                staging = self._place.directory / "_staging"
                make_private(staging)
                stack.enter_context(hold_lock(staging / "lineage.lock", "the log of statements"))
            while True:
                state = self.read_state(keys)
                found, versions = self._find_new(names, touched, state, keys)
                if not found and state.checkpoint:
                    return state
                if not state.checkpoint and not self._list_files():
                    found = [*begin(), *found]
                try:
                    return self._write(state, found, versions, signer, disk)
                except AlreadyExistsError:  # another machine was first: what it has added is looked at again
                    continue

    def _find_new(
        self, tables: Iterable[str], touched: Mapping[str, int], state: LogState, keys: Sequence[PublicKey]
    ) -> tuple[list[bytes], dict[str, int]]:
        """The lines that are to follow the state, those of files that it does not count yet among them."""
        tail = self._read_tail(state)
        known = set(tail)
        if any(version <= state.versions.get(table, -1) for table, version in touched.items()):
            known.update(self.read().lines)  # a table's log was put back and written on: versions say nothing
        versions, fresh = dict(state.versions), []
        for table in tables:
            first = min(state.versions.get(table, -1) + 1, touched.get(table, 1 << 62)) if table in versions else None
            for version, entry in read_entries(self._place, table, first):
                versions[table] = version
                text = find_statement(entry)
                line = b"" if text is None else text.encode()
                envelope, statement = parse_statement(line)
                is_new = statement is not None and line not in known
                if is_new and envelope is not None and is_signed(envelope, keys):
                    fresh.append(line)
        return [*tail, *fresh], versions

    def _write(
        self, state: LogState, lines: Sequence[bytes], versions: dict[str, int], signer: Signer, disk: Disk | None
    ) -> LogState:
        counted = len(self._read_tail(state))
        name = f"{DIRECTORY}/{state.size + counted:020}.jsonl"
        if lines[counted:]:
            put_new(self._place.store, name, b"".join(line + b"\n" for line in lines[counted:]))
        size = state.size + len(lines)
        peaks = tuple(extend_peaks(state.size, state.peaks, map(hash_leaf, lines)))
        origin = state.checkpoint.partition("\n")[0] or signer.public.name
        checkpoint = Checkpoint(origin, size, fold_peaks(peaks)).sign(signer)
        written = LogState(size, peaks, versions, checkpoint)
        content = {
            "size": size,
            "peaks": [base64.b64encode(peak).decode() for peak in peaks],
            "versions": versions,
            "checkpoint": checkpoint,
        }
        obstore.put(self._place.store, _STATE, sign_payload(_STATE_KIND, content, signer).encode())
        if disk is not None:
            paths = [self._place.directory / one for one in (name, _STATE)]
            disk.sync_files([path for path in paths if path.exists()])
            disk.sync_folders([self._place.directory / DIRECTORY])
        return written

    def _read_tail(self, state: LogState) -> list[bytes]:
        """The lines that are in files and not in the state yet: their writer was killed in between."""
        files = self._list_files()
        before = [(first, name) for first, name in files if first < state.size]
        held = before[-1][0] + len(self._read_lines(before[-1][1])) if before else 0
        if held != state.size:
            raise ContractBroken(
                f"the log of statements in {self._place} holds {held} statements before the end that was signed, not "
                f"{state.size}",
                "it was changed by other means: `teetotal verify` says what is missing; restore it from a backup",
            )
        return [line for first, name in files if first >= state.size for line in self._read_lines(name)]

    def _list_files(self) -> list[tuple[int, str]]:
        if self._place.is_local and not (self._place.directory / DIRECTORY).is_dir():
            return []
        listed = [entry["path"] for entry in list_objects(self._place.store, DIRECTORY)]
        return sorted((int(match[1]), path) for path in listed if (match := _FILE.fullmatch(path)))

    def _read_lines(self, name: str) -> list[bytes]:
        return (self._get(name) or b"").splitlines()

    def _get(self, name: str) -> bytes | None:
        try:
            if self._place.is_local:
                return (self._place.directory / name).read_bytes()
            return fetch_object(self._place.store, name)
        except (FileNotFoundError, NotFoundError):
            return None
