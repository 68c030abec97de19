"""The keyring: the secrets that sealed columns depend on, and which of them seals what is written now."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lake.errors import ContractBroken
from lake.private_files import describe_unusable, read_private, write_private

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY_ID = "k[0-9a-f]{7}"
_SECRET_BYTES = 64
_VERSION = 1
_WHAT = "the keyring"
_RESTORE = "put back the keyring that this lake was sealed with: without it, what is sealed cannot be opened"


@dataclass(frozen=True)
class Key:
    """One master secret; it is never used itself, only what is derived from it for one purpose."""

    key_id: str
    created: str
    secret: bytes = field(repr=False)

    def derive(self, purpose: str, *context: str, length: int) -> bytes:
        """A key for one purpose in one context (HKDF-SHA512); one of them says nothing of another."""
        info = join_framed(*(part.encode() for part in ("teetotal", purpose, *context)))
        return HKDF(algorithm=SHA512(), length=length, salt=None, info=info).derive(self.secret)


@dataclass(frozen=True)
class Keyring:
    """All keys that open, and the one that seals."""

    place: str
    active_id: str
    keys: tuple[Key, ...]

    @property
    def active(self) -> Key:
        """The key that seals what is written now."""
        (found,) = (key for key in self.keys if key.key_id == self.active_id)
        return found

    def key(self, key_id: str) -> Key | None:
        """The key of that id, where the keyring holds it."""
        return next((key for key in self.keys if key.key_id == key_id), None)


class KeyringSource(Protocol):
    """Where a keyring comes from; nothing is opened or made before it is called."""

    def __call__(self) -> Keyring:
        """Open the keyring."""

    def create(self) -> Keyring:
        """Make a new keyring with one key."""

    def rotate(self) -> Keyring:
        """Add a key and make it the active one."""


@dataclass(frozen=True)
class KeyringFile:
    """A keyring in a file that its owner alone may read."""

    path: Path
    is_made_on_first_use: bool = False

    def __call__(self) -> Keyring:
        """Open the keyring; the first use makes it where that is allowed, and of two makers one wins."""
        found = self._read_file()
        if found is not None:
            self._remove_leftovers()
            return found
        self._refuse_absence()
        with self._lock_file():
            return self._read_file() or self._write_file(_add_key(None, str(self.path)))

    def create(self) -> Keyring:
        """Make a new keyring with one key; an existing file is never replaced."""
        with self._lock_file():
            if self.path.exists():
                raise ContractBroken(f"{self.path} is there already", "to add a key: `teetotal keys rotate`")
            return self._write_file(_add_key(None, str(self.path)))

    def rotate(self) -> Keyring:
        """Add a key and make it the active one; the older ones stay, to open what they sealed."""
        if not self.path.exists():
            self._refuse_absence()
        with self._lock_file():
            return self._write_file(_add_key(self._read_file(), str(self.path)))

    def _refuse_absence(self) -> None:
        if not self.is_made_on_first_use:
            raise ContractBroken(
                f"there is no keyring at {self.path}",
                f"{_RESTORE}; for a new lake make one: `teetotal --keyring {self.path} keys create`",
            )

    def _read_file(self) -> Keyring | None:
        """What the file holds; nothing where there is no file; an error where others could read it too."""
        data = read_private(self.path, _WHAT, _RESTORE, "teetotal keys rotate")
        return None if data is None else parse(data, str(self.path))

    @contextmanager
    def _lock_file(self) -> Iterator[None]:
        """One writer at a time; the kernel frees the lock even when its holder is killed."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(
                self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise describe_unusable(self.path, _WHAT, "written", error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            for left in self._leftovers():
                left.unlink(missing_ok=True)
            yield
        finally:
            os.close(handle)

    def _remove_leftovers(self) -> None:
        """Remove what a killed writer left: whole keyrings under other names."""
        if self._leftovers():
            with suppress(ContractBroken, OSError), self._lock_file():
                pass  # whoever holds the lock removes them; one who may only read cannot

    def _leftovers(self) -> list[Path]:
        """Files that a writer puts aside; it holds the lock while there is one."""
        name = re.compile(rf"\.{re.escape(self.path.name)}\.[0-9a-f]{{16}}")
        return [entry for entry in self.path.parent.iterdir() if name.fullmatch(entry.name)]

    def _write_file(self, keyring: Keyring) -> Keyring:
        """Put the keyring in place whole."""
        write_private(self.path, _text(keyring).encode(), _WHAT)
        return keyring


@dataclass(frozen=True)
class KeyringSecret:
    """A keyring handed over as text by a secret store; it can be read, never changed."""

    name: str
    text: str = field(repr=False)

    def __call__(self) -> Keyring:
        """Open the keyring."""
        return parse(self.text.encode(), self.name)

    def create(self) -> Keyring:
        """Refuse: what to do instead is the hint."""
        raise self._read_only()

    def rotate(self) -> Keyring:
        """Refuse: what to do instead is the hint."""
        raise self._read_only()

    def _read_only(self) -> ContractBroken:
        return ContractBroken(
            f"{self.name} is read, never written",
            "keep the keyring in a file (mode 600), change that with `teetotal --keyring FILE keys …`, and store its "
            "text as the new secret",
        )


@dataclass(frozen=True)
class NoKeyring:
    """The lack of a keyring, which is an error only to those who need one."""

    what: str
    hint: str

    def __call__(self) -> Keyring:
        """Refuse."""
        raise ContractBroken(self.what, self.hint)

    create = rotate = __call__


def join_framed(*parts: bytes) -> bytes:
    """Parts as one text that no other parts give: each with its length before it."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def encode_base64url(data: bytes) -> str:
    """Bytes as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes | None:
    """The bytes of a base64url text; none where it is not exactly what `encoded` would give."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return data if encode_base64url(data) == text else None


def parse(data: bytes, place: str) -> Keyring:
    """A keyring from its JSON text; what is wrong with it is told without repeating any of it."""
    loaded = _load_json(data)
    problem = _find_problem(loaded)
    if problem:
        raise ContractBroken(f"{place} is no keyring: {problem}", _RESTORE)
    keys = tuple(Key(key["id"], key["created"], decode_base64url(key["secret"]) or b"") for key in loaded["keys"])
    return Keyring(place, loaded["active"], keys)


def _load_json(data: bytes) -> Any:
    # The decoder's own error carries the whole text: it ends here, so that it never becomes the cause of ours.
    with suppress(ValueError, RecursionError):
        return json.loads(data)
    return None


def _find_problem(loaded: Any) -> str | None:
    """Why a JSON value is no keyring."""
    if not isinstance(loaded, dict) or set(loaded) != {"version", "active", "keys"}:
        return "it is not one JSON object of version, active and keys"
    if loaded["version"] != _VERSION:
        return f"its version is not {_VERSION}"
    keys = loaded["keys"]
    if not isinstance(keys, list) or not keys:
        return "it holds no keys"
    for place, key in enumerate(keys, 1):
        if not isinstance(key, dict) or set(key) != {"id", "created", "secret"}:
            return f"key {place} is no object of id, created and secret"
        if not isinstance(key["id"], str) or not re.fullmatch(KEY_ID, key["id"]):
            return f"the id of key {place} is not k and seven hexadecimal digits"
        if not _is_utc(key["created"]):
            return f"key {place} does not say when it was created, in UTC as ISO 8601"
        if not isinstance(key["secret"], str) or len(decode_base64url(key["secret"]) or b"") != _SECRET_BYTES:
            return f"the secret of key {place} is not {_SECRET_BYTES} bytes as base64url"
    ids = [key["id"] for key in keys]
    if len(set(ids)) != len(ids):
        return "two of its keys have one id"
    return None if loaded["active"] in ids else "its active key is none of its keys"


def _is_utc(text: object) -> bool:
    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(text).utcoffset() == timedelta(0)  # type: ignore[arg-type]
    return False


def _add_key(keyring: Keyring | None, place: str) -> Keyring:
    """The keyring with one more key, which is the active one."""
    keys = () if keyring is None else keyring.keys
    taken = {key.key_id for key in keys}
    fresh = next(key_id for key_id in iter(lambda: f"k{secrets.token_hex(4)[:7]}", "") if key_id not in taken)
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Keyring(place, fresh, (*keys, Key(fresh, created, secrets.token_bytes(_SECRET_BYTES))))


def _text(keyring: Keyring) -> str:
    keys = [{"id": key.key_id, "created": key.created, "secret": encode_base64url(key.secret)} for key in keyring.keys]
    return json.dumps({"version": _VERSION, "active": keyring.active_id, "keys": keys}, indent=2) + "\n"
