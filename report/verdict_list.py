"""The verdicts of a page: a sentence for each pair, those of a TEE first, and for each run that has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold.pairs import is_tee_overhead
from report.markup import Markup, element
from report.sentences import (
    describe_other_source,
    describe_share,
    dominant,
    headline,
    is_concluded,
    lead,
    name_pair,
    name_regimes,
    tell_verdict,
)
from report.units import format_count, legible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Row = dict[str, Any]
    Tables = Mapping[str, Sequence[Row]]


def order_pairs(tables: Tables) -> list[tuple[Row, Row]]:
    """The pairs with the answer that leads each: those of a TEE first, then decided ones, then the largest slowdown."""
    logged = {row["run_id"]: row for row in tables["gold.throughput_overhead"]}
    found = [(row, lead(row, logged.get(row["run_id"]))) for row in tables["gold.step_overhead"]]
    return sorted(
        found,
        key=lambda pair: (
            *(not is_tee_overhead(pair[0]), not is_concluded(pair[1])),
            *(-(pair[1]["slowdown_ratio"] or 0), pair[0]["run_id"]),
        ),
    )


def list_verdicts(tables: Tables) -> Iterator[Markup]:
    """A sentence for each pair, then for each run that has no baseline."""
    caveats = {row["run_id"]: row["caveat"] for row in tables["gold.pairs"]}
    claims = {row["run_id"]: row for row in tables["gold.attested_runs"]}
    for row, leading in order_pairs(tables):
        parts = [part for part in tables["gold.overhead_breakdown"] if part["run_id"] == row["run_id"]]
        where = dominant(row, parts)
        ranks = format_count(row["world_size"], "rank") if row["world_size"] else ""
        other = describe_other_source(row, leading)
        notes = (leading["caveat"], caveats.get(row["run_id"]))
        sentences = [
            element("p", _capitalise(tell_verdict(leading)), class_="verdict"),
            *([element("p", f"{_capitalise(describe_share(row))}.")] if row["overhead_ns"] is not None else []),
            *(element("p", f"{_capitalise(text)}.") for text in (other, where) if text),
            *(element("p", note, class_="note") for note in notes if note),
            *([element("p", _claim(claims[row["run_id"]]), class_="note")] if row["run_id"] in claims else []),
        ]
        yield element(
            "article",
            element(
                "div",
                element("p", headline(leading), class_="ratio" if is_concluded(leading) else "undecided"),
                _evidence(leading["evidence"]),
                class_="side",
            ),
            element(
                "div",
                element("h3", ", ".join(filter(None, (row["model"] or "unknown model", ranks, name_regimes(row))))),
                *sentences,
                element("p", name_pair(row), class_="note"),
            ),
            class_="pair",
            data_run=legible(row["run_id"]),
        )
    for row in tables["gold.pairs"]:
        if row["repeated_run_id"]:
            member = f"{row['run_id']} repeats {row['repeated_run_id']} and counts as a run of its pair."
            yield element("p", member, class_="note", data_run=legible(row["run_id"]))
        elif row["reason"]:
            alone = f"{row['run_id']} has no baseline to be compared with: {row['reason']}"
            yield element("p", alone, class_="note", data_run=legible(row["run_id"]))
    if not tables["gold.pairs"]:
        alone = "No run here claims a TEE or names a baseline, so there is nothing to compare."
        yield element("p", alone, class_="lead")


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _claim(row: Row) -> str:
    """What was switched on while it was recorded: a regime in software is no confidential computing."""
    mode = row["found_cc_mode"] or row["cc_mode"]
    return f"{row['verdict']}; confidential computing of the GPU: {mode or 'not known'}"


def _evidence(evidence: str) -> Markup:
    return element("span", evidence, class_=f"evidence {evidence}")
