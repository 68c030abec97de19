from __future__ import annotations

import json
import re

import pytest

from tests.support.bronze_sources import read_source

_LINES: dict[str, tuple[list[str], dict[str, object]]] = {
    "megatron": (
        [
            " [2026-11-19 13:30:31] iteration       12/     500 | consumed samples:         3072",
            " | elapsed time per iteration (ms): 5123.4 | throughput per GPU (TFLOP/s/GPU): 402.3",
            " | learning rate: 1.2E-05 | global batch size:   256 | lm loss: 1.043E+01",
        ],
        {"step_number": 12, "duration_ns": 5_123_400_000, "batch_size": 256, "loss_number": 10.43},
    ),
    "deepspeed": (
        [
            "node-3: [2026-11-19 13:30:31,125] [INFO] [timer.py:264:stop] epoch=0/micro_step=80/global_step=40, ",
            "RunningAvgSamplesPerSec=12.25, CurrSamplesPerSec=12.5, MemAllocated=4.5GB, MaxMemAllocated=9.0GB",
        ],
        {"step_number": 40, "samples_per_second": 12.5},
    ),
    "torchtitan": (
        [
            "[rank0]:[titan] 2026-11-19 13:30:31,125 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  8.25  ",
            "\x1b[33mmemory: 31.5GiB(33.1%)  \x1b[34mtps: 7,034  \x1b[36mtflops: 407.3  \x1b[35mmfu: 41.19%\x1b[0m",
        ],
        {"step_number": 10, "tokens_per_second": 7034.0, "loss_number": 8.25},
    ),
    "nanogpt": (
        ["iter 30: loss 3.5, time 135.25ms, mfu 38.10%"],
        {"step_number": 30, "duration_ns": 135_250_000, "loss_number": 3.5},
    ),
    "llmc": (
        ["step   10 | loss: 9.5 | lr 1.5e-05 | norm: 2.25 | dt: 93.5ms | tok/sec: 5607.5"],
        {"step_number": 10, "duration_ns": 93_500_000, "tokens_per_second": 5607.5, "loss_number": 9.5},
    ),
}
_NANOGPT = _LINES["nanogpt"][0][0].encode()
_OTHERS = (
    "evaluation:  step: 10  loss:  8.25  memory: 31.5GiB(33.1%)  tps: 7,034",
    "validate step: 10  loss:  8.25  memory: 31.5GiB(33.1%)  tps: 7,034",
    "step 250: train loss 2.5, val loss 2.75",
    "the elapsed time per iteration (ms) is printed below",
)


@pytest.mark.parametrize("name", _LINES)
def test_a_line_that_a_trainer_prints_on_a_step_is_a_record(name: str) -> None:
    parts, expected = _LINES[name]
    line = "".join(parts)
    before = "".join(f"{other}\n" for other in ("loading", *_OTHERS)).encode()
    found = read_source(before + line.encode() + b"\r\n")
    assert found.format == "job_log"
    (row,) = found.table("training_log")
    text = re.sub(r"\x1b\[[0-9]+m", "", line).strip()
    place = {"ordinal": 0, "offset_bytes": len(before), "record": "line", "record_key": name}
    assert row == {**place, **expected, "args": json.dumps({"line": text}, separators=(",", ":"))}
    assert found.lines_count == len(_OTHERS) + 2


def test_a_line_on_a_step_is_found_however_late_it_comes() -> None:
    found = read_source(b"loading\n" * 40_000 + _NANOGPT + b"\n")
    assert [row["step_number"] for row in found.table("training_log")] == [30]


def test_a_line_that_is_too_long_to_be_of_a_step_is_passed_by() -> None:
    found = read_source(_NANOGPT + b"\n" + b"x" * 5_000 + b" " + _NANOGPT + b"\n")
    assert found.reader.passed_count == 1
