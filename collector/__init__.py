"""What runs beside the GPU in the training process: standard library, torch, cryptography, none of ours."""

from collector.errors import CollectorError, RecordingRefused, RingBroken
from collector.links import Identity
from collector.recording import Recording, Window, record
from collector.ring import SealedRing

__all__ = [
    "CollectorError",
    "Identity",
    "Recording",
    "RecordingRefused",
    "RingBroken",
    "SealedRing",
    "Window",
    "record",
]
