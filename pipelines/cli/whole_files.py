"""Files that a command writes for a person: whoever looks finds the old one or the new one, each whole."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from lake.locations import report_unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def open_whole(out: Path, what: str) -> Iterator[IO[bytes]]:
    """A file to write to beside the place, which is moved there when all is written, and gone where that fails."""
    with (
        report_unreachable(f"{what} {out}"),
        tempfile.NamedTemporaryFile("wb", dir=out.parent, prefix=f".{out.name}.", suffix=".tmp", delete=False) as aside,
    ):
        path = Path(aside.name)
        try:
            yield aside
            aside.close()
            path.chmod(0o644)
            path.replace(out)
        finally:
            path.unlink(missing_ok=True)
