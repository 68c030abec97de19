"""The object store that tests run against: S3, or Azure where somebody has named its emulator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks.azurite import AZURE, VARIABLE
from benchmarks.object_store import S3

if TYPE_CHECKING:
    from collections.abc import Mapping

EMULATOR = AZURE if os.environ.get(VARIABLE) else S3


def hurry(options: Mapping[str, str], wait: str = "1s") -> dict[str, str]:
    """Storage options of a client that waits no longer than this for an answer."""
    return {**options, "AWS_TIMEOUT" if EMULATOR is S3 else "AZURE_TIMEOUT": wait}
