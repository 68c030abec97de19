"""Recording inside a trainer's own loop: callbacks for Hugging Face's Trainer and for Lightning."""

from __future__ import annotations

import atexit
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import CollectorError
from .recording import Recording, record
from .window import Window

if TYPE_CHECKING:
    from pathlib import Path

    import torch


class LoopRecorder:
    """Records the first steps of somebody's loop, lands them as soon as they are complete, and then costs nothing.

    Training goes on whatever becomes of the recording: what it could not do is a warning, never an error of the loop.
    """

    def __init__(self, landing: str | Path, run_id: str, *, window: Window | None = None, **options: Any) -> None:
        self._place = landing, run_id
        self._window = window or Window()
        self._options = options
        self._recording: Recording | None = None

    def begin(self, module: torch.nn.Module, **known: Any) -> None:
        """Training begins; `known` is what the loop says of itself, and what a person has said wins."""
        try:
            recording = record(*self._place, window=self._window, module=module, **{**known, **self._options})
        except (CollectorError, OSError) as error:
            _warn(error)
            return
        self._recording = recording.__enter__()
        # A trainer whose loop raises may tell nobody: what was begun then goes with the process, and lands nothing.
        atexit.register(self.give_up)

    def count_step(self) -> None:
        """A step has ended; with the last one that was asked for the recording lands."""
        if self._recording is None:
            return
        self._recording.step()
        if len(self._recording.steps) >= self._window.total_steps:
            self.end()

    def end(self) -> None:
        """Training has ended, or the recording is complete."""
        recording = self._forget()
        if recording is not None:
            try:
                recording.__exit__(None, None, None)
            except (CollectorError, OSError) as error:
                _warn(error)

    def give_up(self) -> None:
        """Training has failed: nothing is landed."""
        recording = self._forget()
        if recording is not None:
            error = CollectorError("training ended early")
            recording.__exit__(type(error), error, None)

    def _forget(self) -> Recording | None:
        recording, self._recording = self._recording, None
        atexit.unregister(self.give_up)
        return recording


def make_trainer_callback(landing: str | Path, run_id: str, **options: Any) -> Any:
    """A callback for `transformers.Trainer(callbacks=[…])`; a step is one of the optimizer."""
    recorder = LoopRecorder(landing, run_id, **options)

    class TrainerRecorder(import_module("transformers").TrainerCallback):  # type: ignore[misc]
        """Tells the recorder when training begins, when a step ends and when training ends."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **of_the_loop: Any) -> None:  # noqa: ARG002
            batch = args.per_device_train_batch_size * args.gradient_accumulation_steps
            recorder.begin(of_the_loop["model"], batch_size=batch)

        def on_step_end(self, args: Any, state: Any, control: Any, **of_the_loop: Any) -> None:  # noqa: ARG002
            recorder.count_step()

        def on_train_end(self, args: Any, state: Any, control: Any, **of_the_loop: Any) -> None:  # noqa: ARG002
            recorder.end()

    return TrainerRecorder()


def make_lightning_callback(landing: str | Path, run_id: str, **options: Any) -> Any:
    """A callback for `lightning.Trainer(callbacks=[…])`; a step is one of the optimizer, whatever batches it takes."""
    recorder = LoopRecorder(landing, run_id, **options)

    class LightningRecorder(_find_lightning().Callback):  # type: ignore[misc]
        """Tells the recorder when training begins, when a step ends and when training ends or fails."""

        _counted = 0

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._counted = trainer.global_step
            recorder.begin(pl_module)

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step > self._counted:
                self._counted = trainer.global_step
                recorder.count_step()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
            recorder.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
            recorder.give_up()

    return LightningRecorder()


def _find_lightning() -> Any:
    """Lightning under either of the names that it is installed by."""
    try:
        return import_module("lightning.pytorch")
    except ModuleNotFoundError:
        return import_module("pytorch_lightning")


def _warn(error: Exception) -> None:
    warnings.warn(f"teetotal: {error}; training goes on", RuntimeWarning, stacklevel=3)
