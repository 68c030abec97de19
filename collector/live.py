"""A run that is seen while it is recorded: opened at the start, added to file by file, closed at the end."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from .errors import RecordingRefused
from .landing import DONE, POLL_S, Landing, flush, flush_entry
from .manifest import MANIFEST
from .signing import STATEMENT_FILE, sign_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# The file beside the manifest that says that more will come; docs/live.md is the contract.
OPEN = ".open"
_BLOCK_BYTES = 1 << 16


# A sealed log is published anew, whole; one of more bytes only when it has grown by this part of what was seen of it:
# so all that is ever written of it beyond them is at most 17 times what it is in the end.
_OFTEN_BYTES, _GROWTH = 1 << 20, 16


class LiveLanding(Landing):
    """One run's open directory, shared by its ranks: a file appears in it whole, by a rename.

    Where it is recorded for a lake's public key, what appears is sealed, and logs are appended to in memory alone.
    A training that fails closes it too: what has come is all that will come.
    """

    loss = "so the run was closed with what had come"

    def __init__(
        self,
        landing: str | Path,
        run_id: str,
        rank: int,
        ranks: int,
        timeout_s: float,
        seal_for: str | Path | None = None,
    ) -> None:
        super().__init__(landing, run_id, rank, ranks, timeout_s, seal_for)
        self._seen_bytes: dict[str, int] = {}

    @property
    def log_folder(self) -> Path:
        """Where files lie that are appended to: in the open directory itself, or in memory until they are sealed."""
        return self._final if self._memory is None else self.workspace

    def open(self, describe: Callable[[], str]) -> None:
        """Make the directory, marked as open; other ranks wait until rank 0 has."""
        if self._rank:
            return
        staged = self._final.with_name(f"{self.folder.name}.open")
        staged.mkdir()
        (staged / OPEN).touch()
        self._write(staged / MANIFEST, describe())
        flush(staged)
        staged.rename(self._final)
        flush_entry(self._final.parent)
        for path in self._list_files(self.workspace):  # what the description left: the state of the device
            self.publish(path)

    def publish(self, path: Path) -> None:
        """Let a complete file appear in the open directory, and there alone; one of its name is replaced."""
        if self._memory is None:
            self._show(path)
        else:
            self._show(self._seal_file(path))
            path.unlink()

    def publish_log(self, path: Path) -> None:
        """Let a log appear as far as it has come; what is sealed of it is a file that ends with a whole line."""
        if self._memory is None:
            if path.parent != self._final:
                self._show(path)
            return
        size, seen = _count_whole_lines(path), self._seen_bytes.get(path.name, 0)
        if size > seen and (size <= _OFTEN_BYTES or size >= seen + seen // _GROWTH):
            self._show(self._seal_file(path, size))
            self._seen_bytes[path.name] = size

    def finish(self, manifest: str | None, key: Ed25519PrivateKey | None = None) -> None:
        """Say that this rank's files are complete; rank 0 closes the run once all are, and at its patience's end.

        What was seen before is signed with the rest, when the run is closed.
        """
        self._seal_files()
        self._say(DONE)
        if self._rank:
            return
        try:
            if manifest is None:
                raise RecordingRefused("rank 0 has no manifest to land")
            self._await_all()
            self._write(self.folder / MANIFEST, manifest)
            for path in self._list_files(self.folder):
                self._show(path)
            if key is not None:
                statement = self.folder / STATEMENT_FILE
                self._write(statement, sign_files(self._final, self._run_id, key, manifest, self._digests))
                self._show(statement)
        finally:
            self._close()

    def fail(self) -> None:
        """Rank 0 closes the run as it is, another rank tells it that no more will come."""
        if self._rank:
            super().fail()
        else:
            self._close()

    def _require_free(self) -> None:
        if not self._rank:  # other ranks may come after it was opened
            super()._require_free()

    def _list_files(self, folder: Path) -> list[Path]:
        return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("rank-"))

    def _show(self, path: Path) -> None:
        """Move a file of the hidden directory into the open one, once rank 0 has made it."""
        deadline = time.monotonic() + self._timeout_s
        while not self._final.is_dir():
            if time.monotonic() > deadline:
                raise RecordingRefused(f"{self._final} was not opened by rank 0 in {self._timeout_s:g} s")
            time.sleep(POLL_S)
        path.replace(self._final / path.name)

    def _close(self) -> None:
        self._forget()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._final.is_dir():
            flush(self._final)
            (self._final / OPEN).unlink(missing_ok=True)
            flush_entry(self._final)


def _count_whole_lines(path: Path) -> int:
    """How many bytes of a file, which may be appended to meanwhile, are whole lines."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _BLOCK_BYTES)
            file.seek(begin)
            last = file.read(end - begin).rfind(b"\n")
            if last >= 0:
                return begin + last + 1
            end = begin
    return 0
