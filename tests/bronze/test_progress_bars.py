"""Progress bars of training in a job's output: epochs, with the mean rate of their steps."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

from tests.support.bronze_sources import read_source

Rows = list[dict[str, Any]]
S = 1_000_000_000


def read_bars(text: str) -> Rows:
    return list(read_source(("loading\n" + text).encode()).table("training_log"))


def draw(name: str, done: int, total: int, elapsed: str, rate: str, more: str = "") -> str:
    share = 100 * done // total
    return f"{name}: {share:3}%|{'█' * (share // 10):10}| {done}/{total} [{elapsed}<00:00, {rate}{more}]"


def test_a_full_bar_of_an_epoch_is_a_record_of_its_duration_by_its_mean_rate() -> None:
    drawn = [
        draw("Epoch 3", 0, 391, "00:00", "?it/s"),
        draw("Epoch 3", 200, 391, "00:10", "25.00it/s"),
        draw("Epoch 3", 391, 391, "00:21", "18.05it/s", ", loss=0.25, v_num=7"),
    ]
    (row,) = read_bars("\r".join(["", *drawn]) + "\n")
    assert (row["record"], row["record_key"], row["epoch_number"]) == ("line", "progress_bar", 3)
    assert row["duration_ns"] == pytest.approx(391 / 18.05 * S, rel=1e-9)
    assert row["loss_number"] == 0.25
    assert row["offset_bytes"] == len("loading\n") + len("\r".join(["", *drawn[:2]]).encode()) + 1


def test_slow_steps_are_said_in_seconds_each_and_long_epochs_in_hours() -> None:
    (row,) = read_bars(draw("Train Epoch: 2", 1200, 1200, "1:02:00", " 3.10s/it") + "\n")
    assert (row["epoch_number"], row["duration_ns"]) == (2, 3720 * S)


def test_a_bar_that_is_drawn_again_when_it_is_full_counts_once_by_its_mean_rate() -> None:
    smoothed = draw("Epoch 0", 100, 100, "00:10", " 9.99it/s")
    mean = draw("Epoch 0", 100, 100, "00:10", " 9.52it/s")
    with_validation = draw("Epoch 0", 100, 100, "00:14", " 7.10it/s", ", val_loss=0.5")
    validation = draw("Validation", 5, 10, "00:02", " 2.50it/s")
    (row,) = read_bars(f"{smoothed}\n{mean}\n{validation}\n{with_validation}")
    assert row["duration_ns"] == pytest.approx(100 / 9.52 * S, rel=1e-9)


@pytest.mark.parametrize(
    "name", ["Training", "train", "[train] loss 0.25", "Training loop", "  Epoch [4/10]", "Train epoch 4", "epoch=4"]
)
def test_a_bar_of_training_is_told_by_its_name(name: str) -> None:
    (row,) = read_bars(draw(name, 50, 50, "00:05", "10.00it/s") + "\n")
    assert row.get("epoch_number") == (4 if "4" in name else None)


def test_the_numbers_behind_a_bar_are_no_record_of_their_own() -> None:
    drawn = [draw("Epoch 1", done, 40, "00:04", "10.00it/s", ", step_time=0.25") for done in (10, 20, 30, 40)]
    (row,) = read_bars("\r".join(drawn))
    assert (row["record_key"], row["duration_ns"]) == ("progress_bar", 4 * S)


def test_bars_without_a_number_are_epochs_in_their_order() -> None:
    bars = [draw("Training", done, 50, "00:05", "10.00it/s") for done in (10, 50, 10, 50, 50, 10, 50)]
    rows = read_bars("\r".join(bars))
    assert [row["duration_ns"] for row in rows] == [5 * S] * 3
    assert not any("epoch_number" in row for row in rows)


@pytest.mark.parametrize(
    "bar",
    [
        draw("Validation", 50, 50, "00:05", "10.00it/s"),
        draw("Epoch 3 [eval]", 50, 50, "00:05", "10.00it/s"),
        draw("Train on test set", 50, 50, "00:05", "10.00it/s"),
        draw("Loading checkpoint shards", 2, 2, "00:05", " 2.50s/it"),
        draw("Tokenizing train dataset", 50, 50, "00:05", "10.00it/s"),
        draw("train: Scanning labels", 50, 50, "00:05", "10.00it/s"),
        draw("Epochs", 3, 3, "10:00", "200.00s/it"),
        draw("Epoch 1", 49, 50, "00:04", "10.00it/s"),
        # The rate of the last steps, not of all: fifty at that pace take 25 s.
        draw("Epoch 1", 50, 50, "00:05", " 2.00it/s"),
        draw("Epoch 1", 50, 50, "00:00", "?it/s"),
        draw("Epoch 1", 50, 50, "00:05", "0.00it/s"),
        "Epoch 1: 100%|██████████| 1.2k/1.2k [00:05<00:00, 240it/s]",
    ],
)
def test_other_bars_are_passed_by(bar: str) -> None:
    kept = draw("Epoch 9", 50, 50, "00:05", "10.00it/s")
    found = read_source(f"{bar}\n{kept}\n".encode())
    assert [row["epoch_number"] for row in found.table("training_log")] == [9]
    assert found.lines_count == 2


def test_what_tqdm_draws_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    drawn, least, took = io.StringIO(), (0.08, 0.16), []
    for epoch in range(2):
        begun = time.perf_counter()
        with tqdm(range(40), desc=f"Epoch {epoch + 1}/2", file=drawn, mininterval=0.01) as steps:
            for step in steps:
                time.sleep(0.002 * (1 + epoch))
                steps.set_postfix(loss=1 / (1 + step))
        took.append(time.perf_counter() - begun)
        print("validation loss 0.5", file=drawn)
    rows = read_bars(drawn.getvalue())
    assert [row["epoch_number"] for row in rows] == [1, 2]
    assert all(low <= row["duration_ns"] / S <= high for low, row, high in zip(least, rows, took, strict=True))
    assert capsys.readouterr().err == ""


@given(
    st.lists(st.sampled_from(["\r", "\n", "\r\n", "x", "Epoch 1: 100%|█| 5/5 [00:01<00:00, 4.00it/s]"]), max_size=12)
)
def test_every_line_of_bars_is_a_record_or_passed_by(parts: list[str]) -> None:
    data = ("iter 1: loss 2.5, time 12.25ms\n" + "".join(parts)).encode()
    found = read_source(data)
    assert found.lines_count == len(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").splitlines())
