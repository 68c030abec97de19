"""Sealed at rest: what is sensitive in silver and gold becomes tokens that open only with the key, in their place."""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV

from lake.errors import ContractBroken
from lake.keyring import KEY_ID, decode_base64url, encode_base64url, join_framed

if TYPE_CHECKING:
    from lake.keyring import Key, Keyring
    from lake.tables import Column, Table

TOKEN = rf"^sealed:1:({KEY_ID}):([A-Za-z0-9_-]+)$"
_NONCE_BYTES = 12


class _Names:
    """AES-SIV, bound to table, column and key: equal names give equal tokens, so they can be joined and counted."""

    def __init__(self, table: Table, column: Column, key: Key) -> None:
        self._cipher = AESSIV(key.derive("names", length=64))
        self._bound = [table.full_name.encode(), column.name.encode(), key.key_id.encode()]

    def seal(self, name: bytes) -> bytes:
        return self._cipher.encrypt(name, self._bound)

    def open(self, sealed: bytes) -> bytes:
        return self._cipher.decrypt(sealed, self._bound)


class _Texts:
    """AES-256-GCM under keys of one run, bound to the row; the nonce is made from row and text (decision 6)."""

    def __init__(self, table: Table, column: Column, key: Key, run_id: str) -> None:
        context = (table.full_name, column.name, run_id)
        self._cipher = AESGCM(key.derive("texts", *context, length=32))
        self._nonces = key.derive("nonces", *context, length=32)
        self._bound = join_framed(*(part.encode() for part in (*context, key.key_id)))

    def seal(self, text: bytes, place: bytes) -> bytes:
        nonce = hmac.digest(self._nonces, place + join_framed(text), "sha256")[:_NONCE_BYTES]
        return nonce + self._cipher.encrypt(nonce, text, self._bound + place)

    def open(self, sealed: bytes, place: bytes) -> bytes:
        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        return self._cipher.decrypt(nonce, rest, self._bound + place)


def seal(table: Table, rows: pa.RecordBatch | pa.Table, run_id: str, keyring: Keyring) -> pa.RecordBatch | pa.Table:
    """Replace what is sensitive in a run's rows by tokens under the active key; a null stays a null."""
    key = keyring.active
    lead = f"sealed:1:{key.key_id}:"
    for column in _sealed_columns(table, rows):
        if column.is_free_text:
            texts = _Texts(table, column, key, run_id)
            pairs = zip(rows.column(column.name).to_pylist(), _find_places(table, rows), strict=True)
            found = [
                None if text is None else lead + encode_base64url(texts.seal(text.encode(), at)) for text, at in pairs
            ]
            tokens = pa.array(found, pa.string())
        else:
            names = _Names(table, column, key)
            known = _combine_chunks(rows, column).dictionary_encode()
            found = [lead + encode_base64url(names.seal(name.encode())) for name in known.dictionary.to_pylist()]
            tokens = pa.array(found, pa.string()).take(known.indices)
        rows = _replace_column(rows, column, tokens)
    return rows


def unseal(
    table: Table,
    rows: pa.RecordBatch | pa.Table,
    keyring: Keyring,
    run_id: str | None = None,
    *,
    may_be_plain: bool = False,
) -> pa.RecordBatch | pa.Table:
    """Put back what the tokens stand for; a token that is not of this place, or was touched, is an error.

    With `may_be_plain`, rows of bronze from before it was sealed are among them, and stay as they are.
    """
    for column in _sealed_columns(table, rows):
        opener = (_LenientOpener if may_be_plain else _Opener)(table, column, keyring)
        if column.is_free_text:
            runs = _list_bound_values(table, rows, table.partition_key) if run_id is None else [run_id] * rows.num_rows
            triples = zip(rows.column(column.name).to_pylist(), runs, _find_places(table, rows), strict=True)
            found = [None if token is None else opener.text(token, run, at) for token, run, at in triples]
            values = pa.array(found, pa.string())
        else:
            known = _combine_chunks(rows, column).dictionary_encode()
            values = pa.array(map(opener.name, known.dictionary.to_pylist()), pa.string()).take(known.indices)
        rows = _replace_column(rows, column, values)
    return rows


def abbreviate_token(token: str) -> str:
    """A token as a person needs it: sealed, and by which key."""
    found = re.fullmatch(TOKEN, token)
    return f"sealed:{found[1]}:…" if found else token


class _Opener:
    """Opens the tokens of one column; each cipher is made once."""

    def __init__(self, table: Table, column: Column, keyring: Keyring) -> None:
        self._table = table
        self._column = column
        self._keyring = keyring
        self._ciphers: dict[tuple[str, ...], Any] = {}

    def name(self, token: str) -> str:
        key, sealed = self._split_token(token)
        scope = (key.key_id,)
        if scope not in self._ciphers:
            self._ciphers[scope] = _Names(self._table, self._column, key)
        try:
            return str(self._ciphers[scope].open(sealed), "utf-8")
        except (InvalidTag, ValueError) as error:
            raise self._describe_broken(key) from error

    def text(self, token: str, run_id: str, place: bytes) -> str:
        key, sealed = self._split_token(token)
        scope = (key.key_id, run_id)
        if scope not in self._ciphers:
            self._ciphers[scope] = _Texts(self._table, self._column, key, run_id)
        try:
            return str(self._ciphers[scope].open(sealed, place), "utf-8")
        except (InvalidTag, ValueError) as error:
            raise self._describe_broken(key) from error

    def _split_token(self, token: str) -> tuple[Key, bytes]:
        found = re.fullmatch(TOKEN, token)
        sealed = decode_base64url(found[2]) if found else None
        if found is None or sealed is None:
            raise ContractBroken(
                f"{self._name} holds a value that is no token of ours",
                "it was written around the door: replace the run with `teetotal run --full`",
            )
        key = self._keyring.key(found[1])
        if key is None:
            raise ContractBroken(
                f"{self._name} was sealed with key {found[1]}, which {self._keyring.place} does not hold",
                "name the keyring that this lake was sealed with: --keyring, TEETOTAL_KEYRING",
            )
        return key, sealed

    def _describe_broken(self, key: Key) -> ContractBroken:
        return ContractBroken(
            f"{self._name}: a token of key {key.key_id} does not open",
            "it was changed, it belongs to another table, column or row, or the key is not the one of that id",
        )

    @property
    def _name(self) -> str:
        return f"{self._table.full_name}.{self._column.name}"


class _LenientOpener(_Opener):
    """Leaves what is no token of ours as it is."""

    def name(self, token: str) -> str:
        try:
            return super().name(token)
        except ContractBroken:
            return token

    def text(self, token: str, run_id: str, place: bytes) -> str:
        try:
            return super().text(token, run_id, place)
        except ContractBroken:
            return token


def _sealed_columns(table: Table, rows: pa.RecordBatch | pa.Table) -> list[Column]:
    return [column for column in table.sealed if column.name in rows.schema.names]


def _find_places(table: Table, rows: pa.RecordBatch | pa.Table) -> list[bytes]:
    """What tells a row from the others of its run: the key values that lie in the data file itself, framed."""
    names = [name for name in table.key if name in table.file_schema.names]
    if not names:
        return [b""] * rows.num_rows
    columns = ([str(value).encode() for value in _list_bound_values(table, rows, name)] for name in names)
    return [join_framed(*values) for values in zip(*columns, strict=True)]


def _list_bound_values(table: Table, rows: pa.RecordBatch | pa.Table, name: str) -> list[Any]:
    if name not in rows.schema.names:
        raise ContractBroken(f"{table.full_name}: free text opens only beside its row's {name}")
    values: list[Any] = rows.column(name).to_pylist()
    return values


def _combine_chunks(rows: pa.RecordBatch | pa.Table, column: Column) -> pa.Array:
    found = rows.column(column.name)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _replace_column(rows: pa.RecordBatch | pa.Table, column: Column, values: pa.Array) -> pa.RecordBatch | pa.Table:
    index = rows.schema.get_field_index(column.name)
    return rows.set_column(index, rows.schema.field(index).with_type(pa.string()), values)
