"""One number of a training log under its own name, as TensorBoard and MLflow keep them."""

from __future__ import annotations

import math
from typing import Any

from bronze.training_csv import MAP

# Columns that a number fills by its name; times and counts are left to tables, which say their units.
_NUMBERS = ("samples_per_second", "tokens_per_second", "loss_number")


def make_scalar(ts_ns: int | None, step_number: int | None, name: str | None, value: float) -> dict[str, Any]:
    """A row of one number; its name's last part may say that it is a loss or a rate."""
    row: dict[str, Any] = {
        "record": "scalar",
        "ts_ns": ts_ns,
        "step_number": step_number,
        "record_key": name,
        "record_value": repr(value),
    }
    columns = MAP.columns([name.rpartition("/")[2]]) if name is not None and math.isfinite(value) else set()
    return row | {column: value for column in _NUMBERS if column in columns}
