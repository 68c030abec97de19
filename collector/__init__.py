"""What runs beside the GPU in the training process: standard library, torch, cryptography, none of ours."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import CollectorError, RecordingRefused, RingBroken
    from .links import Identity
    from .recording import Recording, record
    from .ring import SealedRing
    from .trainers import make_lightning_callback, make_trainer_callback
    from .window import Window

__all__ = [
    "CollectorError",
    "Identity",
    "Recording",
    "RecordingRefused",
    "RingBroken",
    "SealedRing",
    "Window",
    "make_lightning_callback",
    "make_trainer_callback",
    "record",
]
_HOMES = {
    **dict.fromkeys(("CollectorError", "RecordingRefused", "RingBroken"), "errors"),
    **dict.fromkeys(("Recording", "record"), "recording"),
    **dict.fromkeys(("make_lightning_callback", "make_trainer_callback"), "trainers"),
    "Identity": "links",
    "SealedRing": "ring",
    "Window": "window",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: the command has to start without torch, to say that it is missing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
