"""Locks between processes: who waits says so, and a file that is let go of does not stay."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lake.locks import hold_lock, try_lock

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_who_waits_for_longer_than_a_second_says_for_what(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "locks" / "a"
    entered = threading.Event()

    def wait() -> None:
        with hold_lock(path, "silver.readings, run a"):
            entered.set()

    waiting = threading.Thread(target=wait)
    with hold_lock(path, "silver.readings, run a"):
        waiting.start()
        assert not entered.wait(1.5)
    waiting.join()
    assert entered.is_set()
    (line,) = caplog.messages
    assert line == f"silver.readings, run a is being written by another process; waiting for it (lock {path})"


def test_a_lock_is_taken_once_and_its_file_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "launches" / "a.lock"
    with try_lock(path) as first, try_lock(path) as second:
        assert (first, second) == (True, False)
    assert list(path.parent.iterdir()) == []
    with try_lock(path) as again:
        assert again
