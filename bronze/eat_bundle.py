"""The reader of a detached EAT bundle: every token decoded, verified against given keys alone, and never believed."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bronze import json_text
from bronze.attestations import TABLE
from bronze.collective_json import read_document
from bronze.decimals import parse_nanoseconds
from bronze.lines import as_text
from bronze.records import RecordReader
from bronze.tolerant_parser import make_range
from lake.attestation_keys import ALGORITHMS, unique_members
from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits
    from lake.attestation_keys import AttestationKeys

_BUNDLE = re.compile(rb'\s*\[\s*\[\s*"JWT"\s*,')
_BARE = re.compile(rb"\s*eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*")
_PART = re.compile(r"[A-Za-z0-9_-]*")
_MOST_BUNDLE_BYTES = 16 << 20
_MOST_TOKEN_CHARS = 1 << 18
_MOST_TOKENS = 4096
_MOST_DEPTH = 8
_SECOND_NS = 1_000_000_000
_YES, _NO = {"true", "valid", "success"}, {"false", "invalid", "failure"}
_DOCUMENT = tomllib.loads(files(__package__).joinpath("attestation_claims.toml").read_text("utf-8"))
VERSION: int = _DOCUMENT["version"]
_CLAIMS = tuple((entry["column"], entry["kind"], entry["sources"]) for entry in _DOCUMENT["claim"])


def is_bundle(head: bytes) -> bool:
    """Whether it begins as a bundle of tokens does, or as a token itself."""
    return _BUNDLE.match(head) is not None or _BARE.match(head) is not None


@dataclass(frozen=True)
class _Token:
    """A token taken apart; `fault` says why it cannot be trusted whatever keys there are."""

    text: str
    header: dict[str, Any]
    header_text: str | None
    claims: dict[str, Any]
    claims_text: str | None
    fault: str | None


class EatBundleReader(RecordReader):
    """One bundle, read whole: it holds a few kilobytes a device."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits, keys: AttestationKeys) -> None:
        super().__init__(TABLE)
        self._blocks = blocks
        self._most_bytes = min(_MOST_BUNDLE_BYTES, limits.max_event_bytes)
        self._keys = keys

    def _read(self) -> Iterator[None]:
        data = as_text(read_document(self._blocks, self._most_bytes)).strip()
        found = [(None, data)] if not data.startswith("[") else list(_tokens(_document(data)))
        if len(found) > _MOST_TOKENS:
            raise EvidenceRejected(f"it is an attestation of {len(found):,} tokens, which no machine has devices for")
        vouched: dict[str, Any] = {}
        for submodule, token in found:
            if not isinstance(token, str):
                where = submodule or "overall"
                self.report(
                    make_range(
                        0,
                        0,
                        f"the token of {where[:160]} is no text",
                        json_text.write_json(token).encode("utf-8", "replace"),
                    )
                )
                continue
            if len(token) > _MOST_TOKEN_CHARS:
                reason = (
                    f"the token of {(submodule or 'overall')[:160]} is longer than {_MOST_TOKEN_CHARS:,} characters"
                )
                self.report(make_range(0, 0, reason, token[:64].encode()))
                continue
            parts = _split_token(token)
            row = _select_claims(parts.claims) | self._verify_signature(parts)
            row |= {"submodule": submodule, "header": parts.header_text, "claims": parts.claims_text, "token": token}
            row["is_vouched"] = _is_vouched(vouched, submodule, token)
            if isinstance(parts.claims.get("submods"), dict):
                vouched = parts.claims["submods"]
            if row["verdict"] == "verified":
                self.attestation_ids |= _ids(row)
            self.add(TABLE, row, 4 * len(token))
            yield

    def _verify_signature(self, token: _Token) -> dict[str, Any]:
        """Who made the signature: a key that was given, none that was given, or nobody."""
        algorithm, key_id = token.header.get("alg"), token.header.get("kid")
        row = {
            "signature_algorithm": algorithm if isinstance(algorithm, str) else None,
            "signing_key_id": key_id if isinstance(key_id, str) else None,
        }
        verdict, reason = self._verdict(token, str(algorithm), row["signing_key_id"])
        return row | {"verdict": verdict, "verdict_reason": reason}

    def _verdict(self, token: _Token, algorithm: str, key_id: str | None) -> tuple[str, str]:
        if token.fault is not None:
            return "refused", token.fault
        if not self._keys.keys:
            return "unverified", "no keys were given (TEETOTAL_ATTESTATION_KEYS)"
        fitting = [key for key in self._keys.keys if key.fits(algorithm, key_id)]
        if not fitting:
            return "unverified", f"no key was given for {algorithm} signatures of this key id"
        if any(key.has_signed(token.text) for key in fitting):
            return "verified", f"the {algorithm} signature is by a key that was given"
        return "forged", f"the {algorithm} signature is not by any key that was given"


def _document(data: str) -> Any:
    try:
        return json_text.parse_json(data)
    except ValueError as error:
        raise EvidenceRejected(f"it begins as an attestation bundle and is no JSON: {str(error)[:160]}") from error


def _tokens(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str | None, Any]]:
    """All tokens of a bundle, bundles inside it too, each with the names on the way to it."""
    if isinstance(found, list) and len(path) < _MOST_DEPTH:
        for item in found:
            is_marked = isinstance(item, list) and len(item) == 2 and item[0] == "JWT"
            yield from [("/".join(path) or None, item[1])] if is_marked else _tokens(item, path)
    elif isinstance(found, dict) and len(path) < _MOST_DEPTH:
        for name, item in found.items():
            yield from _tokens(item, (*path, str(name)))
    else:
        yield "/".join(path) or None, found


def _split_token(token: str) -> _Token:
    """Take a token apart, and say what makes it no signed token."""
    parts = token.split(".", 4)
    texts = [_decode(part) for part in (*parts, "", "")[:2]]
    header, claims = (json_text.parse_object(text or "") for text in texts)
    algorithm = (header or {}).get("alg")
    fault = None
    if len(parts) != 3 or header is None or claims is None:
        fault = "it is no token of a header, claims and a signature"
    elif algorithm not in ALGORITHMS:
        fault = f"it names the algorithm {str(algorithm)[:40]!r}, which proves nothing"
    elif "crit" in header:
        fault = "its header names extensions that must be understood, and none is"
    elif not isinstance(header.get("kid", ""), str):
        fault = "its header names a key id that is no text"
    elif any(map(_repeats_a_member, texts)):
        fault = "its header or its claims name a member twice"
    elif not _bytes(parts[2]):
        fault = "it has no signature"
    return _Token(token, header or {}, texts[0], claims or {}, texts[1], fault)


def _bytes(part: str) -> bytes | None:
    """What a part of a token holds; none where it is not base64url as it must be written."""
    from jwt.utils import base64url_decode, base64url_encode

    if _PART.fullmatch(part) is None:
        return None
    try:
        data = base64url_decode(part)
    except ValueError:
        return None
    # Bits behind the last byte mean nothing, so that other texts would be the same token.
    return data if base64url_encode(data) == part.encode() else None


def _decode(part: str) -> str | None:
    data = _bytes(part)
    return None if data is None else as_text(data)


def _repeats_a_member(text: str | None) -> bool:
    try:
        json.loads(text or "", object_pairs_hook=unique_members)
    except ValueError:
        return True
    return False


def _ids(row: dict[str, Any]) -> set[str]:
    """What makes a token known again in another run: its nonce, and the id of one that speaks for a whole platform."""
    is_overall = row["submodule"] is None or "is_overall_success" in row
    found = {"nonce": row.get("nonce"), "id": row.get("token_id") if is_overall else None}
    return {f"{name}:{_shorten(value)}" for name, value in found.items() if value is not None}


def _shorten(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:16]


def _is_vouched(submods: dict[str, Any], submodule: str | None, token: str) -> bool | None:
    """Whether the overall token names this one by its digest."""
    named = submods.get((submodule or "").rpartition("/")[2])
    if not (isinstance(named, list) and len(named) == 2 and named[0] == "DIGEST" and isinstance(named[1], list)):
        return None
    how, digest = (*named[1], None, None)[:2]
    if str(how).upper().replace("_", "-") != "SHA-256" or not isinstance(digest, str):
        return None
    return digest.lower() == hashlib.sha256(token.encode()).hexdigest()


def _select_claims(claims: dict[str, Any]) -> dict[str, Any]:
    """The claims that have a column, by whichever of their names is there."""
    row: dict[str, Any] = {}
    for column, kind, sources in _CLAIMS:
        for path in sources:
            value: Any = claims
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            taken = _convert_claim(kind, value)
            if taken is not None:
                row[column] = taken
                break
    return row


def _convert_claim(kind: str, value: Any) -> Any:
    """A claim as its column has it; none where it is of another kind (all claims stand beside it as they are)."""
    if kind == "text":
        if isinstance(value, str):
            return value
        return None if value is None else json_text.write_json(value)
    if kind == "time":
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        return parse_nanoseconds(str(value), _SECOND_NS)[0] if is_number else None
    text = str(value).casefold()
    return True if text in _YES else False if text in _NO else None
