"""Where things lie: a directory or an object-store URL, behind one face."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError

from lake.errors import ContractBroken, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import ObjectStore

_CLIENT_OPTIONS = {"aws_allow_http": "allow_http", "allow_http": "allow_http"}


@dataclass(frozen=True)
class Place:
    """A root under which keys with forward slashes live; storage options never show in its text."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, where: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Place:
        """A place from what a person writes: a path, `file://…` or `s3://…`, `gs://…`, `az://…`."""
        text = os.fspath(where)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        if "://" in text:
            return cls(text.rstrip("/"), dict(options or {}))
        return cls(str(Path(text).expanduser().resolve()))

    @property
    def is_local(self) -> bool:
        """Whether this is a directory of this machine."""
        return "://" not in self.root

    @property
    def directory(self) -> Path:
        """The directory of a local place."""
        if not self.is_local:
            raise ContractBroken(f"{self.root} is not a local directory")
        return Path(self.root)

    def child(self, *parts: str) -> Place:
        """A place below this one."""
        return Place("/".join((self.root, *parts)), self.options)

    def __str__(self) -> str:
        return self.root

    @cached_property
    def store(self) -> ObjectStore:
        """The object store behind the place; a local directory is made when it is first written."""
        from obstore.store import LocalStore, from_url

        if self.is_local:
            return LocalStore(self.directory, mkdir=True, automatic_cleanup=False)
        lowered = {key.lower(): value for key, value in self.options.items()}
        client = {_CLIENT_OPTIONS[key]: value == "true" for key, value in lowered.items() if key in _CLIENT_OPTIONS}
        config = {key: value for key, value in lowered.items() if key not in _CLIENT_OPTIONS}
        try:
            # The typed overloads know one kind of store each; which one it is, the URL says at run time.
            opened: ObjectStore = from_url(self.root, config=config, client_options=client)  # type: ignore[call-overload]
        except (ValueError, OSError, BaseError) as error:
            raise SourceUnavailable(
                f"{self.root} cannot be opened: {error}",
                "check the URL and the storage options in the environment (.env.example)",
            ) from error
        return opened
