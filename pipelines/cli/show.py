"""`teetotal show`: a table of the lake on the terminal, or as CSV, JSON or Parquet, batch by batch."""

from __future__ import annotations

import json
from itertools import product
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table as Grid
from rich.text import Text

from lake.errors import EvidenceRejected, nearest
from lake.sealing import abbreviate_token
from report.terminal_text import CSV_UNSAFE, make_csv_safe, make_printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import duckdb
    from rich.console import Console, JustifyMethod

    from lake.store import Lake
    from lake.tables import Table

_BATCH_ROWS = 65_536
# Tables without a sealed text that point at a row of silver.spans which has one.
_POINTING = ("gold.module_time", "gold.source_lines")
# A text that is wider than this may be wrapped, into no less than the other.
_WRAPPED_WIDTH = 40
_NARROWEST_WRAP = 28
_LONGEST_CELL = 4000
_WIDEST_PLOT = 120
_MANY_ROWS = 200


def require_columns(table: Table, columns: Sequence[str]) -> None:
    """Refuse the name of a column that the table does not have."""
    for name in columns:
        if name not in table.column_names:
            shown = name[:160]
            raise EvidenceRejected(f"{table.full_name} has no column {shown!r}", nearest(shown, table.column_names))


def open_relation(
    lake: Lake, table: Table, run_ids: Sequence[str], columns: Sequence[str], limit: int | None
) -> duckdb.DuckDBPyRelation:
    """The rows asked for, in the order of the table's key."""
    import duckdb  # here, because a query, whose rows come from another process, needs none of it

    from lake.connections import open_ordered

    require_columns(table, columns)
    rows = lake.relation(open_ordered(), table, run_ids or None)
    order = [duckdb.ColumnExpression(name) for name in table.row_key]
    rows = rows.sort(*order).select(*(columns or table.column_names))
    return rows if limit is None else rows.limit(limit)


def read_rows(
    lake: Lake, table: Table, run_ids: Sequence[str], columns: Sequence[str], limit: int | None, *, reveal: bool = False
) -> pa.RecordBatchReader:
    """The rows asked for, batch by batch; to reveal one, what its tokens are bound to is read, and left out again."""
    if not reveal:
        return open_relation(lake, table, run_ids, columns, limit).to_arrow_reader(_BATCH_ROWS)
    if table.full_name in _POINTING and not columns:
        return _reveal_labels(lake, table, run_ids, limit)
    wanted = list(columns or table.column_names)
    beside = [name for name in table.row_key if name not in wanted]
    batches = open_relation(lake, table, run_ids, [*wanted, *beside], limit).to_arrow_reader(_BATCH_ROWS)
    schema = pa.schema([batches.schema.field(name) for name in wanted])
    return pa.RecordBatchReader.from_batches(schema, (lake.reveal(table, batch).select(wanted) for batch in batches))


def _reveal_labels(lake: Lake, table: Table, run_ids: Sequence[str], limit: int | None) -> pa.RecordBatchReader:
    """Rows that point at a span whose name is a person's own, with that name beside them, opened."""
    import polars as pl  # here, as DuckDB above

    from silver import spans

    rows = open_relation(lake, table, run_ids, (), limit).to_arrow_table()
    beside = list(dict.fromkeys((*spans.TABLE.row_key, "rank", "label")))
    pointed = {(row["run_id"], row["source_sha256"], row["ordinal"]) for row in rows.to_pylist()}
    asked = pl.col("ordinal").is_in([ordinal for _, _, ordinal in pointed if ordinal is not None])
    found = lake.scan(spans.TABLE, sorted({run_id for run_id, _, _ in pointed})).filter(asked)
    opened = lake.reveal(spans.TABLE, found.select(beside).collect().to_arrow()).to_pylist()
    labels = {(row["run_id"], row["source_sha256"], row["ordinal"]): row["label"] for row in opened}
    shown = [labels.get((row["run_id"], row["source_sha256"], row["ordinal"])) for row in rows.to_pylist()]
    return rows.append_column("label", pa.array(shown, pa.string())).to_reader()


def count_rows(lake: Lake, table: Table, run_ids: Sequence[str]) -> int:
    """How many rows there are without a limit."""
    from lake.connections import open_ordered

    return len(lake.relation(open_ordered(), table, run_ids or None))


def plot_table(lake: Lake, table: Table, run_ids: Sequence[str], limit: int | None, width: int) -> list[str]:
    """A table's small chart, for a terminal of that width or a file."""
    from report.terminal import PLOTTED, plot

    if table.full_name not in PLOTTED:
        raise EvidenceRejected(f"{table.full_name} has no chart to plot", f"these have one: {', '.join(PLOTTED)}")
    drawn = plot(table, read_rows(lake, table, run_ids, (), limit).read_all(), min(width, _WIDEST_PLOT))
    return [] if drawn is None else drawn


def write_rows(batches: pa.RecordBatchReader, form: str, out: IO[bytes]) -> None:
    """Write all rows in a format for other programs; memory holds one batch."""
    if form == "csv":
        _write_csv(batches, out)
    elif form == "json":
        _write_json(batches, out)
    else:
        _write_parquet(batches, out)


def _write_csv(batches: pa.RecordBatchReader, out: IO[bytes]) -> None:
    from pyarrow import csv

    texts = [place for place, field in enumerate(batches.schema) if _is_text(field.type)]
    schema = pa.schema(
        [
            pa.field(make_csv_safe(field.name), pa.string() if place in texts else field.type)
            for place, field in enumerate(batches.schema)
        ]
    )
    with csv.CSVWriter(out, schema) as writer:
        for batch in batches:
            columns = [_safe_cells(column) if place in texts else column for place, column in enumerate(batch.columns)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _is_text(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(is_it(value) for is_it in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _safe_cells(column: pa.Array) -> pa.Array:
    """The cells of a text column for a spreadsheet; numbers and times have columns of their own kinds."""
    texts = column.cast(pa.string())
    if not pc.any(pc.match_substring_regex(texts, pattern=CSV_UNSAFE)).as_py():
        return texts
    return pa.array([None if text is None else make_csv_safe(text) for text in texts.to_pylist()], pa.string())


def _write_json(batches: pa.RecordBatchReader, out: IO[bytes]) -> None:
    """A JSON array with one object a line, so that a diff and a pipe can both use it."""
    lead = b"[\n"
    for row in _rows(batches):
        out.write(lead + json.dumps(row, ensure_ascii=False).encode())
        lead = b",\n"
    out.write((b"[" if lead == b"[\n" else b"\n") + b"]\n")


def _write_parquet(batches: pa.RecordBatchReader, out: IO[bytes]) -> None:
    from pyarrow import parquet

    if out.isatty():
        raise EvidenceRejected(
            "Parquet is no text for a terminal", "send it to a file: --format parquet > rows.parquet"
        )
    with parquet.ParquetWriter(out, batches.schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def draw_table(batches: pa.RecordBatchReader, total: int, console: Console, sealed: Sequence[str] = ()) -> None:
    """Print rows for a person: a grid where it fits the width, else one block a row; empty columns are left out."""
    shown = batches.read_all().to_pylist()
    for row, name in product(shown, sealed):
        if row.get(name) is not None:
            row[name] = abbreviate_token(row[name])
    if not shown:
        console.print("no rows", style="dim")
        return
    filled = [name for name in shown[0] if any(row[name] is not None for row in shown)]
    cells = [{name: _cell(row[name]) for name in filled} for row in shown]
    numbers = {name for name in filled if all(isinstance(row[name], int | float | None) for row in shown)}
    widths = _fit(console.width, _measure(filled, cells))
    if widths is not None:
        format_grid(console, filled, cells, numbers, widths)
    else:
        _blocks(console, filled, cells)
    empty = len(shown[0]) - len(filled)
    notes = [f"{len(shown):,} of {total:,} rows"]
    notes += [f"{empty} columns without a value are not shown"] if empty else []
    console.print("; ".join(notes), style="dim", highlight=False)


def _measure(names: Sequence[str], cells: Sequence[dict[str, str]]) -> dict[str, int]:
    """How wide each column would be without a wrap."""
    return {name: max(len(make_printable(name)), *(len(row[name]) for row in cells)) for name in names}


def _fit(console_width: int, widths: Mapping[str, int]) -> Mapping[str, int] | None:
    """The widths of a grid in which only long texts are wrapped; none where that leaves them too little room."""
    long = [name for name, width in widths.items() if width > _WRAPPED_WIDTH]
    room = console_width - sum(width + 2 for name, width in widths.items() if name not in long) - 2 * len(long)
    if sum(widths.values()) + 2 * len(widths) <= console_width:
        return widths
    if not long or room < _NARROWEST_WRAP * len(long):
        return None
    return {name: min(width, room // len(long)) if name in long else width for name, width in widths.items()}


def format_counts(console: Console, rows: Sequence[dict[str, str]], texts: int) -> None:
    """Rows of a few texts and many counts: a grid where it fits, else a paragraph per row, in which nothing is cut."""
    names = list(rows[0])
    widths = _measure(names, rows)
    if len(rows) > _MANY_ROWS:  # rich takes a millisecond a row
        console.out("\n".join(_align(names, rows, widths, texts)), highlight=False)
        return
    if sum(widths.values()) + 2 * len(widths) <= console.width:
        format_grid(console, names, rows, names[texts:])
        return
    for row in rows:
        lead = "  ".join(row[name] for name in names[:texts] if row[name])
        counts = ", ".join(f"{row[name]} {name}" for name in names[texts:] if row[name])
        console.print(Text(make_printable(f"{lead}: {counts}" if counts else lead)), highlight=False)


def _align(
    names: Sequence[str], rows: Sequence[dict[str, str]], widths: Mapping[str, int], texts: int
) -> Iterator[str]:
    """A line per row, texts to the left and counts to the right, however wide the terminal is."""
    for row in ({name: name for name in names}, *rows):
        cells = [make_printable(row[name]).ljust(widths[name]) for name in names[:texts]]
        cells += [row[name].rjust(widths[name]) for name in names[texts:]]
        yield "  ".join(cells).rstrip()


def format_grid(
    console: Console,
    names: Sequence[str],
    cells: Sequence[dict[str, str]],
    numbers: Iterable[str] = (),
    widths: Mapping[str, int] | None = None,
) -> None:
    """A plain grid, numbers to the right; a text that is wider than its column is wrapped."""
    drawn = Grid(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    right = set(numbers)
    # As `Text`, because a plain string would be read as markup.
    for name in names:
        justify: JustifyMethod = "right" if name in right else "left"
        width = None if widths is None else widths[name]
        drawn.add_column(Text(make_printable(name)), justify=justify, overflow="fold", width=width)
    for row in cells:
        drawn.add_row(*(Text(make_printable(row[name])) for name in names))
    console.print(drawn, highlight=False, markup=False)


def _blocks(console: Console, names: Sequence[str], cells: Sequence[dict[str, str]]) -> None:
    """One block a row: names to the left, values beside them, long ones over several lines."""
    for row in cells:
        drawn = Grid(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        drawn.add_column(no_wrap=True)
        drawn.add_column(overflow="fold")
        for name in names:
            drawn.add_row(Text(make_printable(name)), Text(row[name]))
        console.print(drawn, highlight=False, markup=False)
        console.print()


def _cell(value: object, most: int = _LONGEST_CELL) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = make_printable(str(value))
    return text if len(text) <= most else text[: most - 1] + "…"
