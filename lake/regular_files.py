"""Files that someone else laid out, opened so that a link, a pipe or a device among them is refused, never followed."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from lake.errors import EvidenceRejected, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from io import BufferedReader

# File systems count time in ticks of up to some milliseconds, FAT in two seconds.
_REST_NS = 2_500_000_000
_BLOCK_BYTES = 1 << 20
# A pipe that nobody writes to must not hold us up, and a terminal must not become ours.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_REPLACED = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


@dataclass(frozen=True)
class SourceFile:
    """A file to be copied: how a person calls it, and how its bytes are opened, each time with the same care."""

    where: str
    open: Callable[[], BufferedReader]


def open_named(path: Path) -> SourceFile:
    """A file that a person has named: a link is followed, because they chose it, and must lead to a regular file."""
    return SourceFile(str(path), lambda: _open_regular(str(path), str(path), _READ, follow=True))


class Tree:
    """A directory held open: it stays the same one, whatever its name comes to mean meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = os.open(path, _DIRECTORY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def files(self) -> dict[tuple[str, ...], SourceFile]:
        """All files below that are not hidden, by their path; a link out, a pipe or a device is refused by name."""
        found: dict[tuple[str, ...], SourceFile] = {}
        for top, folders, names, handle in os.fwalk(".", dir_fd=self._handle, onerror=_raise):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            above = Path(top).parts
            for name in (*names, *folders):
                kind = stat.S_IFMT(os.lstat(name, dir_fd=handle).st_mode)
                if name.startswith(".") or kind == stat.S_IFDIR:
                    continue
                parts = (*above, name)
                where = str(self.path.joinpath(*parts))
                if kind != stat.S_IFLNK:
                    _require_regular(kind, where)
                target = self._follow_link(parts) if kind == stat.S_IFLNK else parts
                if target is not None:
                    found[parts] = SourceFile(where, partial(self.open, target, where))
        return dict(sorted(found.items()))

    def open(self, parts: tuple[str, ...], where: str) -> BufferedReader:
        """Open a regular file below by its path, on which no link is followed."""
        handle = self._parent(parts, where)
        try:
            return _open_regular(where, parts[-1], _READ | os.O_NOFOLLOW, follow=False, dir_fd=handle)
        finally:
            os.close(handle)

    def resolve(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        """The path below at which a file really lies, links followed; none where they lead out."""
        target = self.path.joinpath(*parts).resolve(strict=True)
        root = self.path.resolve()
        return target.relative_to(root).parts if target.is_relative_to(root) else None

    def _follow_link(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        """Where a link leads; none where that is a directory of this tree, whose files are found anyway."""
        where = self.path.joinpath(*parts)
        try:
            target = self.resolve(parts)
        except (OSError, RuntimeError) as error:  # a link to nothing, or to itself
            raise EvidenceRejected(f"{where} is a link that leads nowhere", "remove it, or mend it") from error
        if target is None:
            raise EvidenceRejected(
                f"{where} is a link out of {self.path}, which is never followed",
                "put the file itself there, or name it on the command line",
            )
        mode = where.stat().st_mode
        if stat.S_ISDIR(mode):
            return None
        _require_regular(mode, str(where))
        return target

    def _parent(self, parts: tuple[str, ...], where: str) -> int:
        """The directory that a file lies in, opened from directory to directory; to be closed."""
        handle = os.dup(self._handle)
        for part in parts[:-1]:
            try:
                inner = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            except OSError as error:
                raise _describe_refusal(error, where) from error
            finally:
                os.close(handle)
            handle = inner
        return handle


def copy_file(
    source: SourceFile, target: Path, change: Callable[[Iterator[bytes]], Iterable[bytes]] | None = None
) -> None:
    """Copy a file as it is when it is opened, readable by its owner alone; one that changes meanwhile is refused.

    `change` may make other bytes of its blocks on the way, so that they never lie there as they were.
    """
    with (
        source.open() as file,
        os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as copy,
    ):
        blocks = read_blocks(file, source.where)
        copy.writelines(blocks if change is None else change(blocks))


def read_blocks(file: BufferedReader, where: str) -> Iterator[bytes]:
    """The bytes of an open file as it was when the first was read; one that changes meanwhile is refused."""
    before = os.fstat(file.fileno())
    left = before.st_size
    while left and (block := file.read(min(left, _BLOCK_BYTES))):
        yield block
        left -= len(block)
    if mark_of(os.fstat(file.fileno())) != mark_of(before):
        raise SourceUnavailable(f"{where} changed while it was copied", "land it again when it is at rest")


def mark_of(facts: os.stat_result) -> str:
    """What changes whenever a file does."""
    return f"{facts.st_ino}-{facts.st_mtime_ns}-{facts.st_ctime_ns}-{facts.st_size}"


def is_at_rest(mark: str, now_ns: int) -> bool:
    """Whether a local file with this mark was left alone for so long that a change since then shows in its mark."""
    times = mark.split("-")[1:3]
    return all(time.isdecimal() and int(time) + _REST_NS < now_ns for time in times)


def _open_regular(where: str, name: str, flags: int, *, follow: bool, dir_fd: int | None = None) -> BufferedReader:
    """Open what is a regular file, and still is one once it is open; nothing else is opened at all."""
    _require_regular(os.stat(name, dir_fd=dir_fd, follow_symlinks=follow).st_mode, where)
    try:
        handle = os.open(name, flags, dir_fd=dir_fd)
    except OSError as error:
        raise _describe_refusal(error, where) from error
    try:
        _require_regular(os.fstat(handle).st_mode, where)
    except EvidenceRejected:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def _require_regular(mode: int, where: str) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise EvidenceRejected(
            f"{where} is {kind}, not a regular file", "remove it, or name the files to land one by one"
        )


def _describe_refusal(error: OSError, where: str) -> Exception:
    if error.errno in _REPLACED:
        return EvidenceRejected(f"{where} was replaced by a link while it was read", "run again when it is at rest")
    return error


def _raise(error: OSError) -> NoReturn:
    raise error
