"""A report as Nsight Systems writes it (`.nsys-rep`): exported by its tool where that is installed, else refused."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lake.errors import EvidenceRejected
from lake.locations import report_unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SUFFIXES = (".nsys-rep", ".qdrep")
_MOST_SECONDS = 3600
_NEXT = "export it with `nsys export --type sqlite FILE` and land the .sqlite beside or instead of it"


def is_report(name: str) -> bool:
    """Whether a file is such a report, by its name: its content is the tool's own secret."""
    return name.lower().endswith(_SUFFIXES)


@contextmanager
def export_report(blocks: Iterable[bytes], folder: Path) -> Iterator[Path]:
    """The SQLite export of a report's bytes, made by the installed `nsys`; refused with the next step where none is."""
    tool = shutil.which("nsys")
    if tool is None:
        raise EvidenceRejected("it is a report of Nsight Systems, and `nsys` is not installed here", _NEXT)
    with TemporaryDirectory(dir=folder, prefix="report-") as made:
        report, export = Path(made) / "report.nsys-rep", Path(made) / "report.sqlite"
        with report_unreachable("the spool of the lake could not be written to"), report.open("wb") as file:
            for block in blocks:
                file.write(block)
        # A list of words, no shell: the file's own name is not among them.
        command = [
            tool,
            "export",
            "--type",
            "sqlite",
            "--force-overwrite",
            "true",
            "--output",
            str(export),
            str(report),
        ]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=_MOST_SECONDS, cwd=made)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EvidenceRejected(f"`nsys export` could not read it: {type(error).__name__}", _NEXT) from error
        if done.returncode or not export.is_file():
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
            raise EvidenceRejected(f"`nsys export` could not read it: {(said or ['no reason given'])[-1][:200]}", _NEXT)
        yield export
