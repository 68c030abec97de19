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
    "nemo": (
        [
            "0: Training epoch 0, iteration 28/99 | lr: 5.6e-06 | global_batch_size: 32 | global_step: 28 ",
            "| reduced_train_loss: 2.75 | train_step_timing in s: 0.189 | consumed_samples: 928",
        ],
        {"step_number": 28, "duration_ns": 189_000_000, "batch_size": 32, "loss_number": 2.75},
    ),
    "maxtext": (
        ["completed step: 5, seconds: 20.585, TFLOP/s/device: 97.5, Tokens/s/device: 1989.8, loss: 12.5, lr: 3e-04"],
        {"step_number": 5, "duration_ns": 20_585_000_000, "loss_number": 12.5},
    ),
    "fairseq": (
        [
            '2026-11-19 13:30:31 | INFO | train_inner | {"epoch": 2, "update": 1.5, "loss": "9.25", "wps": "25512.5", ',
            '"ups": "0.13", "num_updates": "30", "lr": "2e-05"}',
        ],
        {"epoch_number": 2, "step_number": 30, "tokens_per_second": 25512.5, "loss_number": 9.25},
    ),
    "torchtune": (
        ["Step 12 | loss:1.5 lr:2e-05 tokens_per_second_per_gpu:1234.5 peak_memory_active:9.5 "],
        {"step_number": 12, "tokens_per_second": 1234.5, "loss_number": 1.5},
    ),
    "litgpt": (
        ["Epoch 1 | iter 10 step 5 | loss train: 3.25, val: n/a | iter time: 335.25 ms (step)"],
        {"epoch_number": 1, "step_number": 10, "duration_ns": 335_250_000, "loss_number": 3.25},
    ),
    "modded_nanogpt": (
        ["step:126/1750 train_time:12432ms step_avg:98.67ms"],
        {"step_number": 126, "clock_ns": 12_432_000_000},
    ),
    "pytorch_imagenet": (
        [
            "Epoch: [1][  10/1307]\tTime  0.779 ( 5.211)\tData  0.001 ( 0.060)\tLoss 2.5e+00 (1.5e+01)",
            "\tAcc@1   0.00 (  5.68)\tAcc@5  12.50 ( 27.27)",
        ],
        {"epoch_number": 1, "step_number": 10, "duration_ns": 779_000_000, "loss_number": 2.5},
    ),
    "torchvision": (
        [
            "Epoch: [3]  [  20/1563]  eta: 0:12:33  lr: 0.1  img/s: 395.1 (382.5)  loss: 6.5 (7.0)  acc1: 0.0 (0.1)",
            "  time: 0.3412  data: 0.0012  max mem: 9823",
        ],
        {"epoch_number": 3, "step_number": 20, "duration_ns": 341_200_000, "loss_number": 6.5},
    ),
    "timm": (
        [
            "Train: 4 [  50/6672 (  1%)]  Loss: 6.75 (6.96)  Time: 0.734s,  261.5/s  (0.742s,  258.85/s)  ",
            "LR: 1.000e-04  Data: 0.010 (0.024)",
        ],
        {
            "epoch_number": 4,
            "step_number": 50,
            "duration_ns": 734_000_000,
            "samples_per_second": 261.5,
            "loss_number": 6.75,
        },
    ),
    "mmengine": (
        [
            "07/03 13:04:19 - mmengine - INFO - Epoch(train)  [1][ 20/196]  lr: 3.3e-04  eta: 0:09:39  time: 0.1904  ",
            "data_time: 0.0327  memory: 970  loss: 5.5",
        ],
        {"epoch_number": 1, "step_number": 20, "duration_ns": 190_400_000, "loss_number": 5.5},
    ),
    "detectron2": (
        [
            "[11/19 13:30:31 d2.utils.events]:  eta: 0:10:00  iter: 19  total_loss: 5.25  loss_cls: 1.5  ",
            "time: 0.2345  last_time: 0.2412  data_time: 0.0112  last_data_time: 0.0031   lr: 0.001  max_mem: 5000M",
        ],
        {"step_number": 19, "duration_ns": 234_500_000, "loss_number": 5.25},
    ),
    "pytorch_word_language_model": (
        ["| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 35.25 | loss  7.50 | ppl  1811.01"],
        {"epoch_number": 1, "step_number": 200, "duration_ns": 35_250_000, "loss_number": 7.5},
    ),
    "hugging_face_trainer": (
        [
            "{'train_runtime': 437.8544, 'train_samples_per_second': 25.125, 'train_steps_per_second': 3.145, ",
            "'train_loss': 0.5, 'epoch': 3.0}",
        ],
        {"epoch_number": 3, "samples_per_second": 25.125, "loss_number": 0.5},
    ),
}
_NANOGPT = _LINES["nanogpt"][0][0].encode()
_OTHERS = (
    "evaluation:  step: 10  loss:  8.25  memory: 31.5GiB(33.1%)  tps: 7,034",
    "validate step: 10  loss:  8.25  memory: 31.5GiB(33.1%)  tps: 7,034",
    "step 250: train loss 2.5, val loss 2.75",
    "the elapsed time per iteration (ms) is printed below",
    "Epoch: [1][   0/1307]\tTime 49.345 (49.345)\tData  0.561 ( 0.561)\tLoss 3.2172e+00 (3.2172e+00)",
    "Test: [ 10/196]\tTime  0.779 ( 5.211)\tLoss 2.5e+00 (1.5e+01)",
    "Epoch: [3]  [   0/1563]  eta: 1:12:33  lr: 0.1  img/s: 3.1 (3.1)  loss: 6.5 (6.5)  time: 2.7412  data: 2.0",
    "Test:  [  0/391]  eta: 0:01:30  loss: 6.9 (6.9)  time: 0.2312  data: 0.2",
    "Train: 4 [   0/6672 (  0%)]  Loss: 6.96 (6.96)  Time: 1.839s,  104.41/s  (1.839s,  104.41/s)  LR: 1.000e-04",
    "07/03 13:04:19 - mmengine - INFO - Epoch(val)  [1][20/25]    eta: 0:00:01  time: 0.0412  data_time: 0.0327",
    "step:125/1750 val_loss:4.2887 train_time:12345ms step_avg:98.76ms",
    '2026-11-19 13:30:31 | INFO | valid | {"epoch": 2, "loss": "9.25", "wps": "99512.5", "num_updates": "30"}',
    "{'eval_loss': 0.5, 'eval_runtime': 5.187, 'eval_samples_per_second': 78.658, 'epoch': 3.0}",
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
