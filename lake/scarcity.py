"""What is lacking (space, rights, open files, memory, valid credentials), told by the error of whoever met it first."""

from __future__ import annotations

import errno
import re
import resource
from typing import TYPE_CHECKING

from lake.errors import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPACE = "free some space on that disk, then run again: what was committed stays"
_RIGHTS = "check who owns it and how it is mounted, then run again"
_FILES = "allow more with `ulimit -n 4096`, then run again"
_MEMORY = "allow more memory, or use less with TEETOTAL_WORKERS=1 TEETOTAL_BYTES_IN_FLIGHT=16777216, then run again"
_CREDENTIALS = "renew the store's credentials, which have expired or are not valid, then run again"
# An answer to HEAD has no body that could say so.
_PROBABLY_CREDENTIALS = "renew the store's credentials, which have probably expired, then run again"
_BY_NUMBER = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: _SPACE,
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: _MEMORY,
}
# Engines and stores are written in other languages: their errors carry the system's words and not its number.
_BY_WORDS = {
    r"ExpiredToken|token has expired|InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationFailed": _CREDENTIALS,
    r"performing HEAD .* 400 Bad Request": _PROBABLY_CREDENTIALS,
    r"no space left|disk is full|disk i/o error|disk quota|file too large": _SPACE,
    r"read-?only (file ?system|database)|permission denied|unable to open database file": _RIGHTS,
    r"too many open files": _FILES,
    r"out of memory|cannot allocate|can't start new thread|failed to spawn|bad_alloc|realloc of size": _MEMORY,
}


def next_step(error: BaseException) -> str | None:
    """What to do about an error that says, itself or by its cause, what the machine lacks; none for any other."""
    for one in _chain(error):
        if isinstance(one, MemoryError):
            return _MEMORY
        if isinstance(one, OSError) and one.errno in _BY_NUMBER:
            return _BY_NUMBER[one.errno]
        for words, step in _BY_WORDS.items():
            if re.search(words, str(one), re.IGNORECASE):
                return step
    return None


def require_address_space(least: int, who: str) -> None:
    """Refuse a limit under which an engine would hang or crash instead of failing."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY and allowed < least:
        raise ContractBroken(
            f"this process may use {allowed >> 20} MB of address space, {who} needs {least >> 20} MB",
            "allow more with `ulimit -v`; to bound memory itself, use a container or a cgroup",
        )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that led to it."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__
