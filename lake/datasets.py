"""A table's files as an Arrow dataset: Arrow opens them, and a filter on a partition leaves the others closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset
    from pyarrow.fs import FileSystem

    from lake.places import Place
    from lake.tables import Table


def dataset(table: Table, handle: DeltaTable | None, place: Place) -> Dataset:
    """All rows of a table as its log has them; an absent table is an empty one."""
    import pyarrow.dataset as ds

    files = [] if handle is None else sorted(pa.table(handle.get_add_actions())["path"].to_pylist())
    if not files:
        return ds.dataset(table.arrow_schema.empty_table())
    # From the paths alone: deltalake's own dataset also holds each file's statistics, and takes ten times as long.
    parts = ds.partitioning(pa.schema([table.arrow_schema.field(name) for name in table.partition_by]), flavor="hive")
    options = ds.FileSystemFactoryOptions(partitioning=parts)
    return ds.FileSystemDatasetFactory(_filesystem(place), files, ds.ParquetFileFormat(), options).finish(
        table.arrow_schema
    )


def _filesystem(place: Place) -> FileSystem:
    from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

    if place.is_local:
        return SubTreeFileSystem(str(place), LocalFileSystem())
    return PyFileSystem(DeltaStorageHandler(str(place), dict(place.options)))
