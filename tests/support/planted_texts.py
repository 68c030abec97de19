"""Whether planted texts can be found again below a directory, in whatever form the files there are stored."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def finds(root: Path, *planted: str, is_written_to: bool = False) -> list[str]:
    """`path: text` for every planted text in a file's name, its raw bytes, or a column of a Parquet file.

    Where someone still writes, a file that is not whole yet is searched as far as it can be.
    """
    ignored = (pa.ArrowInvalid, FileNotFoundError) if is_written_to else ()
    return sorted(
        f"{path.relative_to(root)}: {text}" for path in list_paths(root) for text in _find_in(path, planted, ignored)
    )


def list_paths(root: Path) -> list[Path]:
    """Everything below a folder; what others take away meanwhile is passed over."""
    return [Path(folder) / name for folder, folders, files in os.walk(root) for name in (*folders, *files)]


def _find_in(path: Path, texts: Sequence[str], ignored: tuple[type[Exception], ...]) -> set[str]:
    """Those of the texts that are in a file or its name; a file is read once for all of them."""
    found = {text for text in texts if text in path.name}
    with suppress(*ignored):
        if path.is_file():
            held = path.read_bytes()
            found |= {text for text in texts if text.encode() in held}
            for column in _columns(path) if path.suffix == ".parquet" else ():
                found |= _find_said(column, texts)
    return found


def _columns(path: Path) -> Iterator[pa.Array]:
    """Every column of every row group, uncompressed; what a partition's path says is no part of it."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches():
            yield from batch.columns


def _find_said(column: pa.Array, texts: Sequence[str]) -> set[str]:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return {text for text in texts if pc.any(pc.match_substring(column, text)).as_py()}
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        said = str(column.to_pylist())
        return {text for text in texts if text in said}
    return set()
