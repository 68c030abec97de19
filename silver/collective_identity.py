"""Which rows of several ranks are one and the same collective."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, number_rows

MATCHES = ("communicator", "sequence", "order")
_BASIS = ("library", "collective", "communicator_id", "process_group_name", "collective_sequence")


def identify_collectives(collectives: Frame) -> Frame:
    """Name a collective by communicator or group and its number there; where it has none, by its place in the order."""
    named = number_rows(collectives, "_nth", ["rank", *_BASIS], ["ts_ns", "source_sha256", "ordinal"])
    named = named.with_columns(_of=nw.col("ordinal").count().over("rank", *_BASIS).cast(nw.Int64))
    by = (
        nw.when(~nw.col("communicator_id").is_null())
        .then(nw.lit("communicator"))
        .otherwise(
            nw.when(~nw.col("collective_sequence").is_null()).then(nw.lit("sequence")).otherwise(nw.lit("order"))
        )
    )
    named = named.with_columns(matched_by=by)
    # Places are comparable only between ranks that recorded equally many: the number of all is part of the name.
    total = nw.when(nw.col("matched_by") == "order").then(nw.col("_of")).otherwise(nw.lit(0).cast(nw.Int64))
    parts = (
        nw.col("library"),
        nw.col("collective"),
        _part(nw.col("communicator_id")),
        _part(nw.col("process_group_name")),
        _part(nw.col("collective_sequence").cast(nw.String)),
        nw.col("_nth").cast(nw.String),
        total.cast(nw.Int64).cast(nw.String),
    )
    return named.with_columns(match_id=nw.concat_str(*parts, separator="/")).drop("_nth", "_of")


def _part(value: nw.Expr) -> nw.Expr:
    """A part of a name that no other value gives: absent is not the text of it, and no part holds the separator."""
    escaped = value.str.replace_all("%", "%25", literal=True).str.replace_all("/", "%2F", literal=True)
    return nw.when(~value.is_null()).then(nw.concat_str(nw.lit("="), escaped)).otherwise(nw.lit("-"))
