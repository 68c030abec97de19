"""One row per source file and rule: what became of its events; landed + split = kept + merged + rejected."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, select_declared
from lake.tables import RUN_ID, Table, int32, int64, text
from silver.event_rules import EFFECTS, REFUSED_UNSEEN, sentence_of, settle_by_phase
from silver.patterns import PATTERNS, SITE_IDS, UNKNOWN_ON_GPU
from silver.profiler_events import NSYS_FORMATS, PROFILES

TABLE = Table(
    tier="silver",
    name="rule_counts",
    grain="One row per source file, effect and rule that had something to do.",
    key=("source_sha256", "effect", "rule"),
    inputs=(
        "bronze.trace_events",
        "bronze.nsys_events",
        "bronze.source_files",
        "bronze.runs",
        "silver.nsys_ranks",
        "silver.spans",
        "silver.steps",
        "silver.rejects",
    ),
    columns=(
        RUN_ID,
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int32("rank", "Rank that recorded it.", nullable=True, minimum=0),
        text(
            "effect",
            "kept, merged and rejected add up to what landed and what was split; flagged events are kept too.",
            one_of=EFFECTS,
        ),
        text("rule", "The rule, or the pattern of silver/span_kinds.toml that an event was kept by."),
        text("sentence", "The rule as a sentence."),
        int64("events_count", "Events (for warm-up: steps) that fell under it.", minimum=1),
    ),
)
_BY = ("source_sha256", "effect", "rule")
_FLAGS = {
    "orphan": "is_orphan",
    "before_launch": "is_before_launch",
    "relabelled_copy": "is_relabelled",
    "queued_work": "has_queued_work",
}


_SORTS = ("pattern", "is_gpu", *_FLAGS.values(), "_is_reported", "_is_directed")
_MARKS = ("_is_split", "_is_session_clock", "_is_rounded")
_ONE = nw.lit(1).cast(nw.Int64)


def conform(
    events: Frame,
    sources: Frame,
    runs: Frame,
    spans: Frame,
    steps: Frame,
    rejects: Frame,
) -> Frame:
    """Count what every rule did, each from the table that its effect left behind, never as a remainder."""
    landed, kept = _count_landed(events), _count_kept(spans)
    is_hidden = (PATTERNS.kind("pattern") == "copy") & nw.col("_is_reported") & ~nw.col("_is_directed")
    is_refused = nw.col("rule").is_in(REFUSED_UNSEEN).fill_null(False)
    refused = rejects.filter(nw.col("level") == "event").with_columns(_events=_ONE)
    counts = [
        _count(landed.filter(~nw.col("rule").is_null(), ~is_refused), "merged", nw.col("rule")),
        _count(landed.filter(is_refused), "rejected", nw.col("rule")),
        kept.filter(nw.col("_duplicates") > 0)
        .group_by("source_sha256")
        .agg(events_count=nw.col("_duplicates").sum().cast(nw.Int64))
        .with_columns(effect=nw.lit("merged"), rule=nw.lit("duplicate"))
        .select(*_BY, "events_count"),
        _count(refused, "rejected", nw.col("rule")),
        _count(kept, "kept", nw.col("pattern")),
        _count(kept.filter(nw.col("pattern") == UNKNOWN_ON_GPU), "flagged", nw.lit(UNKNOWN_ON_GPU)),
        _count(kept.filter(is_hidden), "flagged", nw.lit("hidden_copy")),
        _count(_count_conflicts(spans), "flagged", nw.lit("site_conflict")),
        *(_count(kept.filter(nw.col(column)), "flagged", nw.lit(rule)) for rule, column in _FLAGS.items()),
        _count(
            steps.filter(nw.col("is_warmup"), ~nw.col("source_sha256").is_null()).with_columns(_events=_ONE),
            "flagged",
            nw.lit("warmup_step"),
        ),
        _count(landed.filter(nw.col("_is_split")), "split", nw.lit("launch_and_kernel")),
        _count(landed.filter(nw.col("_is_session_clock") & ~nw.col("_has_fate")), "flagged", nw.lit("session_clock")),
        _count(landed.filter(nw.col("_is_rounded") & ~nw.col("_has_fate")), "flagged", nw.lit("rounded_size")),
        _list_modes(sources, runs, kept),
    ]
    files = sources.filter(nw.col("outcome") == "kept").select("run_id", "source_sha256", "rank")
    found = nw.concat(counts).join(files, on="source_sha256", how="left")
    return select_declared(found.with_columns(sentence=_describe_rule()), TABLE)


def _count_landed(events: Frame) -> Frame:
    """How many events bear which phase, fate and marks: all that is counted of them is counted from these few rows."""
    sorts = events.group_by("source_sha256", "phase", "_fate", *_MARKS).agg(_events=nw.len().cast(nw.Int64))
    return sorts.with_columns(rule=settle_by_phase(), _has_fate=~nw.col("_fate").is_null())


def _count_kept(spans: Frame) -> Frame:
    """The spans, as many as there are of each sort: all that is counted of them is counted from these few rows."""
    sorts = spans.with_columns(
        _is_reported=~nw.col("reported_direction").is_null(), _is_directed=~nw.col("direction").is_null()
    )
    return sorts.group_by("source_sha256", *_SORTS).agg(
        _events=nw.len().cast(nw.Int64), _duplicates=nw.col("duplicates_count").sum().cast(nw.Int64)
    )


def _count_conflicts(spans: Frame) -> Frame:
    """Spans whose kind a site's pattern decided, where one of ours that is no catch-all says another."""
    sited = spans.filter(nw.col("pattern").is_in(SITE_IDS), ~nw.col("name").is_null())
    sited = sited.select("source_sha256", "category", "name", "kind", ours=PATTERNS.pattern("category", "name"))
    is_other = ~nw.col("ours").is_in(PATTERNS.catch_alls) & (PATTERNS.kind("ours") != nw.col("kind"))
    return sited.filter(is_other).with_columns(_events=_ONE)


def _count(sorts: Frame, effect: str, rule: nw.Expr) -> Frame:
    named = sorts.with_columns(effect=nw.lit(effect), rule=rule)
    return named.group_by(*_BY).agg(events_count=nw.col("_events").sum().cast(nw.Int64))


def _list_modes(sources: Frame, runs: Frame, kept: Frame) -> Frame:
    """What the run's mode means for all events of a file: devtools (R3), and GPU rows that CC hides (R4)."""
    one = nw.lit(1).cast(nw.Int64)
    is_nsys = nw.col("format").is_in(NSYS_FORMATS)
    landed = nw.when(is_nsys).then(nw.col("rows_count")).otherwise(nw.col("events_count"))
    files = (
        sources.filter(nw.col("outcome") == "kept", nw.col("format").is_in(PROFILES))
        .select("run_id", "source_sha256", "format", rank=nw.col("rank").fill_null(0), events_count=landed)
        .join(runs.select("run_id", "cc_mode"), on="run_id", how="left")
    )
    tools = files.filter(nw.col("cc_mode") == "devtools", nw.col("events_count") > 0).with_columns(
        effect=nw.lit("flagged"), rule=nw.lit("devtools")
    )
    # Nsight's reports lie in several files: one of them is blind only if its whole rank is.
    seeing = kept.filter(nw.col("is_gpu")).select("source_sha256").unique()
    blind = files.filter(nw.col("cc_mode") == "on").join(seeing, on="source_sha256", how="anti")
    ranks = seeing.join(files, on="source_sha256", how="inner").select("run_id", "rank").unique()
    seeing = ranks.with_columns(_sees=nw.lit(1))
    blind = blind.join(seeing, on=["run_id", "rank"], how="left").filter(~is_nsys | nw.col("_sees").is_null())
    blind = blind.with_columns(effect=nw.lit("flagged"), rule=nw.lit("no_gpu_rows"), events_count=one)
    return nw.concat([tools.select(*_BY, "events_count"), blind.select(*_BY, "events_count")])


def _describe_rule() -> nw.Expr:
    """The sentence of a rule, or of the pattern that an event was kept by."""
    kept = nw.concat_str(
        nw.lit("Kept as "), PATTERNS.kind("rule"), nw.lit(" by the pattern "), nw.col("rule"), nw.lit(".")
    )
    return nw.when(nw.col("effect") == "kept").then(kept).otherwise(sentence_of("rule"))
