"""The object store that tests run against: S3, or Azure where somebody has named its emulator."""

from __future__ import annotations

import os

from benchmarks.azurite import AZURE, VARIABLE
from benchmarks.object_store import S3

EMULATOR = AZURE if os.environ.get(VARIABLE) else S3
