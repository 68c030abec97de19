"""Loops of others, recorded by a callback: what they train, how many steps, and that training never suffers for it."""

from __future__ import annotations

import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from bronze.manifest import parse
from collector import Window, make_lightning_callback, make_trainer_callback

if TYPE_CHECKING:
    from pathlib import Path

# What the trainers' own code says to theirs and to torch's authors.
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("FutureWarning", "UserWarning")]
STEPS = Window(1, 2, 2)


class Numbers(Dataset[Any]):
    """Some samples of a regression."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        value = torch.full((4,), place / 64)
        return {"values": value, "labels": value.sum()}


class Regression(torch.nn.Module):
    """A model as Hugging Face's Trainer asks for it: it gives its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": torch.nn.functional.mse_loss(self.layer(values).squeeze(-1), labels)}


def train_by_trainer(callback: Any, folder: Path, steps: int = 8, batches: int = 1) -> int:
    """Train with Hugging Face's Trainer; gives how many steps it made."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=batches,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    return int(
        Trainer(model=Regression(), args=arguments, train_dataset=Numbers(), callbacks=[callback]).train().global_step
    )


def train_by_lightning(callback: Any, folder: Path, steps: int = 8, batches: int = 1, fails_at: int = -1) -> int:
    """Train with Lightning; gives how many steps it made."""
    import lightning

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Regression()

        def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
            if number == fails_at:
                raise FloatingPointError("the loss is no number")
            loss: torch.Tensor = self.model(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = lightning.Trainer(
        max_steps=steps,
        accumulate_grad_batches=batches,
        accelerator="cpu",
        default_root_dir=folder,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        callbacks=[callback],
    )
    trainer.fit(Module(), DataLoader(Numbers(), batch_size=4))
    return int(trainer.global_step)


LOOPS = {
    "trainer": (make_trainer_callback, train_by_trainer),
    "lightning": (make_lightning_callback, train_by_lightning),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_is_recorded_and_its_directory_is_one_that_the_pipeline_accepts(loop: str, tmp_path: Path) -> None:
    make, train = LOOPS[loop]
    landing = tmp_path / "landing"
    callback = make(landing, "mine", window=STEPS, model="regression", regime="cc_off")
    assert train(callback, tmp_path / "out", batches=2) == 8
    found = landing / "mine"
    assert {path.name for path in found.iterdir()} >= {"mine-r0.json.gz", "steps-r0.csv", "run.toml"}
    said = tomllib.loads((found / "run.toml").read_text("utf-8"))
    assert (said["model"], said["regime"], said["parameters_count"]) == ("regression", "cc_off", 5)
    assert said.get("batch_size") == {"trainer": 8, "lightning": None}[loop]
    # Only the steps that were asked for: what follows them is nobody's burden. Two batches are one step.
    assert (found / "steps-r0.csv").read_text("utf-8").count("\n") - 1 == STEPS.total_steps == 6
    assert parse((found / "run.toml").read_bytes(), "run.toml") is not None


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_ends_before_the_recording_does_is_warned_and_lands_nothing(loop: str, tmp_path: Path) -> None:
    make, train = LOOPS[loop]
    callback = make(tmp_path / "landing", "mine", window=STEPS)
    with pytest.warns(RuntimeWarning, match="the loop ended after 2 steps .* training goes on"):
        assert train(callback, tmp_path / "out", steps=2) == 2
    assert list((tmp_path / "landing").iterdir()) == []


@pytest.mark.parametrize("loop", LOOPS)
def test_training_goes_on_where_a_recording_cannot_begin(loop: str, tmp_path: Path) -> None:
    make, train = LOOPS[loop]
    (tmp_path / "landing" / "mine").mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="is there already"):
        assert train(make(tmp_path / "landing", "mine", window=STEPS), tmp_path / "out") == 8
    assert [path.name for path in (tmp_path / "landing").iterdir()] == ["mine"]


def test_a_loop_that_raises_lands_nothing(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError):
        train_by_lightning(
            make_lightning_callback(tmp_path / "landing", "mine", window=STEPS), tmp_path / "out", fails_at=2
        )
    assert list((tmp_path / "landing").iterdir()) == []


def test_lightning_is_found_under_its_other_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    import pytorch_lightning

    assert isinstance(make_lightning_callback(tmp_path, "mine"), pytorch_lightning.Callback)
