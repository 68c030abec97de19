"""Which key a lake was sealed with: a marker in the lake, compared with the keyring before a column is sealed."""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake.errors import ContractBroken
from lake.keyring import KEY_ID, KeyringFile, encode_base64url
from lake.locations import make_private, report_unreachable
from lake.sealing import TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyarrow.dataset import Dataset

    from lake.keyring import Key, Keyring
    from lake.locations import Location
    from lake.tables import Table

MARKER = "_keyring.json"
_VERSION = 1
_CHECK_BYTES = 16
_LOOKED_AT_ROWS = 1_000
_RESTORE = (
    "put that keyring back or name it: --keyring, TEETOTAL_KEYRING; where it is lost for good, `teetotal keys adopt`, "
    "then `teetotal run --full`"
)


@dataclass(frozen=True)
class _Mark:
    """The key that sealed last: its id, and a value that only that key gives (it says nothing of the key)."""

    key_id: str
    check: str

    def is_of(self, key: Key | None) -> bool:
        return key is not None and hmac.compare_digest(self.check, _check(key))


class KeyringGuard:
    """Opens the keyring of one lake; a keyring that does not hold the key that sealed last is refused.

    The newest key is enough: a keyring is only ever added to, so one that holds it holds those before it too.
    """

    def __init__(self, place: Location, source: Callable[[], Keyring]) -> None:
        self._place = place
        self._source = source

    def peek(self) -> Keyring:
        """The keyring as it is; none is made where the lake was sealed already."""
        return self._open(self._read())

    def open(self, table: Table, read: Callable[[Table], Dataset], *, will_seal: bool = False) -> Keyring:
        """The keyring, where it is that of this lake; what it will seal with is noted first."""
        mark = self._read()
        found = self._open(mark)
        if mark is None:
            if self._may_hold(table):  # a lake of an older version: one look at a file of the table tells
                _refuse_strangers(table, read(table), found)
        elif not mark.is_of(found.key(mark.key_id)):
            what = "does not hold" if found.key(mark.key_id) is None else "holds as another key"
            raise ContractBroken(
                f"{self._place} was sealed with key {mark.key_id}, which {found.place} {what}", _RESTORE
            )
        if will_seal and (mark is None or mark.key_id != found.active_id):
            self.adopt(found)
        return found

    def adopt(self, keyring: Keyring) -> None:
        """Note that the keyring's active key seals from now on, whichever did before."""
        key = keyring.active
        self._write(json.dumps({"version": _VERSION, "key": key.key_id, "check": _check(key)}).encode() + b"\n")

    def _open(self, mark: _Mark | None) -> Keyring:
        source = self._source
        if (
            mark is not None
            and isinstance(source, KeyringFile)
            and source.is_made_on_first_use
            and not source.path.exists()
        ):
            raise ContractBroken(
                f"{self._place} was sealed with key {mark.key_id}, and there is no keyring at {source.path}", _RESTORE
            )
        return source()

    def _may_hold(self, table: Table) -> bool:
        """Whether the table may be there already; asked because to open it as a dataset costs an import."""
        return not self._place.is_local or (self._place.directory / table.path).is_dir()

    def _read(self) -> _Mark | None:
        with report_unreachable(f"{self._place}/{MARKER} could not be read"):
            try:
                if self._place.is_local:
                    data = (self._place.directory / MARKER).read_bytes()
                else:
                    from lake.cut_off import fetch_object

                    data = fetch_object(self._place.store, MARKER)
            except FileNotFoundError:
                return None
        return _parse(data, f"{self._place}/{MARKER}")

    def _write(self, data: bytes) -> None:
        """Put the marker in place whole; what a killed writer leaves aside is written over by the next."""
        with report_unreachable(f"{self._place}/{MARKER} could not be written"):
            if not self._place.is_local:
                import obstore

                obstore.put(self._place.store, MARKER, data)
                return
            staging = self._place.directory / "_staging"
            make_private(staging)
            with (staging / "keyring.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                aside = staging / "keyring.json"
                with aside.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                aside.replace(self._place.directory / MARKER)


def _refuse_strangers(table: Table, rows: Dataset, keyring: Keyring) -> None:
    """Refuse a keyring where the table's first tokens are of a key that it does not hold."""
    for column in rows.head(_LOOKED_AT_ROWS, columns=[column.name for column in table.sealed]).columns:
        token = next((value for value in column.to_pylist() if value), "")
        found = re.fullmatch(TOKEN, token)
        if found and keyring.key(found[1]) is None:
            raise ContractBroken(
                f"{table.full_name} was sealed with key {found[1]}, which {keyring.place} does not hold", _RESTORE
            )


def _check(key: Key) -> str:
    return encode_base64url(key.derive("check", length=_CHECK_BYTES))


def _parse(data: bytes, where: str) -> _Mark:
    try:
        loaded: Any = json.loads(data)
        is_ours = loaded["version"] == _VERSION and isinstance(loaded["check"], str)
        found = _Mark(loaded["key"], loaded["check"]) if is_ours else None
    except (ValueError, KeyError, TypeError, RecursionError):
        found = None
    if found is None or not _is_key_id(found.key_id):
        raise ContractBroken(f"{where} does not say which key the lake was sealed with", f"it was changed: {_RESTORE}")
    return found


def _is_key_id(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(KEY_ID, value) is not None
