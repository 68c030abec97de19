"""Files that hold keys: only their owner may read them, and they are replaced whole."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from lake.errors import ContractBroken

if TYPE_CHECKING:
    from pathlib import Path


def read_private(path: Path, what: str, hint: str, rotate: str) -> bytes | None:
    """What a file holds; nothing where there is none; an error where others could read or change it too."""
    try:
        # Not to wait for the other end, should a pipe bear the file's name.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise describe_unusable(path, what, "read", error) from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ContractBroken(f"{path} is no file", hint)
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ContractBroken(
                f"{path} holds keys, and others than its owner may read or change it (mode "
                f"{stat.S_IMODE(status.st_mode):o})",
                f"chmod 600 {path}; if someone else may have read it, `{rotate}`",
            )
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    except OSError as error:
        raise describe_unusable(path, what, "read", error) from error
    finally:
        os.close(handle)


def write_private(path: Path, data: bytes, what: str, mode: int = 0o600) -> None:
    """Put a file in place whole: a reader finds the old one or the new one, never a half."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(handle)
            aside.replace(path)
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()
        _sync(path.parent)
    except OSError as error:
        raise describe_unusable(path, what, "written", error) from error


def describe_unusable(path: Path, what: str, verb: str, error: OSError) -> ContractBroken:
    """The error of a file that cannot be read or written."""
    return ContractBroken(f"{what} {path} cannot be {verb}: {error.strerror}", "check the path and who owns it")


def _sync(directory: Path) -> None:
    """Make a rename last through a power cut."""
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
