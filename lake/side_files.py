"""Small files that a person puts beside the lake: settings of a site that hold for every run of it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.exceptions import NotFoundError

from lake.errors import EvidenceRejected
from lake.locations import Location, report_unreachable
from lake.locks import hold_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


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
    """The file of that name, and a function that writes it anew, whole; writers of one machine take turns."""
    beside = Location(_find_parent(place), place.options)
    if not beside.root:
        raise EvidenceRejected(
            f"nothing can lie beside {place}", "it is a whole bucket: keep the lake in a folder of it"
        )
    with ExitStack() as stack:
        if place.is_local:
            stack.enter_context(hold_lock(beside.directory / f".{name}.lock", f"{name} beside {place}"))

        def write(data: bytes) -> None:
            with report_unreachable(f"{name} beside {place} could not be written"):
                beside.store.put(name, data)

        yield read_beside(place, name, most_bytes), write


def _fetch(root: str, name: str, options: Mapping[str, str]) -> bytes | None:
    if not root:
        return None
    try:
        return bytes(Location(root, dict(options)).store.get(name).bytes())
    except (NotFoundError, FileNotFoundError):
        return None


def _find_parent(place: Location) -> str:
    """What the lake lies in; empty where it is a whole bucket, beside which nothing lies."""
    root = place.root.rpartition("/")[0]
    return root if place.is_local or root.partition("://")[2].strip("/") else ""
