"""One sealed note per open run: which of its files were read, so that the next landing reads only the others.

A note repeats file names and what traces say of themselves, and it decides which rows are taken as read: it is
encrypted and authenticated with the lake's keyring. One that is lost, changed or of another key is no note.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import obstore
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lake.cut_off import delete_object, fetch_object
from lake.identity import slug
from lake.locations import make_private, report_unreachable
from lake.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lake.keyring import Key, Keyring
    from lake.locations import Location

_FOLDER = "_staging/landings"
_NONCE_BYTES = 12
_PURPOSE = "landing notes"


def read_note(place: Location, open_keyring: Callable[[], Keyring], run_id: str) -> dict[str, Any] | None:
    """What the last landing of a run noted; none where there is no note that this keyring has written.

    Without a note the keyring is not asked for: where there is none, asking would make one.
    """
    with report_unreachable(f"the note on run {run_id} in {place} could not be read"):
        try:
            data = _path(place, run_id).read_bytes() if place.is_local else fetch_object(place.store, _key(run_id))
        except FileNotFoundError:
            return None
    key_id, _, sealed = data.partition(b":")
    key = open_keyring().key(key_id.decode("ascii", "replace"))
    if key is None:
        return None
    try:
        text = _cipher(key, run_id).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], run_id.encode())
        found = json.loads(text)
    except (InvalidTag, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_note(place: Location, keyring: Keyring, run_id: str, note: dict[str, Any]) -> None:
    """Replace the note on a run, whole."""
    nonce, key = secrets.token_bytes(_NONCE_BYTES), keyring.active
    sealed = _cipher(key, run_id).encrypt(nonce, json.dumps(note).encode(), run_id.encode())
    with report_unreachable(f"the note on run {run_id} in {place} could not be written"):
        data = key.key_id.encode() + b":" + nonce + sealed
        if place.is_local:
            path = _path(place, run_id)
            for folder in (path.parent.parent, path.parent):
                make_private(folder)
            write_private(path, data, "the note on an open run")
        else:
            obstore.put(place.store, _key(run_id), data)


def remove_note(place: Location, run_id: str) -> None:
    """Forget what was noted on a run."""
    with report_unreachable(f"the note on run {run_id} in {place} could not be removed"), suppress(FileNotFoundError):
        if place.is_local:
            _path(place, run_id).unlink(missing_ok=True)
        else:
            delete_object(place.store, _key(run_id))


def _key(run_id: str) -> str:
    return f"{_FOLDER}/{slug(run_id)}.note"


def _path(place: Location, run_id: str) -> Path:
    return place.directory / _key(run_id)


def _cipher(key: Key, run_id: str) -> AESGCM:
    return AESGCM(key.derive(_PURPOSE, run_id, length=32))
