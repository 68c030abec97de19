"""The file that Weights & Biases keeps of a run; `written_logs/write.py` says how the one here was written."""

from __future__ import annotations

import gzip
import json
import math
import random
import struct
import tracemalloc
import zlib
from itertools import pairwise, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bronze.limits import Limits
from bronze.log_blocks import BLOCK_BYTES, LogRecord, split_records
from lake.errors import EvidenceRejected
from tests.support.bronze_sources import SourceRows, read_source
from tests.support.campaigns import pick_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import LandFiles

WRITTEN = gzip.decompress((Path(__file__).parent / "written_logs" / "run.wandb.gz").read_bytes())
HEADER = b":W&B\xe1\xbe\x00"
S = 1_000_000_000
AT = 1_700_000_000 * S
# Where the long record of the last summary begins; all before lies within one block.
_LONG = 15_165
_WRONG, _CUT = "the checksum of a record is wrong", "the file ends within a record"


def fragment(kind: int, data: bytes) -> bytes:
    """A checked fragment, by the format's own description."""
    return struct.pack("<IHB", zlib.crc32(bytes([kind]) + data), len(data), kind) + data


def field(place: int, value: bytes | int) -> bytes:
    """A field of a protobuf message: a text or message, or a whole number."""
    if isinstance(value, int):
        return _varint(place << 3) + _varint(value)
    return _varint(place << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def history(*items: bytes, step: int | None = None) -> bytes:
    """A fragment with one record of the history."""
    number = b"" if step is None else field(2, field(1, step))
    return fragment(1, field(1, 7) + field(2, b"".join(field(1, item) for item in items) + number))


def item(name: str, value: str) -> bytes:
    """A value of a step, as JSON."""
    return field(1, name.encode()) + field(16, value.encode())


def steps(found: SourceRows) -> list[tuple[Any, ...]]:
    names = ("step_number", "ts_ns", "loss_number", "samples_per_second", "duration_ns")
    return [tuple(row.get(name) for name in names) for row in found.table("training_log")]


def arguments(found: SourceRows) -> list[dict[str, Any]]:
    return [json.loads(row.get("args", "{}")) for row in found.table("training_log")]


def hold_tiled(data: bytes) -> list[Any]:
    """All that is in a log; every byte of it is in one record, in one unreadable range, or is padding."""
    found, at = [*split_records(iter([data]), len(HEADER), 1 << 24)], len(HEADER)
    for one in found:
        assert one.length > 0
        if one.offset != at:
            assert (one.offset - at < 7, one.offset % BLOCK_BYTES, any(data[at : one.offset])) == (True, 0, False)
        at = one.offset + one.length
    assert at == len(data) or (len(data) - at < 7 and BLOCK_BYTES - at % BLOCK_BYTES < 7)
    return found


@pytest.mark.parametrize("block_bytes", [7, BLOCK_BYTES, 1 << 20])
def test_the_history_that_the_library_wrote_is_a_row_per_step(block_bytes: int) -> None:
    found = read_source(WRITTEN, block_bytes)
    assert (found.format, found.unreadable, found.reader.is_complete) == ("wandb_log", [], True)
    assert [row[:4] for row in steps(found)] == [
        (step, AT + S // 4 + step * S, None if step == 7 else 2.5 / (step + 1), 32.0) for step in range(30)
    ]
    assert [row[4] for row in steps(found)] == [math.floor((0.25 + step / 1024) * S + 0.5) for step in range(30)]
    said = arguments(found)
    assert (said[7]["loss"], said[0]["optimizer.lr"], said[0]["optimizer.group.momentum"]) == ("NaN", "0.001", "0.5")
    # Its record goes over three blocks.
    assert said[29]["note"] == "x" * 70_000
    assert found.reader.passed_count == 69


def test_the_history_as_json_lines_gives_the_same_rows() -> None:
    lines = b"".join(
        json.dumps({"_step": step, "_timestamp": 1_700_000_000.25 + step, "loss": 2.5 / (step + 1)}).encode() + b"\n"
        for step in range(30)
    )
    own = [row[:3] for row in steps(read_source(WRITTEN))]
    exported = [row[:3] for row in steps(read_source(lines))]
    assert own[:7] + own[8:] == exported[:7] + exported[8:]


@pytest.mark.parametrize("part", ["records", "rows"])
def test_a_file_that_is_cut_anywhere_keeps_its_rows_and_reports_the_rest(part: str) -> None:
    """At every byte of the first records, and in steps behind; each row costs a parse, so that their cuts are fewer."""
    whole = hold_tiled(WRITTEN)
    right = steps(read_source(WRITTEN))
    each = 2_000 if part == "records" else len(HEADER)
    stride = pick_size(23, 1) if part == "records" else pick_size(503, 3)
    cuts = [*range(len(HEADER), each), *range(each, _LONG + 80, stride), *range(_LONG + 80, len(WRITTEN), 5_999)]
    for cut in cuts:
        data = WRITTEN[:cut]
        if part == "records":
            found = hold_tiled(data)
            is_cut = bool(found) and not isinstance(found[-1], LogRecord)
            assert found[: len(found) - is_cut] == whole[: len(found) - is_cut]
            assert not is_cut or found[-1].reason == _CUT
        else:
            read = read_source(data)
            assert steps(read) == right[: len(steps(read))]
            assert read.reasons in ([], [_CUT])
            assert read.reader.is_complete == (read.reasons == [])


def test_a_flipped_bit_costs_its_record_and_never_makes_a_row() -> None:
    right = set(steps(read_source(WRITTEN)))
    chance = random.Random(11)
    for number in range(pick_size(40, 2_000)):
        place = chance.randrange(len(HEADER), _LONG if number % 3 else len(WRITTEN))
        data = bytearray(WRITTEN)
        data[place] ^= 1 << chance.randrange(8)
        hold_tiled(bytes(data))
        found = read_source(bytes(data))
        assert set(steps(found)) <= right
        assert any(one.offset <= place < one.offset + one.length for one in found.unreadable), place


def test_damage_within_a_record_leaves_the_records_around_it() -> None:
    first, second, third = (history(item("_step", str(step))) for step in range(3))
    found = read_source(HEADER + first + second[:-1] + b"\xff" + third)
    assert ([row[0] for row in steps(found)], found.reasons) == ([0, 2], [_WRONG])


def test_a_damaged_length_costs_the_rest_of_its_block() -> None:
    one = history(item("_step", "5"))
    count = (BLOCK_BYTES - len(HEADER)) // len(one)
    padding = BLOCK_BYTES - len(HEADER) - count * len(one)
    data = bytearray(HEADER + one * count + bytes(padding) + one)
    assert 0 < padding < 7, "choose another record: this one leaves no padding"
    data[len(HEADER) + 2 * len(one) + 4] ^= 3
    found = read_source(bytes(data))
    assert (len(steps(found)), found.reasons) == (3, [_WRONG])
    assert found.unreadable[0].length == (count - 2) * len(one) + padding


def test_parts_of_a_record_without_the_others_are_reported() -> None:
    whole = history(item("_step", "1"))
    parts = fragment(3, b"middle") + fragment(4, b"last") + whole + fragment(2, b"first") + whole + fragment(2, b"x")
    found = read_source(HEADER + parts)
    assert [row[0] for row in steps(found)] == [1, 1]
    assert found.reasons == [
        *repeat("it is part of a record whose beginning cannot be read", 2),
        "it is the beginning of a record whose end cannot be read",
        _CUT,
    ]


def test_a_fragment_of_an_unknown_kind_and_padding_that_is_none_are_reported() -> None:
    found = read_source(HEADER + fragment(5, b"x") + history(item("_step", "1")) + bytes(40))
    assert [row[0] for row in steps(found)] == [1]
    assert found.reasons == ["a fragment is of kind 5, which nobody knows", _WRONG]
    filled = HEADER + fragment(1, bytes(BLOCK_BYTES - len(HEADER) - 7 - 3)) + b"\x00\x00\x01" + history()
    assert hold_tiled(filled)[1].reason == "the padding of a block is not empty"
    assert len(hold_tiled(filled)) == 3


def test_values_are_read_in_every_form_that_the_format_has() -> None:
    name = field(1, b"v")
    values = {
        "none": field(3, 0),
        "boolean": field(4, 1),
        "integer": field(5, 5),
        "number": _varint(6 << 3 | 1) + struct.pack("<d", 0.5),
        "text": field(7, b"a"),
        "json": field(8, b'{"a": 1.50}'),
        "broken": field(16, b"{"),
        "unknown": field(99, b"x"),
    }
    found = read_source(HEADER + b"".join(history(name + value) for value in values.values()))
    assert [said.get("v") for said in arguments(found)] == ["null", "True", "-3", "0.5", "a", '{"a":1.50}', "{", "null"]
    assert found.unreadable == []


def test_a_name_that_comes_twice_is_kept_twice_and_the_step_stands_in_for_its_value() -> None:
    twice = history(item("a", "1"), item("a", "2"), item("_timestamp", "1.70000000025e+09"), step=4)
    found = read_source(HEADER + twice + history(item("_step", "9"), step=4))
    assert [row[:2] for row in steps(found)] == [(4, AT + S // 4), (9, None)]
    assert arguments(found)[0] == {"a": "1", "a#1": "2"}


def test_the_order_of_values_says_nothing_because_the_library_writes_them_in_any() -> None:
    one, other = item("loss", "1"), item("train loss", "2")
    found = read_source(HEADER + history(one, other) + history(other, one))
    assert [row[2] for row in steps(found)] == [1.0, 1.0]
    assert arguments(found) == [{"train loss": "2"}] * 2


def test_records_of_other_kinds_are_passed_by_and_what_is_no_message_is_reported() -> None:
    data = HEADER + fragment(1, field(1, 1) + field(17, b"run")) + fragment(1, b"") + fragment(1, b"\xff" * 9)
    found = read_source(data + fragment(1, field(2, b"\xff")))
    assert (found.reader.passed_count, steps(found)) == (2, [])
    assert found.reasons == ["a record is no message of the form that Weights & Biases writes"] * 2


def test_a_record_larger_than_any_is_reported_and_never_held() -> None:
    middle, count = fragment(3, bytes(BLOCK_BYTES - 7)), 2_000

    def blocks() -> Iterator[bytes]:
        yield HEADER + fragment(2, bytes(BLOCK_BYTES - len(HEADER) - 7))
        yield from repeat(middle, count)
        yield fragment(4, b"") + history(item("_step", "1"))

    tracemalloc.start()
    lost, last = split_records(blocks(), len(HEADER), 1 << 16)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(lost, LogRecord)
    assert (lost.is_whole, lost.offset, lost.length) == (False, 7, BLOCK_BYTES * (count + 1))
    assert len(lost.data) == 64
    assert last.length == len(history(item("_step", "1")))
    assert peak < 1 << 20
    found = read_source(HEADER + history(item("_step", "1")), limits=Limits(max_event_bytes=16))
    assert found.reasons == ["the record is larger than 16 bytes"]


def test_a_step_larger_than_any_is_reported() -> None:
    data = field(2, field(1, item("a", json.dumps("x" * (1 << 20)))))
    places = [0, *range(BLOCK_BYTES - len(HEADER) - 7, len(data), BLOCK_BYTES - 7), len(data)]
    kinds = [2, *repeat(3, len(places) - 3), 4]
    log = HEADER + b"".join(
        fragment(kind, data[at:end]) for kind, (at, end) in zip(kinds, pairwise(places), strict=True)
    )
    found = read_source(log + history(item("_step", "1")))
    assert ([row[0] for row in steps(found)], found.reasons) == ([1], ["the step is larger than 1,048,576 bytes"])
    assert (found.unreadable[0].offset, found.unreadable[0].length) == (len(HEADER), len(log) - len(HEADER))


def test_a_later_version_of_the_form_is_refused_with_the_next_step(land_files: LandFiles) -> None:
    with pytest.raises(EvidenceRejected, match="in version 1 of its form, and version 0 is read"):
        read_source(b":W&B\xe1\xbe\x01" + WRITTEN[7:])
    file = land_files({"run.wandb": b":W&B\xe1\xbe\x01" + WRITTEN[7:]}).file("run.wandb")
    assert file["outcome"] == "rejected"
    assert "land its history as CSV or JSON lines" in str(file["reason"])
