"""Small files that a person puts beside the lake: settings of a site that hold for every run of it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError

from lake.cut_off import fetch_object
from lake.errors import ContractBroken, EvidenceRejected, SourceUnavailable
from lake.locations import Location, report_unreachable
from lake.locks import hold_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from obstore import UpdateVersion


def read_beside(place: Location, name: str, most_bytes: int) -> bytes | None:
    """The file of that name in the directory that the lake lies in; none where there is none."""
    found: bytes | None
    with report_unreachable(f"{name} beside {place} could not be read"):
        if place.is_local:
            path = Path(place.root).parent / name
            if not path.is_file():
                return None
            with path.open("rb") as file:
                found = file.read(most_bytes + 1)
        else:
            found = _fetch(_find_parent(place), name, place.options)
    if len(found or b"") > most_bytes:
        raise EvidenceRejected(f"{name} beside {place} has more than {most_bytes:,} bytes", "it is meant to be small")
    return found


@contextmanager
def change_beside(
    place: Location, name: str, most_bytes: int
) -> Iterator[tuple[bytes | None, Callable[[bytes], None]]]:
    """The file of that name, and a function that writes it anew, whole; nobody's change is lost.

    Writers of one machine take turns. In an object store the file is written only where it is still what was read:
    one that another machine has changed meanwhile is an error, and to run again is enough.
    """
    beside = Location(_find_parent(place), place.options)
    if not beside.root:
        raise EvidenceRejected(
            f"nothing can lie beside {place}", "it is a whole bucket: keep the lake in a folder of it"
        )
    with ExitStack() as stack:
        if place.is_local:
            stack.enter_context(hold_lock(beside.directory / f".{name}.lock", f"{name} beside {place}"))

        mark = None if place.is_local else _find_mark(beside, name)

        def write(data: bytes) -> None:
            with report_unreachable(f"{name} beside {place} could not be written"):
                if place.is_local:
                    beside.store.put(name, data)
                    return
                try:
                    beside.store.put(name, data, mode="create" if mark is None else mark)
                except (AlreadyExistsError, PreconditionError):
                    raise SourceUnavailable(
                        f"{name} beside {place} was changed by another machine meanwhile", "run it again"
                    ) from None

        yield read_beside(place, name, most_bytes), write


def _find_mark(beside: Location, name: str) -> UpdateVersion | None:
    """What stands for the file as it is now; none where there is none. Taken before the file is read."""
    with report_unreachable(f"{name} in {beside} could not be read"):
        try:
            found = beside.store.head(name)["e_tag"]
        except (NotFoundError, FileNotFoundError):
            return None
    if found is None:
        raise ContractBroken(f"{beside} gives its objects no ETag", "keep the lake in a store with conditional puts")
    return {"e_tag": found}


def _fetch(root: str, name: str, options: Mapping[str, str]) -> bytes | None:
    if not root:
        return None
    try:
        return fetch_object(Location(root, dict(options)).store, name)
    except (NotFoundError, FileNotFoundError):
        return None


def _find_parent(place: Location) -> str:
    """What the lake lies in; empty where it is a whole bucket, beside which nothing lies."""
    root = place.root.rpartition("/")[0]
    return root if place.is_local or root.partition("://")[2].strip("/") else ""
