"""One row per thing that was refused: an event, a byte range that nobody could read, a process, or a whole file."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, number_rows, select_declared
from lake.tables import RUN_ID, Table, int32, int64, text
from silver.event_rules import REFUSED_UNSEEN, REJECTED, select_rejected, sentence_of

LEVELS = ("event", "byte_range", "process", "file")

TABLE = Table(
    tier="silver",
    name="rejects",
    grain="One row per event, byte range, process of a recording or file that was refused.",
    key=("level", "source_sha256", "ordinal"),
    inputs=(
        "bronze.trace_events",
        "bronze.nsys_events",
        "bronze.source_files",
        "bronze.unreadable",
        "silver.nsys_ranks",
    ),
    columns=(
        RUN_ID,
        text("level", "What was refused.", one_of=LEVELS),
        text("source_sha256", "The source file, by its digest; empty where it may not be read."),
        int64(
            "ordinal",
            "Place of an event among the readable events of its source; of anything else, among those refused.",
            minimum=0,
        ),
        int32("rank", "Rank that recorded it.", nullable=True, minimum=0),
        int64("offset_bytes", "First byte of it in the inflated source.", nullable=True, minimum=0),
        text("rule", "Rule that an event falls under.", nullable=True, one_of=REJECTED),
        text("reason", "Why it was refused, as a sentence."),
        text("category", "Category, as the source spells it.", nullable=True, sensitive=True),
        text(
            "label",
            "Name of the event or of the file, or how the byte range begins, with what the reader said of it.",
            nullable=True,
            sensitive=True,
            is_free_text=True,
        ),
        int64("ts_ns", "Start, as far as the source says.", nullable=True),
        int64("duration_ns", "Duration, as the source says.", nullable=True),
    ),
)


def conform(events: Frame, sources: Frame, unreadable: Frame, nsys_ranks: Frame) -> Frame:
    """Keep everything refused, with its reason and its place in the source."""
    refused = [
        _events(events, sources),
        _list_unreadable_ranges(unreadable, sources),
        _processes(nsys_ranks),
        _files(sources),
    ]
    return nw.concat(refused)


def _events(events: Frame, sources: Frame) -> Frame:
    columns = {"level": nw.lit("event"), "reason": sentence_of("rule"), "label": nw.col("name")}
    return select_declared(select_rejected(events, sources).with_columns(**columns), TABLE)


def _list_unreadable_ranges(unreadable: Frame, sources: Frame) -> Frame:
    ranks = sources.filter(nw.col("outcome") == "kept").select("source_sha256", "rank")
    placed = number_rows(unreadable, "_place", ["source_sha256"], ["offset_bytes", "length_bytes", "reason"])
    placed = placed.with_columns(ordinal=nw.col("_place") - 1)
    placed = placed.join(ranks, on="source_sha256", how="left").with_columns(
        level=nw.lit("byte_range"),
        # A reader's reason may quote what it could not read.
        label=nw.concat_str(nw.col("reason"), nw.col("beginning"), separator=": "),
        reason=nw.lit("No reader could parse this byte range of its source; the label says why."),
    )
    return select_declared(_blank(placed), TABLE)


def _processes(nsys_ranks: Frame) -> Frame:
    """Rows of Nsight Systems that nobody can tell apart: one reject for all rows of a kind."""
    refused = nsys_ranks.filter(nw.col("rule").is_in(REFUSED_UNSEEN)).with_columns(
        level=nw.lit("process"),
        offset_bytes=nw.lit(None).cast(nw.Int64),
        label=nw.concat_str(nw.col("rows_count").cast(nw.String), nw.lit("rows of"), nw.col("report"), separator=" "),
    )
    return select_declared(_blank(refused.drop("rule")).with_columns(rule=nw.lit(REFUSED_UNSEEN[0])), TABLE)


def _files(sources: Frame) -> Frame:
    refused = sources.filter(nw.col("outcome") == "rejected").with_columns(
        source_sha256=nw.col("source_sha256").fill_null("")
    )
    refused = number_rows(refused, "_place", ["source_sha256"], "file_name")
    refused = refused.with_columns(
        ordinal=nw.col("_place") - 1,
        offset_bytes=nw.lit(0).cast(nw.Int64),
        level=nw.lit("file"),
        label=nw.concat_str(nw.col("file_name"), nw.col("reason").fill_null(""), separator=": "),
    )
    # The order of these two is the point: the label keeps the reader's reason, which may quote the file.
    refused = refused.with_columns(reason=nw.lit("No reader takes this file; the label names it and says why."))
    return select_declared(_blank(refused), TABLE)


def _blank(rows: Frame) -> Frame:
    """The columns that only events have."""
    return rows.with_columns(
        rule=nw.lit(None).cast(nw.String),
        category=nw.lit(None).cast(nw.String),
        ts_ns=nw.lit(None).cast(nw.Int64),
        duration_ns=nw.lit(None).cast(nw.Int64),
    )
