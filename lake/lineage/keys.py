"""The key that signs and the keys that are believed: a file of one's own, an external command, and a list to pin.

Signing needs the private key, checking only the public ones: losing the private key loses no data. The next run makes
a new one, and the old public key stays in the list until somebody revokes it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lake.errors import ContractBroken, EvidenceRejected, SourceUnavailable
from lake.lineage.notes import KeyUse, PublicKey, decode_base64, parse_public_key
from lake.locks import hold_lock
from lake.private_files import read_private, write_private

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lake.lineage.notes import Signer

_WHAT = "the signing key"
_SIGNATURE_BYTES = 64
_SIGNER_S = 60
_HEAD = """\
# Public keys whose signatures on statements, or as witnesses on checkpoints, count (docs/audit.md): name+hash+key.
# Keep a copy apart from the lake and check with it: teetotal verify --trust FILE
# `revoked` after a key: nothing that it signed counts; `revoked after N`: the first N statements of the log still do.
"""
_REVOKED = re.compile(r"revoked(?: after ([0-9]{1,15}))?")


@dataclass(frozen=True)
class TrustedKey:
    """A public key, and from which statement of the log on its signatures no longer count."""

    key: PublicKey
    revoked_after: int | None = None

    def __str__(self) -> str:
        if self.revoked_after is None:
            return str(self.key)
        return f"{self.key} revoked{f' after {self.revoked_after}' if self.revoked_after else ''}"


@dataclass(frozen=True)
class Trust:
    """The keys that a verifier believes: of those who sign statements, and of witnesses of the log."""

    keys: tuple[TrustedKey, ...] = ()
    place: str = "no file"
    listed_witnesses: tuple[TrustedKey, ...] = ()

    @property
    def current(self) -> list[PublicKey]:
        """The keys that are not revoked."""
        return [one.key for one in self.keys if one.revoked_after is None]

    @property
    def witnesses(self) -> list[PublicKey]:
        """The witnesses that are not revoked."""
        return [one.key for one in self.listed_witnesses if one.revoked_after is None]

    def find(self, key_id: str) -> TrustedKey | None:
        """The key of that id that signs statements."""
        return next((one for one in self.keys if one.key.key_id == key_id), None)


def parse_trust(text: str, place: str) -> Trust:
    """A list of keys from its text; a line that is neither a key nor a comment is refused."""
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        key, _, rest = line.strip().partition(" ")
        if not key or key.startswith("#"):
            continue
        revoked = _REVOKED.fullmatch(rest.strip())
        if rest.strip() and revoked is None:
            raise EvidenceRejected(
                f"{place}, line {number}: {rest.strip()[:80]!r} after a key",
                "expected nothing, revoked or revoked after N",
            )
        keys.append(
            TrustedKey(parse_public_key(key, f"{place}, line {number}"), int(revoked[1] or 0) if revoked else None)
        )
    signers = tuple(one for one in keys if one.key.use is KeyUse.STATEMENTS)
    return Trust(signers, place, tuple(one for one in keys if one.key.use is KeyUse.COSIGNATURES))


def load_trust(path: Path) -> Trust:
    """The keys in a file; none where there is no file."""
    try:
        return parse_trust(path.read_text("utf-8"), str(path))
    except FileNotFoundError:
        return Trust(place=f"{path}, which is not there")
    except (OSError, UnicodeDecodeError) as error:
        raise EvidenceRejected(
            f"{path} cannot be read as a list of keys: {error}", "name another with --trust"
        ) from error


@dataclass(frozen=True)
class FileSigner:
    """A private key in this process."""

    public: PublicKey
    private: Ed25519PrivateKey

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""
        return self.private.sign(message)


@dataclass(frozen=True)
class CommandSigner:
    """A private key that another program holds: bytes to its input, base64 of a signature from its output."""

    public: PublicKey
    command: str

    def sign(self, message: bytes) -> bytes:
        """The signature of a message; one that the public key does not confirm is refused."""
        try:
            done = subprocess.run(  # noqa: S603 - the command is the owner's own setting
                shlex.split(self.command), input=message, capture_output=True, timeout=_SIGNER_S, check=True
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise SourceUnavailable(
                f"the signer {self.command!r} gave no signature: {type(error).__name__}",
                "TEETOTAL_SIGNER: bytes on standard input, base64 of the signature on standard output, status 0",
            ) from error
        signature = decode_base64(done.stdout.decode("ascii", "replace").strip())
        if len(signature) != _SIGNATURE_BYTES or not self.public.has_signed(message, signature):
            raise ContractBroken(
                f"the signer {self.command!r} gave no signature of key {self.public.key_id}",
                "TEETOTAL_SIGNER_KEY must be the public key of the key that it signs with",
            )
        return signature


@dataclass(frozen=True)
class SigningKeys:
    """Where signatures come from and which are believed; nothing is opened or made before it is asked for."""

    trust_path: Path
    # None: only an external command signs, or nobody.
    key_path: Path | None = None
    is_made_on_first_use: bool = False
    command: str | None = None
    command_key: str | None = None

    @property
    def trust(self) -> Trust:
        """The keys that are believed."""
        return load_trust(self.trust_path)

    @cached_property
    def signer(self) -> Signer | None:
        """What signs; none where nothing was set up to sign. The first use makes a key where that is allowed."""
        if self.command is not None:
            external = CommandSigner(parse_public_key(self.command_key or "", "TEETOTAL_SIGNER_KEY"), self.command)
            self._believe(external.public)
            return external
        if self.key_path is None:
            return None
        found = self._read()
        if found is None and not self.is_made_on_first_use:
            raise ContractBroken(
                f"there is no signing key at {self.key_path}",
                "`teetotal signing create` makes one; no data depends on it",
            )
        return found or self.rotate(only_if_missing=True)

    def rotate(self, *, only_if_missing: bool = False) -> FileSigner:
        """Make a new private key; the public halves of older ones stay believed."""
        if self.key_path is None:
            raise ContractBroken("there is no signing key to rotate", "set TEETOTAL_SIGNING_KEY to the path of one")
        self.key_path.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(self.key_path.with_name(f"{self.key_path.name}.lock"), _WHAT):
            found = self._read() if only_if_missing else None
            if found is not None:
                return found
            private = Ed25519PrivateKey.generate()
            public = self._name(private)
            self._believe(public)  # first: a key that signs and is not believed would be a false alarm
            pem = private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            write_private(self.key_path, pem, _WHAT)
            return FileSigner(public, private)

    def revoke(self, key_id: str, after: int) -> None:
        """Believe a key no longer: from a statement of the log on, or not at all."""
        trust = self.trust
        if trust.find(key_id) is None:
            raise EvidenceRejected(f"no key {key_id[:80]!r} in {trust.place}", "`teetotal signing list` shows them")
        self._write_trust(TrustedKey(one.key, after) if one.key.key_id == key_id else one for one in trust.keys)

    def _read(self) -> FileSigner | None:
        """The key in the file, under the name that the list of keys has for it."""
        if self.key_path is None:
            return None
        data = read_private(
            self.key_path, _WHAT, "put it back, or move it away: a new one is made", "teetotal signing rotate"
        )
        if data is None:
            return None
        try:
            private = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise ContractBroken(
                f"{self.key_path} is no Ed25519 private key in PEM",
                "put it back, or move it away: a new one is made, and no data depends on it",
            )
        public = self._name(private)
        self._believe(public)
        return FileSigner(public, private)

    def _name(self, private: Ed25519PrivateKey) -> PublicKey:
        """A key under its name: the one that it or an earlier key of this place had, else one made from itself."""
        raw = private.public_key().public_bytes_raw()
        keys = self.trust.keys
        own = next((one.key.name for one in keys if one.key.raw == raw), None)
        return PublicKey(own or (keys[0].key.name if keys else f"teetotal/{PublicKey('', raw).key_id[:8]}"), raw)

    def _believe(self, public: PublicKey) -> None:
        trust = self.trust
        if all(one.key.raw != public.raw for one in trust.keys):
            self._write_trust([*trust.keys, TrustedKey(public)])

    def _write_trust(self, keys: Iterable[TrustedKey]) -> None:
        text = _HEAD + "".join(f"{one}\n" for one in (*keys, *self.trust.listed_witnesses))
        self.trust_path.parent.mkdir(parents=True, exist_ok=True)
        write_private(self.trust_path, text.encode(), "the list of keys", 0o644)
