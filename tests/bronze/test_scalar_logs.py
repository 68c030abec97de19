"""Training logs that people have: TensorBoard's events, MLflow's metrics and histories of Weights & Biases.

The files in `written_logs` were written by those libraries (`written_logs/write.py`); Weights & Biases hands out its
history only by its server, so that its two exports are written here as its documentation shows them. What it writes by
itself is in `test_wandb_log.py`, MLflow's database in `test_mlflow_sqlite.py`.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from bronze.formats import recognise_format
from bronze.tensorboard_events import mask_crc
from tests.support.bronze_sources import SourceRows, read_source
from tests.support.campaigns import pick_size

WRITTEN = Path(__file__).parent / "written_logs"
TBX = (WRITTEN / "tensorboardx.events").read_bytes()
S = 1_000_000_000
AT = 1_700_000_000 * S


def frame(data: bytes) -> bytes:
    """A TFRecord, by the format's own description."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", mask_crc(length)) + data + struct.pack("<I", mask_crc(data))


def scalars(found: SourceRows) -> list[tuple[object, ...]]:
    names = ("ts_ns", "step_number", "record_key", "record_value", "loss_number", "samples_per_second")
    return [tuple(row.get(name) for name in names) for row in found.table("training_log")]


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 20])
def test_scalars_that_tensorboardx_wrote_are_rows_with_their_time_step_and_tag(block_bytes: int) -> None:
    found = read_source(TBX, block_bytes)
    assert (found.format, found.unreadable, found.reader.is_complete) == ("tensorboard", [], True)
    assert scalars(found)[:3] == [
        (AT + S // 4, 0, "train/loss", "2.5", 2.5, None),
        (AT + S // 2, 0, "train/samples_per_second", "100.0", None, 100.0),
        (AT + S + S // 4, 1, "train/loss", "1.25", 1.25, None),
    ]
    assert len(scalars(found)) == 6
    assert found.reader.passed_count == 2  # the version of the format, and a text


def test_scalars_that_tensorboard_wrote_as_tensors_are_rows_too() -> None:
    found = read_source((WRITTEN / "tensorboard.events").read_bytes())
    assert [row[1:5] for row in scalars(found)] == [
        (0, "loss", "2.5", 2.5),
        (1, "loss", "1.25", 1.25),
        (2, "loss", "0.625", 0.625),
    ]


def test_the_checksum_is_the_one_of_the_standard() -> None:
    assert mask_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


@pytest.mark.parametrize("cut", range(len(TBX) - 1, 40, -29))
def test_of_an_event_file_that_is_cut_the_rows_before_are_kept_and_the_rest_is_reported(cut: int) -> None:
    whole, found = read_source(TBX), read_source(TBX[:cut])
    assert scalars(found) == scalars(whole)[: len(scalars(found))]
    if found.unreadable:
        (rest,) = found.unreadable
        assert rest.offset + rest.length == cut
        assert not found.reader.is_complete
        assert rest.reason == "the file ends within a record"


def test_a_flipped_bit_costs_its_own_record_or_the_rest_and_never_makes_a_row() -> None:
    right = set(scalars(read_source(TBX)))
    chance = random.Random(7)
    begin = len(TBX) - len(TBX[12 + struct.unpack_from("<Q", TBX)[0] + 4 :])
    for _ in range(pick_size(60, 2000)):
        place, bit = chance.randrange(begin, len(TBX)), chance.randrange(8)
        data = bytearray(TBX)
        data[place] ^= 1 << bit
        found = read_source(bytes(data))
        assert set(scalars(found)) <= right
        assert len(found.unreadable) == 1
        lost = found.unreadable[0]
        assert lost.offset <= place < lost.offset + lost.length


def test_an_event_with_a_right_checksum_that_is_no_message_is_reported() -> None:
    found = read_source(TBX + frame(b"\xff\xff\xff") + frame(b"\x09" + struct.pack("<d", 1.0)))
    assert found.reasons == ["the checksum or the form of an event is wrong"]
    assert len(scalars(found)) == 6


def test_a_large_event_is_passed_by() -> None:
    found = read_source(TBX + frame(b"\x2a\x80\x80\x08" + bytes(1 << 17)) + TBX[-1:0])
    assert (found.unreadable, len(scalars(found)), found.reader.passed_count) == ([], 6, 3)


def test_a_metric_that_mlflow_wrote_is_read_and_a_damaged_line_is_reported() -> None:
    data = (WRITTEN / "mlflow.metric").read_bytes()
    found = read_source(data)
    assert (found.format, found.unreadable) == ("mlflow", [])
    assert [row[:4] for row in scalars(found)] == [
        (AT + S // 4, 0, None, "2.5"),
        (AT + S + S // 4, 1, None, "1.25"),
        (AT + 2 * S + S // 4, 2, None, "0.625"),
    ]
    found = read_source(data + b"1700000003250 nan 3\n17000\xff0 1 4\n1700000004250 0.5")
    assert [row[3] for row in scalars(found)] == ["2.5", "1.25", "0.625", "nan"]
    assert len(found.unreadable) == 2


@pytest.mark.parametrize("text", [b"1700000000250 2.5\n", b"hello 2.5 1\n", b"1700000000 2 3\n", b"1,2,3\n"])
def test_other_numbers_are_not_taken_for_a_metric(text: bytes) -> None:
    known = recognise_format(text, lambda: iter([text]))
    assert known is None or known.name != "mlflow"


def test_a_history_of_weights_and_biases_is_a_training_table_as_csv_and_as_json_lines() -> None:
    header = b"_step,_timestamp,_runtime,loss,samples_per_second\n"
    csv = header + b"0,1700000000.25,1.5,2.5,100\n1,1700000001.25,2.5,1.25,101\n"
    lines = (
        b'{"_step": 0, "_timestamp": 1700000000.25, "_runtime": 1.5, "loss": 2.5, "samples_per_second": 100}\n'
        b'{"_step": 1, "_timestamp": 1700000001.25, "_runtime": 2.5, "loss": 1.25, "samples_per_second": 101}\n'
    )
    table, history = read_source(csv), read_source(lines)
    assert (table.format, history.format) == ("training_csv", "wandb")
    (first, _), rows = table.table("training_log"), history.table("training_log")
    assert (first["step_number"], first["ts_ns"], first["loss_number"], first["record"]) == (0, AT + S // 4, 2.5, "csv")
    strip = ("offset_bytes",)
    assert [{k: v for k, v in row.items() if k not in strip} for row in rows] == [
        {k: v for k, v in row.items() if k not in strip} for row in table.table("training_log")
    ]


def test_a_damaged_line_of_a_history_is_reported_and_the_others_are_kept() -> None:
    found = read_source(
        b'{"_step": 0, "_timestamp": 1}\n{"_step": 1, "_ti\n{"_step": 2, "_timestamp": 3, "m": {"a": [1]}}\n'
    )
    assert [row["step_number"] for row in found.table("training_log")] == [0, 2]
    assert found.reasons == ["it is no JSON object"]
