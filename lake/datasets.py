"""A table's files as an Arrow dataset: Arrow opens them, and a filter on a partition leaves the others closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow.dataset import Dataset
    from pyarrow.fs import FileSystem

    from lake.locations import Location
    from lake.tables import Table


def dataset(table: Table, files: Sequence[str], place: Location, copies: Sequence[str] = ()) -> Dataset:
    """All rows of a table's files, whose page checksums are verified; without a file it is empty.

    `copies` are files that hold partition values as columns (`lake/compaction.py`).
    """
    import pyarrow.dataset as ds

    # From the paths alone: deltalake's own dataset also holds each file's statistics, and takes ten times as long.
    parts = ds.partitioning(pa.schema([table.arrow_schema.field(name) for name in table.partition_by]), flavor="hive")
    in_paths, in_columns = ds.FileSystemFactoryOptions(partitioning=parts), ds.FileSystemFactoryOptions()
    verified = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    )
    found = [
        ds.FileSystemDatasetFactory(open_filesystem(place), list(paths), verified, options).finish(table.arrow_schema)
        for paths, options in ((files, in_paths), (copies, in_columns))
        if paths
    ]
    if not found:
        return ds.dataset(table.arrow_schema.empty_table())
    return found[0] if len(found) == 1 else ds.dataset(found)


def open_filesystem(place: Location) -> FileSystem:
    """The files below a place, for Arrow."""
    from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

    if place.is_local:
        return SubTreeFileSystem(str(place), LocalFileSystem())
    return PyFileSystem(DeltaStorageHandler(str(place), dict(place.options)))
