"""What the tests of the collector share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.torch_forks import TorchForks

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def torch_forks() -> Iterator[TorchForks]:
    """Processes that need not import torch; they are for tests of what a process does, not of how it is started."""
    with TorchForks() as forks:
        yield forks
