"""The data files of a table: whether they are there and as large as the log says, and how one is opened."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lake.digest import digest_file
from lake.errors import DataDamaged
from lake.locations import report_unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lake.locations import Location
    from lake.tables import Table


@dataclass(frozen=True)
class Damage:
    """One file of a table that is not what it should be; `run_id` is none for a log entry."""

    table: str
    run_id: str | None
    path: str
    reason: str

    def as_error(self) -> DataDamaged:
        """The same as an error with the next step."""
        return DataDamaged(
            f"{self.table}, run {self.run_id}: data file {self.path} {self.reason}",
            "`teetotal verify` lists all that is damaged, `teetotal run --full` builds it again",
        )


def run_of(path: str) -> str:
    """The run, or whatever else names a partition, that a data file is part of."""
    return path.partition("/")[0].partition("=")[2]


def source_of(path: str) -> str | None:
    """The source whose rows a data file holds, of a table that is kept by source; else none."""
    values = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    return values.get("source_sha256")


def compare_sizes(root: Location, sizes: Mapping[str, int]) -> dict[str, str]:
    """The files that are missing or not as large as the log says, with the reason; no file is opened."""
    if not sizes:
        return {}
    wrong = _compare_locally(root, sizes) if root.is_local else _compare_remotely(root, sizes)
    return {
        path: "is missing" if size is None else f"has {size:,} bytes, not {sizes[path]:,}"
        for path, size in sorted(wrong.items())
    }


def _compare_locally(root: Location, sizes: Mapping[str, int]) -> dict[str, int | None]:
    # As text: of a lake of many runs there are hundreds of thousands, and a `Path` costs more than the look itself.
    wrong: dict[str, int | None] = {}
    base = f"{root.directory}/"
    for path, size in sizes.items():
        try:
            found = os.stat(base + path).st_size  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            wrong[path] = None
        else:
            if found != size:
                wrong[path] = found
    return wrong


def _compare_remotely(root: Location, sizes: Mapping[str, int]) -> dict[str, int | None]:
    """By one listing for the whole table: a request per file would take longer than reading many of them."""
    from lake.cut_off import list_objects

    with report_unreachable(f"{root} could not be listed"):
        found = {entry["path"]: entry["size"] for entry in list_objects(root.store)}
    return {path: found.get(path) for path, size in sizes.items() if found.get(path) != size}


def pick_paths(table: Table, root: Location, sizes: Mapping[str, int], *, skips_damaged: bool) -> list[str]:
    """The files that an engine may be asked to read; a missing or truncated one is an error, or its run is left out."""
    # An object store would have to be listed for it; engines say themselves that an object is missing.
    damaged = compare_sizes(root, sizes) if root.is_local else {}
    if damaged and not skips_damaged:
        path, reason = next(iter(damaged.items()))
        raise Damage(table.full_name, run_of(path), path, reason).as_error()
    lost = {run_of(path) for path in damaged}
    return sorted(path for path in sizes if run_of(path) not in lost)


@contextmanager
def open_data_file(table: Table, root: Location, path: str) -> Iterator[tuple[Path, pq.ParquetFile]]:
    """One data file, whose page checksums are verified as it is read; a remote file is fetched first."""
    with report_unreachable(f"{root}/{path} could not be read"), ExitStack() as exits:
        try:
            source = root.directory / path if root.is_local else _fetch(root, path, exits)
            yield source, exits.enter_context(pq.ParquetFile(source, page_checksum_verification=True))
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError):
                raise  # the storage has failed, not the file
            # Not with Arrow's own text: that may quote values that are sealed elsewhere.
            reason = f"cannot be read ({type(error).__name__})"
            raise Damage(table.full_name, run_of(path), path, reason).as_error() from error


def digest_data_file(root: Location, path: str) -> str:
    """The digest of the bytes of one data file, which is not parsed."""
    with report_unreachable(f"{root}/{path} could not be read"):
        if root.is_local:
            return digest_file(root.directory / path)
        import obstore

        digest = hashlib.sha256()
        for chunk in obstore.get(root.store, path):
            digest.update(chunk)
        return digest.hexdigest()


def _fetch(root: Location, path: str, exits: ExitStack) -> Path:
    import obstore

    target = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="teetotal-"))) / "fetched.parquet"
    with target.open("wb") as file:
        for chunk in obstore.get(root.store, path):
            file.write(chunk)
    return target
