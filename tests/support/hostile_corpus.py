"""Files of every format that we read, changed as somebody who knows the formats would, by the thousand."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import struct
import zlib
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    Change = Callable[[bytes, random.Random], bytes]

_MOST_BYTES = 1 << 20
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_TEXT = re.compile(rb'"[^"\\\n]{0,200}"')
_SQLITE = b"SQLite format 3\x00"
_LOG = b":W&B"
_NUMBERS = (
    b"0",
    b"-0",
    b"-1",
    b"1e308",
    b"-1e400",
    b"0.1",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"1" * 400,
    b"NaN",
    b"Infinity",
    b"1_000",
    b"0x1f",
    b"\xd9\xa1",
    b"",
    b"null",
    b"253402300800",
    b"01",
)
_TEXTS = (
    b'""',
    b'"\\u0000"',
    b'"\\ud800"',
    b'"' + b"x" * 70_000 + b'"',
    b'"=1+1"',
    b'"\xff\xfe"',
    b'"\x1b[31m"',
    b'"../../etc/passwd"',
    b'"\xe2\x80\xae"',
    b"[" * 300,
    b"{}",
    b"true",
)
_VALUES: tuple[Any, ...] = (None, True, -1, 0, 1 << 63, -(1 << 70), 1e308, 0.5, "", "x", "\x00", [], {}, [[]], {"": {}})
_SWAPS = ((b",", b";"), (b",", b"\t"), (b":", b"="), (b"{", b"["), (b"}", b"]"), (b"\n", b"\r\n"), (b"\n", b"\r"))
_STATEMENTS = (
    "UPDATE {table} SET {column} = NULL WHERE rowid % 3 = 0",
    "UPDATE {table} SET {column} = 'no number' WHERE rowid % 2 = 0",
    "UPDATE {table} SET {column} = 9223372036854775807",
    "UPDATE {table} SET {column} = -1 WHERE rowid % 2 = 0",
    "UPDATE {table} SET {column} = x'ff00'",
    "UPDATE {table} SET {column} = 1.5",
    "DELETE FROM {table}",
    "DROP TABLE {table}",
    "ALTER TABLE {table} RENAME COLUMN {column} TO other",
    "INSERT INTO {table} SELECT * FROM {table}",
    "CREATE VIEW stranger AS SELECT * FROM {table}",
)


def draw_file(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """One of the seeds, changed one to four times; half of the changes know what they change."""
    data = chance.choice(seeds)
    for _ in range(chance.randint(1, 4)):
        if chance.random() < 0.1:
            data = _splice(data, chance.choice(seeds), chance)
            continue
        change = chance.choice(_KNOWING if chance.random() < 0.5 else _BLIND)
        data = change(data, chance)[:_MOST_BYTES]
    return chance.choice(_PACKERS)(data, chance) if chance.random() < 0.15 else data


def _place(data: bytes, chance: random.Random) -> int:
    return chance.randint(0, len(data))


def _slice(data: bytes, chance: random.Random) -> tuple[int, int]:
    begin = _place(data, chance)
    return begin, min(len(data), begin + int(2 ** chance.uniform(0, 12)))


def _splice(data: bytes, other: bytes, chance: random.Random) -> bytes:
    return data[: _place(data, chance)] + other[_place(other, chance) :]


# -- blind: bytes and lines ---------------------------------------------------------------------------------------


def _flip(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8) if data else 0):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut_end(data: bytes, chance: random.Random) -> bytes:
    return data[: _place(data, chance)]


def _cut_beginning(data: bytes, chance: random.Random) -> bytes:
    return data[_place(data, chance) :]


def _remove(data: bytes, chance: random.Random) -> bytes:
    begin, end = _slice(data, chance)
    return data[:begin] + data[end:]


def _repeat(data: bytes, chance: random.Random) -> bytes:
    begin, end = _slice(data, chance)
    return data[:end] + data[begin:end] * chance.choice([1, 2, 50]) + data[end:]


def _insert(data: bytes, chance: random.Random) -> bytes:
    place = _place(data, chance)
    return data[:place] + chance.randbytes(chance.choice([1, 3, 100])) + data[place:]


def _shuffle_lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines)


def _repeat_line(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    place = chance.randrange(len(lines))
    return b"\n".join([*lines[:place], *[lines[place]] * chance.choice([2, 30]), *lines[place + 1 :]])


def _swap_sign(data: bytes, chance: random.Random) -> bytes:
    old, new = chance.choice(_SWAPS)
    return data.replace(old, new, chance.choice([1, -1]))


def _recode(data: bytes, chance: random.Random) -> bytes:
    text = data.decode("utf-8", "replace")
    return text.encode(chance.choice(["utf-16", "utf-8-sig", "utf-32"]), "replace")


_BLIND: tuple[Change, ...] = (
    _flip,
    _cut_end,
    _cut_beginning,
    _remove,
    _repeat,
    _insert,
    _shuffle_lines,
    _repeat_line,
    _swap_sign,
    _recode,
)

# -- knowing: numbers, texts, trees and tables --------------------------------------------------------------------


def _replace_match(data: bytes, pattern: re.Pattern[bytes], values: Sequence[bytes], chance: random.Random) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return data
    for one in sorted(chance.sample(found, min(len(found), chance.choice([1, 1, 20]))), key=lambda one: -one.start()):
        data = data[: one.start()] + chance.choice(values) + data[one.end() :]
    return data


def _change_number(data: bytes, chance: random.Random) -> bytes:
    return _replace_match(data, _NUMBER, _NUMBERS, chance)


def _change_text(data: bytes, chance: random.Random) -> bytes:
    return _replace_match(data, _TEXT, _TEXTS, chance)


def _change_tree(data: bytes, chance: random.Random) -> bytes:
    """Change members of a JSON document, or of one of its lines."""
    lines = [data] if data[:1] in b"[{" and data.count(b"\n{") == 0 else data.split(b"\n")
    place = chance.randrange(len(lines))
    with suppress(ValueError, RecursionError):
        tree = json.loads(lines[place])
        for _ in range(chance.choice([1, 3])):
            _change_node(tree, chance)
        lines[place] = json.dumps(tree).encode()
    return b"\n".join(lines)


def _change_node(tree: Any, chance: random.Random) -> None:
    node = tree
    while isinstance(node, (dict, list)) and node:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = chance.choice(keys)
        if not isinstance(node[key], (dict, list)) or not node[key] or chance.random() < 0.2:
            deed = chance.randrange(4)
            if deed == 0:
                del node[key]
            elif deed == 1 and isinstance(node, list):
                node.extend([node[key]] * 20)
            elif deed == 2:
                node[key] = [[node[key]]]
            else:
                node[key] = chance.choice(_VALUES)
            return
        node = node[key]


def _change_database(data: bytes, chance: random.Random) -> bytes:
    """Change a table of a database by a statement, and a record of a log; of what is neither, a number."""
    if data.startswith(_LOG):
        return _change_record(data, chance)
    if not data.startswith(_SQLITE):
        return _change_number(data, chance)
    with closing(sqlite3.connect(":memory:")) as database, suppress(sqlite3.Error, UnicodeError):
        database.deserialize(data)
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = chance.choice(tables)
        columns = [name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))]
        database.execute(chance.choice(_STATEMENTS).format(table=table, column=chance.choice(columns)))
        database.commit()
        return database.serialize()
    return data


def _change_record(data: bytes, chance: random.Random) -> bytes:
    """Change a record of a log and give it the checksum of what it is then, or repeat, remove or swap fragments."""
    fragments, at = [], len(_LOG) + 3
    while at + 7 <= len(data):
        end = at + 7 + struct.unpack_from("<H", data, at + 4)[0]
        fragments.append(data[at:end])
        at = end
    if not fragments:
        return data
    place = chance.randrange(len(fragments))
    body, deed = fragments[place][7:], chance.randrange(4)
    if deed < 2:
        kind = bytes([chance.choice([1, 1, 1, 2, 3, 4, 9])])
        body = chance.choice([_flip, _cut_end, _insert, _repeat])(body, chance)[: 1 << 15]
        checksum = zlib.crc32(kind + body)
        fragments[place] = struct.pack("<IH", checksum, len(body)) + kind + body
    elif deed == 2:
        fragments[place] *= chance.choice([0, 2, 200])
    else:
        chance.shuffle(fragments)
    return data[: len(_LOG) + 3] + b"".join(fragments)


_KNOWING: tuple[Change, ...] = (_change_number, _change_text, _change_tree, _change_tree, _change_database)

# -- packed -------------------------------------------------------------------------------------------------------


def _pack(data: bytes, chance: random.Random) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def _pack_and_cut(data: bytes, chance: random.Random) -> bytes:
    return _cut_end(gzip.compress(data, 1, mtime=0), chance)


def _pack_and_add(data: bytes, chance: random.Random) -> bytes:
    return gzip.compress(data, 1, mtime=0) + chance.randbytes(20)


def _pack_and_flip(data: bytes, chance: random.Random) -> bytes:
    return _flip(gzip.compress(data, 1, mtime=0), chance)


def _pack_as_zstd(data: bytes, chance: random.Random) -> bytes:
    packed = bytes(pa.compress(data, "zstd", asbytes=True))
    return _flip(packed, chance) if chance.random() < 0.5 else packed


_PACKERS: tuple[Change, ...] = (_pack, _pack_and_cut, _pack_and_add, _pack_and_flip, _pack_as_zstd)
