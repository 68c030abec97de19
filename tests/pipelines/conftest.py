from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import pytest

from pipelines.instance import instance
from pipelines.settings import settings
from tests.pipelines.orchestra import Orchestra

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def orchestra(tmp_path: Path) -> Iterator[Orchestra]:
    """Real records in memory, a real lake on disk."""
    with dg.DagsterInstance.ephemeral() as records:
        yield Orchestra(tmp_path, records)


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[Orchestra]:
    """The same with its records on disk, as a command keeps them."""
    with instance(settings(str(tmp_path / "lake"), environment={}).home) as records:
        yield Orchestra(tmp_path, records)
