"""Errors, sorted by what to do next: mend and run again, or wait and try again."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class LakeError(Exception):
    """Anything that teetotal can explain: one sentence that says what went wrong, one hint that says what to do."""

    is_transient = False

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})" if self.hint else self.what

    def __reduce__(self) -> tuple[type[LakeError], tuple[str, str]]:
        return type(self), (self.what, self.hint)


class ContractBroken(LakeError):
    """A frame, a table or a setting is not what its declaration says: terminal, never retried."""


class EvidenceRejected(LakeError):
    """A source says something that cannot be taken: terminal, never retried."""


class LimitReached(LakeError):
    """A question needs more time or memory than it was allowed: terminal; ask for less, or allow more."""


class SourceUnavailable(LakeError):
    """Storage or a source did not answer, or another writer was first: transient, worth another try."""

    is_transient = True


class DataDamaged(LakeError):
    """A data file is missing or not what it was when it was written: terminal until it is built again."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint that names the closest right spelling, or all of them where none is close."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
