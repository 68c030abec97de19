"""The reader of a history of Weights & Biases as JSON lines: an object with a `_step` is one."""

from __future__ import annotations

from typing import Any

from bronze import json_text
from bronze.lines import as_text
from bronze.training_json import TrainingJsonReader


def is_history(head: bytes) -> bool:
    """Whether the first line is an object that has a step and a time as Weights & Biases spells them."""
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
    said = json_text.parse_object(as_text(first)) if first.startswith(b"{") and b'"_step"' in first else None
    return said is not None and "_step" in said and ("_timestamp" in said or "_runtime" in said)


class WandbHistoryReader(TrainingJsonReader):
    """One pass over one history."""

    def _is_training(self, said: dict[str, Any]) -> bool:
        return "_step" in said or super()._is_training(said)
