"""Where things lie: a directory or an object-store URL, behind one face."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError, UnknownConfigurationKeyError

from lake.errors import ContractBroken, SourceUnavailable
from lake.scarcity import next_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore.store import ObjectStore

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_MOST_TEXT = 300
# Tables, landing zone and notes of some lakes.
_MOST_STORES = 512
# The URLs that are understood, and how the environment variables of each begin.
_SCHEMES = {"s3": "aws_", "s3a": "aws_", "gs": "google_", "az": "azure_", "abfs": "azure_", "abfss": "azure_"}
# What one request may take, its body included, and how long a connection may. Polars alone would wait for ever.
_TIMEOUTS = {"TIMEOUT": "30s", "CONNECT_TIMEOUT": "5s"}
# Settings of the HTTP client, which obstore takes apart from those of the store: among these it panics.
_OF_CLIENT = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "timeout",
    "user_agent",
)
_SLOW = re.compile(r"operation timed out|kind: Timeout")


@contextmanager
def report_unreachable(what: str) -> Iterator[None]:
    """Turn whatever storage answers with into one transient error of one line that names the place."""
    try:
        yield
    except (OSError, BaseError, DeltaError) as error:
        raise describe_unreachable(what, error) from error


def describe_unreachable(what: str, error: BaseException) -> SourceUnavailable:
    """What storage answered, in one line, and what to do about it."""
    answer = " ".join(_ESCAPES.sub("", str(error)).partition("Debug source")[0].split())
    return SourceUnavailable(
        f"{what}: {answer[:_MOST_TEXT]}{'…' if len(answer) > _MOST_TEXT else ''}", next_step(error) or _find_hint(error)
    )


def _find_hint(error: BaseException) -> str:
    """What to do about storage that gave no answer, or another one than was asked for."""
    if _SLOW.search(str(error)):
        return "see whether the storage answers; over a slow link allow more with AWS_TIMEOUT=5m (or AZURE_, GOOGLE_)"
    return "check that the storage is there and that you may use it, then run again"


def make_private(directory: Path) -> None:
    """Make a directory for plain values, which its owner alone may enter; one that is there keeps its mode."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


@dataclass(frozen=True)
class Location:
    """A root under which keys with forward slashes live; storage options never show in its text."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, where: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Location:
        """A place from what a person writes: a path, `file://…` or `s3://…`, `gs://…`, `az://…`."""
        text = os.fspath(where)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        scheme, is_url, rest = text.partition("://")
        if not is_url:
            return cls(str(Path(text).expanduser().resolve()))
        if scheme not in _SCHEMES or not rest.strip("/") or rest.startswith("/"):
            raise ContractBroken(
                f"{text!r} is no place to keep tables or files",
                f"expected a path, or a URL such as s3://bucket/folder ({', '.join(_SCHEMES)})",
            )
        return cls(text.rstrip("/"), _limit_waiting(_SCHEMES[scheme], options or {}))

    @property
    def is_local(self) -> bool:
        """Whether this is a directory of this machine."""
        return "://" not in self.root

    @cached_property
    def directory(self) -> Path:
        """The directory of a local place."""
        if not self.is_local:
            raise ContractBroken(f"{self.root} is not a local directory")
        return Path(self.root)

    def child(self, *parts: str) -> Location:
        """A place below this one."""
        return Location("/".join((self.root, *parts)), self.options)

    def list_directories(self) -> list[str]:
        """The names of the directories right below this place, but for hidden ones."""
        if self.is_local:
            if not self.directory.is_dir():
                return []
            with os.scandir(self.root) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir() and entry.name[0] != ".")
        import obstore

        from lake.cut_off import repeat_read

        prefixes = repeat_read(lambda: obstore.list_with_delimiter(self.store))["common_prefixes"]
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in prefixes)

    def __str__(self) -> str:
        return self.root

    @cached_property
    def store(self) -> ObjectStore:
        """The object store behind the place; a local directory is made when it is first written."""
        from obstore.store import LocalStore

        if self.is_local:
            return LocalStore(self.directory, mkdir=True, automatic_cleanup=False)
        return _open_store(self.root, frozenset(self.options.items()))


def _limit_waiting(prefix: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options with a limit on how long a request may take, where they have none: for each library that asks."""
    known = {key.lower() for key in options}
    limits = {prefix.upper() + name: value for name, value in _TIMEOUTS.items()}
    return {**{name: value for name, value in limits.items() if name.lower() not in known}, **options}


@lru_cache(maxsize=_MOST_STORES)
def _open_store(root: str, options: frozenset[tuple[str, str]]) -> ObjectStore:
    """The client of a place in an object store: one per process, since each has connections of its own."""
    from obstore.store import from_url

    prefix = _SCHEMES[root.partition("://")[0]]
    lowered = {key.lower(): value for key, value in sorted(options) if key.lower().startswith(prefix)}
    client = {name: lowered.pop(f"{prefix}{name}") for name in _OF_CLIENT if f"{prefix}{name}" in lowered}
    with report_unreachable(f"{root} cannot be opened"):
        while True:
            try:
                # The typed overloads know one kind of store each; which one it is, the URL says at run time.
                return from_url(root, config=lowered, client_options=client)  # type: ignore[no-any-return, call-overload]
            except UnknownConfigurationKeyError as error:
                strangers = [key for key in lowered if key in str(error)]
                if not strangers:
                    raise
                del lowered[strangers[0]]  # a variable of some other program


# Connections of another process are not ours to use.
os.register_at_fork(after_in_child=_open_store.cache_clear)
