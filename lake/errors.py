"""Errors, sorted by what to do next: mend and run again, or wait and try again."""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# What DuckDB makes of a stop (Ctrl-C, SIGTERM) in the middle of its work, whoever asked it.
_STOPPED_QUERY = "Query interrupted"
_LONGEST_MESSAGE = 300


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


class UnexpectedFault(LakeError):
    """An exception that nobody foresaw: terminal, never retried, and a fault of teetotal."""


class OutOfMemory(LakeError):
    """One run needed more memory than there was: terminal, never retried."""


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Note on an exception that nobody foresaw what was being done; an error that we can explain says so itself."""
    try:
        yield
    except LakeError:
        raise
    except Exception as error:
        error.add_note(what)
        raise


def is_stop(error: BaseException) -> bool:
    """Whether someone stopped the work: that is nobody's fault, and everything must end."""
    # A panic of a library in Rust is no `Exception` either, but it is a fault.
    is_fault = isinstance(error, Exception) or type(error).__name__ == "PanicException"
    return not is_fault or _STOPPED_QUERY in str(error)


def explain(error: BaseException, run_id: str | None = None) -> LakeError:
    """What went wrong, as an error of ours; one that nobody foresaw is told with its type, message and place."""
    if isinstance(error, LakeError):
        return error
    of_run = "" if run_id is None else f"run {run_id}: "
    # As engines and stores raise it, written in other languages: neither the system's error nor one of Python's own.
    if type(error) is OSError and error.errno is None:
        from lake.locations import describe_unreachable

        return describe_unreachable(f"{of_run}storage failed{_list_notes(error)}", error)
    what = f"{of_run}{_describe(error)}"
    if isinstance(error, MemoryError):
        return OutOfMemory(what, "there was not enough memory: run it alone, or on a machine that has more")
    return UnexpectedFault(what, "this is a fault of teetotal: please report it")


def _describe(error: BaseException) -> str:
    """Type, first line and place of an exception, without characters that a terminal would obey."""
    line = str(error).strip().partition("\n")[0][:_LONGEST_MESSAGE]
    text = f"{type(error).__name__}{f': {line}' if line else ''}{_list_notes(error)}"
    return "".join(char if char.isprintable() else " " for char in text)


def _list_notes(error: BaseException) -> str:
    return "".join(f" while {note}" for note in getattr(error, "__notes__", ()))


def describe_engine_error(engine: str, error: BaseException) -> ContractBroken:
    """What went wrong, without the engine's own text: that may quote values that are to be sealed."""
    return ContractBroken(
        f"{engine} could not compute this: {type(error).__name__}",
        "`teetotal verify` finds damaged data files; if there are none, try another engine with --engine; "
        "if both fail, it is a fault of teetotal: please report it",
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint that names the closest right spelling, or all of them where none is close."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
