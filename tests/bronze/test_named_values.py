"""A loop's own lines: what they count and how long it took, by the names that stand before the numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bronze.named_values import has_named_values, read_named_values
from tests.support.bronze_sources import read_source

MS = 1_000_000
STEP = {"step_number": 10}
_LINES: dict[str, dict[str, Any]] = {
    "step 10 loss 2.5 step_time 0.25": {**STEP, "loss_number": 2.5, "duration_ns": 250 * MS},
    "step=10 loss=2.5 step_time=0.25 tok/s=1000": {
        **STEP,
        "loss_number": 2.5,
        "duration_ns": 250 * MS,
        "tokens_per_second": 1000.0,
    },
    "step: 10, time: 0.25s, loss: 2.5": {**STEP, "loss_number": 2.5, "clock_ns": 250 * MS},
    "2026-11-19 13:30:31,125 - root - INFO - step 10/500 | dt 93.5ms | 1,234.5 tok/s": {
        **STEP,
        "duration_ns": 93_500_000,
        "tokens_per_second": 1234.5,
    },
    "INFO step 10 remaining time: 300 s, dt: 0.1": {**STEP, "duration_ns": 100 * MS},
    "{'step': 10, 'loss': 2.5, 'dt': 0.25}": {**STEP, "loss_number": 2.5, "duration_ns": 250 * MS},
    "Step time (ms): 226.5 | step 10 | loss nan": {**STEP, "duration_ns": 226_500_000},
    "steps: 10 loss: 2.5 iter time (s): 0.512 samples/sec: 31.25": {
        **STEP,
        "loss_number": 2.5,
        "duration_ns": 512 * MS,
        "samples_per_second": 31.25,
    },
    "Epoch [3/10], Step [10/600], Loss: 0.25, Step time: 0.125": {
        **STEP,
        "epoch_number": 3,
        "loss_number": 0.25,
        "duration_ns": 125 * MS,
    },
    "Epoch: 1, Batch: 10/391, Throughput: 512.5 samples/s": {**STEP, "epoch_number": 1, "samples_per_second": 512.5},
    "Epoch 3 took 12.5 s": {"epoch_number": 3, "duration_ns": 12_500 * MS},
    "Epoch 3 completed in 12.5 seconds": {"epoch_number": 3, "duration_ns": 12_500 * MS},
    "Epoch: [3] Total time: 0:12:33": {"epoch_number": 3, "clock_ns": 753_000 * MS},
}
_OTHERS = (
    "step 10 loss 2.5",
    "eval step 10 step_time 0.25",
    "step 10 val_loss 2.5 val_time 0.25",
    "step 10: test time 0.25",
    "each step took 12 s",
    "step time: 0.25 s",
    "step 10 data_time 0.25 remaining time: 300 s",
)


@pytest.mark.parametrize("line", _LINES)
def test_the_names_in_a_line_say_what_its_numbers_are(line: str) -> None:
    row = read_named_values(line.encode())
    assert row is not None
    columns = {name: value for name, value in row.items() if name not in {"record", "record_key", "args"}}
    assert columns == _LINES[line]


@pytest.mark.parametrize("line", _OTHERS)
def test_a_line_that_counts_nothing_or_says_no_time_of_training_is_passed_by(line: str) -> None:
    assert read_named_values(line.encode()) is None
    kept = "step 1 dt 0.25\nstep 2 dt 0.25\n"
    found = read_source(f"{kept}{line}\n".encode())
    assert [row["step_number"] for row in found.table("training_log")] == [1, 2]
    assert found.lines_count == 3


def test_a_log_of_a_loop_of_its_own_is_read_whatever_else_it_says() -> None:
    lines = [
        "loading",
        *(f"step {place} loss {3 - place / 10:.3f} dt {100 + place}.5 ms" for place in range(4)),
        "done",
    ]
    found = read_source("\n".join(lines).encode())
    assert found.format == "job_log"
    rows = found.table("training_log")
    assert [row["duration_ns"] for row in rows] == [100_500_000, 101_500_000, 102_500_000, 103_500_000]
    assert {row["record_key"] for row in rows} == {"values:duration_ns,step_number"}
    assert found.lines_count == 6


def test_one_line_alone_may_be_prose() -> None:
    assert not has_named_values([b"the first epoch 1 took 12 s, which is much"])
    assert not has_named_values([b"epoch 1 took 12 s", b"step 2 dt 0.5"]), "two lines of two kinds"
    assert has_named_values([b"epoch 1 took 12 s", b"so far", b"epoch 2 took 11 s"])


def test_what_a_trainer_prints_is_read_as_its_own_and_what_it_leaves_out_is_left_out() -> None:
    first = b"Epoch: [1][   0/99]\tTime  9.500 ( 9.500)\tLoss 2.5e+00 (2.5e+00)\n"
    other = b"Epoch: [1][  10/99]\tTime  0.500 ( 1.500)\tLoss 2.5e+00 (2.5e+00)\n"
    rows = read_source(first + other).table("training_log")
    assert [(row["record_key"], row["step_number"]) for row in rows] == [("pytorch_imagenet", 10)]


@given(
    st.lists(st.sampled_from(["step", "1", " ", ":", "dt", "a", "(", "[", "0.5", "/", "s", "=", "9:00"]), max_size=400)
)
def test_whatever_a_line_says_what_is_read_of_it_stands_in_it(parts: list[str]) -> None:
    line = "".join(parts)
    row = read_named_values(line.encode()) or {}
    assert str(row.get("step_number", "")) in line
    assert ("duration_ns" in row) <= ("dt" in line)
