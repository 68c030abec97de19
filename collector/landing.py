"""A landing directory appears whole or not at all: written under another name, the manifest last, then renamed."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import torch.distributed as dist

from .errors import RecordingRefused
from .manifest import MANIFEST, check_run_id
from .sealed_files import read_public_key, seal_blocks
from .signing import STATEMENT_FILE, sign_files
from .workspace import MemoryFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DONE, _FAILED = ".done", ".failed"
POLL_S = 0.05
_BLOCK_BYTES = 1 << 20


class Landing:
    """One run's directory in the making, shared by its ranks through the file system.

    Every rank says in the directory that it is done or has failed; rank 0 waits for all, then renames or removes it.
    A name that begins with a dot is no run id, so nothing takes the unfinished directory for a run.
    """

    # What becomes of the run where a rank fails.
    loss = "so nothing was landed"

    def __init__(
        self,
        landing: str | Path,
        run_id: str,
        rank: int,
        ranks: int,
        timeout_s: float,
        seal_for: str | Path | None = None,
    ) -> None:
        self._key = None if seal_for is None else read_public_key(seal_for)
        self._run_id = run_id
        self._final = Path(landing) / check_run_id(run_id)
        self._rank = rank
        self._ranks = ranks
        self._timeout_s = timeout_s
        # Of what this rank has sealed, as it left: a disk that others can write to is not asked for it again.
        self._digests: dict[str, str] = {}
        self._require_free()
        self.folder = self._final.with_name(f".{run_id}.{_token(rank, ranks)}.partial")
        # Where this rank writes: what is to be sealed lies in memory until it is.
        self._memory = None if self._key is None else MemoryFolder()
        self.workspace = self.folder if self._memory is None else self._memory.path
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def log_folder(self) -> Path:
        """Where files lie that are appended to while the training runs."""
        return self.workspace

    def open(self, describe: Callable[[], str]) -> None:
        """Recording begins; nothing is seen of it before it ends."""

    def publish(self, path: Path) -> None:
        """A file is complete; it is seen with all others."""

    def publish_log(self, path: Path) -> None:
        """A log has grown; it is seen with all others."""

    def finish(self, manifest: str | None, key: Ed25519PrivateKey | None = None) -> None:
        """Say that this rank's files are complete; rank 0 lands the directory once all are, and signs it with a key."""
        self._seal_files()
        self._say(DONE)
        if self._rank:
            return
        if manifest is None:
            raise RecordingRefused("rank 0 has no manifest to land")
        try:
            self._await_all()
            for mark in self.folder.glob(f"*{DONE}"):
                mark.unlink()
            self._write(self.folder / MANIFEST, manifest)
            if key is not None:
                self._write(self.folder / STATEMENT_FILE, sign_files(self.folder, self._run_id, key, manifest))
            flush(self.folder)
            self.folder.rename(self._final)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        flush_entry(self._final.parent)

    def fail(self) -> None:
        """Leave nothing: rank 0 removes the directory, another rank tells it to."""
        self._forget()
        if self._rank:
            self._say(_FAILED)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _require_free(self) -> None:
        if self._final.exists():
            raise RecordingRefused(f"{self._final} is there already; choose another run id or remove it")

    def _write(self, path: Path, text: str) -> None:
        path.write_bytes(b"".join(self._seal([text.encode()], path.name)))

    def _seal_files(self) -> None:
        """Bring this rank's files from memory into the run's directory, sealed on the way."""
        if self._memory is None:
            return
        for path in sorted(self.workspace.iterdir()):
            self._seal_file(path)
            path.unlink()
        self._forget()

    def _seal_file(self, path: Path, size_bytes: int | None = None) -> Path:
        """A file in memory as a sealed one in the hidden directory; of one that grows so many bytes."""
        sealed, digest = self.folder / path.name, hashlib.sha256()
        with path.open("rb") as plain, sealed.open("wb") as file:
            for block in self._seal(_read_blocks(plain, size_bytes), path.name):
                digest.update(block)
                file.write(block)
        self._digests[path.name] = digest.hexdigest()
        return sealed

    def _forget(self) -> None:
        """Leave nothing in memory."""
        if self._memory is not None:
            self._memory.remove()

    def _seal(self, blocks: Iterable[bytes], name: str) -> Iterable[bytes]:
        return blocks if self._key is None else seal_blocks(blocks, self._key, self._run_id, name)

    def _say(self, word: str) -> None:
        try:
            (self.folder / f"rank-{self._rank}{word}").touch()
        except FileNotFoundError as error:
            raise RecordingRefused(f"rank 0 gave the recording up, {self.loss}") from error

    def _await_all(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            said = {mark.name for mark in self.folder.glob("rank-*")}
            failed = [rank for rank in range(self._ranks) if f"rank-{rank}{_FAILED}" in said]
            missing = [rank for rank in range(self._ranks) if f"rank-{rank}{DONE}" not in said]
            if failed:
                raise RecordingRefused(f"rank {failed[0]} failed, {self.loss}")
            if not missing:
                return
            if time.monotonic() > deadline:
                raise RecordingRefused(
                    f"rank {missing[0]} did not finish its files in {self._timeout_s:g} s, {self.loss}"
                )
            time.sleep(POLL_S)


def _read_blocks(file: BinaryIO, size_bytes: int | None) -> Iterator[bytes]:
    """A file to its end, or so many bytes of it."""
    left = sys.maxsize if size_bytes is None else size_bytes
    while left and (block := file.read(min(left, _BLOCK_BYTES))):
        left -= len(block)
        yield block


def _token(rank: int, ranks: int) -> str:
    """A name that all ranks of this job share, and no other job."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() == ranks > 1:
        shared: list[str | None] = [secrets.token_hex(4) if rank == 0 else None]
        dist.broadcast_object_list(shared, src=0)
        return str(shared[0])
    if ranks == 1:
        return secrets.token_hex(4)
    # Before the process group exists, the launcher's own words are all that the ranks share.
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    return hashlib.sha256("|".join(os.environ.get(name, "") for name in names).encode()).hexdigest()[:8]


def flush(folder: Path) -> None:
    """What the rename makes visible must be on disk before it."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    flush_entry(folder)


def flush_entry(folder: Path) -> None:
    """Make the names in a directory last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
