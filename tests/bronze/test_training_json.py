from __future__ import annotations

import json

import pytest

from bronze.formats import recognise_format
from bronze.limits import Limits
from tests.support.bronze_sources import read_source


def test_an_object_that_counts_a_step_and_says_its_time_is_a_record() -> None:
    lines = (
        b'{"config": {"lr": 0.1}}\n'
        b'{"iteration": 19, "time": 0.25, "data_time": 0.01, "total_loss": 1.5}\n'
        b'{"step": 20, "loss": 1.25, "step_time_ms": 250.5, "tokens_per_sec": 9, "extra": {"lr": 1e-3}}\n'
    )
    found = read_source(lines)
    assert found.format == "training_json"
    assert found.table("training_log") == [
        {
            "ordinal": 0,
            "offset_bytes": 24,
            "record": "csv",
            "step_number": 19,
            "clock_ns": 250_000_000,
            "loss_number": 1.5,
            "args": '{"data_time":"0.01"}',
        },
        {
            "ordinal": 1,
            "offset_bytes": 24 + 70,
            "record": "csv",
            "step_number": 20,
            "duration_ns": 250_500_000,
            "loss_number": 1.25,
            "tokens_per_second": 9.0,
            "args": '{"extra":"{\\"lr\\":0.001}"}',
        },
    ]
    assert found.lines_count == 3


def test_an_evaluation_is_passed_by_and_a_line_that_is_no_object_is_reported() -> None:
    train, evaluated = b'{"step": 1, "loss": 2, "time": 0.5}\n', b'{"step": 1, "accuracy": 0.5, "time": 9.5}\n'
    found = read_source(train + evaluated + b"{broken\n\n" + train)
    assert [row["clock_ns"] for row in found.table("training_log")] == [500_000_000] * 2
    assert found.reasons == ["it is no JSON object"]
    assert (found.lines_count, found.reader.passed_count) == (5, 2)


@pytest.mark.parametrize(
    "written",
    [
        b'[{"step": 1, "time": 0.5},\n {"step": 2,\n  "time": 0.25}]\n',
        b'\xef\xbb\xbf \n[{"step": 1, "time": 0.5}, {"step": 2, "time": 0.25}]',
        b'{"log_history": [{"step": 1, "time": 0.5}, {"step": 2, "time": 0.25}], "x": [{"step": 3, "time": 1}]}',
    ],
    ids=["a list", "a list after a byte order mark", "a history of the Trainer of Hugging Face"],
)
def test_records_may_stand_in_one_document(written: bytes) -> None:
    found = read_source(written)
    assert found.format == "training_json"
    rows = found.table("training_log")
    assert [(row["step_number"], row["clock_ns"]) for row in rows] == [(1, 500_000_000), (2, 250_000_000)]
    assert [written[row["offset_bytes"] :][:9] for row in rows] == [b'{"step": ', b'{"step": ']


def test_the_throughput_of_a_whole_run_is_a_record_of_its_last_step() -> None:
    said = {"epoch": 1.0, "step": 500, "train_runtime": 12.5, "train_samples_per_second": 80.5, "train_loss": 2.5}
    steps = [{"epoch": 0.5, "loss": 3.5, "step": 250}, {"eval_loss": 3.0, "eval_samples_per_second": 9, "step": 500}]
    found = read_source(json.dumps({"log_history": [*steps, said]}, indent=2).encode())
    (row,) = found.table("training_log")
    assert (row["step_number"], row["samples_per_second"], row["loss_number"]) == (500, 80.5, 2.5)


def test_a_document_too_long_to_be_held_is_reported() -> None:
    long = json.dumps([{"step": number, "time": 1} for number in range(40_000)]).encode()
    found = read_source(long, limits=Limits(max_event_bytes=1 << 19))
    assert found.reasons == ["the document is longer than 524,288 bytes: write an object per line"]


@pytest.mark.parametrize("data", [b'{"step": [1], "time": [2]}', b"[[[", b'[{"step": 1}]', b'{"step": 1, "time":'])
def test_other_documents_are_left_to_other_readers(data: bytes) -> None:
    assert recognise_format(data, lambda: iter([data])) is None
