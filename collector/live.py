"""A run that is seen while it is recorded: opened at the start, added to file by file, closed at the end."""

from __future__ import annotations

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


class LiveLanding(Landing):
    """One run's open directory, shared by its ranks: a file appears in it whole, by a rename.

    A training that fails closes it too: what has come is all that will come.
    """

    loss = "so the run was closed with what had come"

    @property
    def log_folder(self) -> Path:
        """Where files lie that are appended to: in the open directory itself."""
        return self._final

    def open(self, describe: Callable[[], str]) -> None:
        """Make the directory, marked as open; other ranks wait until rank 0 has."""
        if self._rank:
            return
        staged = self._final.with_name(f"{self.folder.name}.open")
        staged.mkdir()
        (staged / OPEN).touch()
        (staged / MANIFEST).write_text(describe(), "utf-8")
        flush(staged)
        staged.rename(self._final)
        flush_entry(self._final.parent)
        for path in self.folder.iterdir():  # what the description left: the state of the device
            if path.is_file() and not path.name.startswith("rank-"):
                self.publish(path)

    def publish(self, path: Path) -> None:
        """Let a complete file of the hidden directory appear in the open one; one of its name is replaced."""
        deadline = time.monotonic() + self._timeout_s
        while not self._final.is_dir():
            if time.monotonic() > deadline:
                raise RecordingRefused(f"{self._final} was not opened by rank 0 in {self._timeout_s:g} s")
            time.sleep(POLL_S)
        path.replace(self._final / path.name)

    def finish(self, manifest: str | None, key: Ed25519PrivateKey | None = None) -> None:
        """Say that this rank's files are complete; rank 0 closes the run once all are, and at its patience's end.

        What was seen before is signed with the rest, when the run is closed.
        """
        self._say(DONE)
        if self._rank:
            return
        try:
            if manifest is None:
                raise RecordingRefused("rank 0 has no manifest to land")
            self._await_all()
            (self.folder / MANIFEST).write_text(manifest, "utf-8")
            for path in sorted(self.folder.iterdir()):
                if not path.name.startswith("rank-"):
                    self.publish(path)
            if key is not None:
                statement = self.folder / STATEMENT_FILE
                statement.write_text(sign_files(self._final, self._run_id, key, manifest), "utf-8")
                self.publish(statement)
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

    def _close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._final.is_dir():
            flush(self._final)
            (self._final / OPEN).unlink(missing_ok=True)
            flush_entry(self._final)
