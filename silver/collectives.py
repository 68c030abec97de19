"""One row per collective and rank, however often the trace mentions it: the kernel, the hook, or the best mention."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, join_reasons, select_declared
from lake.tables import RUN_ID, Table, int32, int64, text
from silver.collective_identity import MATCHES, identify_collectives
from silver.patterns import PATTERNS
from silver.span_context import assign_hooks
from silver.steps import EVIDENCE

LIBRARIES = (*PATTERNS.words("library"), "other")
COLLECTIVES = (*PATTERNS.words("collective"), "other")
MENTIONS = ("kernel", "hook", "annotation", "host_call")

TABLE = Table(
    tier="silver",
    name="collectives",
    grain="One row per collective and rank.",
    key=("source_sha256", "ordinal"),
    inputs=("silver.spans", "bronze.trace_events", "bronze.runs"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the event that stands for it in its source.", minimum=0),
        text("library", "Library that ran it.", one_of=LIBRARIES),
        text("collective", "What it does.", one_of=COLLECTIVES),
        text("mention", "Which of its mentions stands for it.", one_of=MENTIONS),
        int64("ts_ns", "Start, UTC, as the rank's own clock says.", minimum=1),
        int64(
            "duration_ns",
            "Duration, waiting for peers included; null where only the call is seen.",
            nullable=True,
            minimum=0,
        ),
        int64(
            "aligned_ts_ns",
            "Start on the clock of the reference rank; null where the offset is not known.",
            nullable=True,
        ),
        int64("step_number", "Step that launched it, else the one in which it started.", nullable=True, minimum=0),
        int64("group_size", "Ranks that take part.", nullable=True, minimum=1),
        int64("first_group_rank", "Lowest rank of the group, where the trace lists them.", nullable=True, minimum=0),
        int64("last_group_rank", "Highest rank of it.", nullable=True, minimum=0),
        text("dtype", "Element type of the message, as the source spells it.", nullable=True),
        int64("buffer_bytes", "Size of the whole buffer that is reduced or gathered.", nullable=True, minimum=0),
        text("process_group_name", "Name of the process group.", nullable=True),
        int64("collective_sequence", "Number of the collective within its process group.", nullable=True),
        text("communicator_id", "Hash that the same collective carries on every rank.", nullable=True),
        text("match_id", "Equal on all ranks for the same collective."),
        text("matched_by", "What makes it so: the source's own ids, or the order of occurrence.", one_of=MATCHES),
        int64("ranks_count", "Ranks of the run that recorded it.", minimum=1),
        text("evidence", "measured: it was timed; unobservable: only its call was seen.", one_of=EVIDENCE),
        text("reason", "What could not be seen, and why, as sentences.", nullable=True),
    ),
)
_MOST_ELEMENTS = 1 << 40
_MOST_RANKS = 1 << 17
_ARGUMENTS = (
    "collective_name",
    "dtype",
    "in_elements_count",
    "out_elements_count",
    "group_size",
    "process_group_name",
    "collective_sequence",
    "communicator_id",
    "process_group_ranks",
)
# A list of ranks as the profiler writes it, in order; long ones leave out what lies between the first and the last.
_RANKS = "^\\[[0-9]{1,6}(, ?([0-9]{1,6}|[.]{3}))*\\]\\z"


def conform(spans: Frame, events: Frame, runs: Frame) -> Frame:
    """Let the kernel stand for a collective, else the hook or library span around it, else its host call."""
    arguments = events.filter(
        ~nw.col("collective_name").is_null() | ~nw.col("group_size").is_null() | ~nw.col("in_elements_count").is_null()
    ).select("source_sha256", "ordinal", *_ARGUMENTS)
    seen = _list_mentions(spans).join(arguments, on=["source_sha256", "ordinal"], how="left")
    spelled = nw.coalesce(nw.col("collective_name"), nw.col("name"))
    seen = seen.with_columns(
        collective=nw.when(nw.col("mention") == "kernel")
        .then(PATTERNS.collective(spelled).fill_null("other"))
        .otherwise(PATTERNS.collective(spelled))
    ).filter(~nw.col("collective").is_null())
    seen = _add_sizes(_choose_mentions(seen), runs)
    seen = identify_collectives(seen.with_columns(library=PATTERNS.word("library", nw.col("name")).fill_null("other")))
    seen = seen.with_columns(
        ranks_count=nw.col("ordinal").count().over("match_id"),
        step_number=nw.coalesce(nw.col("launch_step_number"), nw.col("step_number")),
    )
    return select_declared(_add_evidence(seen), TABLE)


def _list_mentions(spans: Frame) -> Frame:
    """Every row that may stand for a collective, with what kind of mention it is."""
    is_call = PATTERNS.has_pattern("pattern", "operator") & (nw.col("name") == "record_param_comms")
    mention = (
        nw.when(nw.col("kind") == "collective")
        .then(nw.lit("kernel"))
        .otherwise(
            nw.when(PATTERNS.has_pattern("pattern", "hook_collective"))
            .then(nw.lit("hook"))
            .otherwise(
                nw.when(PATTERNS.has_pattern("pattern", "gloo_call", "nccl_annotation"))
                .then(nw.lit("annotation"))
                .otherwise(nw.when(is_call).then(nw.lit("host_call")))
            )
        )
    )
    return spans.with_columns(mention=mention).filter(~nw.col("mention").is_null())


def _choose_mentions(seen: Frame) -> Frame:
    """Drop the mentions of what another row stands for: calls inside a hook, and calls of kernels that were seen."""
    seen = assign_hooks(seen)
    # Only what a hook's own thread did can be inside it: a kernel's thread is a stream, whatever its number.
    is_inside = ~nw.col("_hook").is_null() & ~nw.col("_is_hook")
    seen = seen.filter((nw.col("mention") == "kernel") | ~is_inside).with_columns(
        _is_kernel=nw.when(nw.col("mention") == "kernel").then(1).otherwise(0),
        _is_gloo=nw.when(nw.col("pattern") == "gloo_call").then(1).otherwise(0),
        _is_call=nw.when(nw.col("mention") == "host_call").then(1).otherwise(0),
    )
    seen = seen.with_columns(
        _kernels=nw.col("_is_kernel").max().over("rank"),
        _gloos=nw.col("_is_gloo").max().over("rank"),
        _calls=nw.col("_is_call").max().over("rank"),
    )
    is_timed = nw.col("mention").is_in(["kernel", "hook"]) | (nw.col("_is_gloo") == 1)
    # The rest speaks only for ranks that show neither kernels nor gloo: calls, and annotations where there are none.
    is_blind = (nw.col("_kernels") == 0) & (nw.col("_gloos") == 0)
    is_best = (nw.col("mention") == "host_call") | (nw.col("_calls") == 0)
    return seen.filter(is_timed | (is_blind & is_best))


def _add_sizes(seen: Frame, runs: Frame) -> Frame:
    """Bytes from the arguments, or from the hook's name; the group from its argument, else the whole job."""
    world = runs.select("run_id", _world=nw.coalesce(nw.col("found_world_size"), nw.col("world_size")))
    elements = (
        nw.when(nw.col("collective") == "all_gather")
        .then(nw.coalesce(nw.col("out_elements_count"), nw.col("in_elements_count")))
        .otherwise(nw.coalesce(nw.col("in_elements_count"), nw.col("out_elements_count")))
    )
    stated = nw.when(nw.col("mention") == "hook").then(nw.col("name").str.replace_all("^[^#]*#", ""))
    seen = seen.join(world, on="run_id", how="left").with_columns(_elements=elements)
    # What a message could not be is taken for what the source does not say: products of these fit 64 bits.
    is_sane = (nw.col("_elements") >= 0) & (nw.col("_elements") <= _MOST_ELEMENTS)
    group = nw.coalesce(nw.col("group_size"), nw.col("_world"))
    seen = seen.with_columns(_elements=nw.when(is_sane).then(nw.col("_elements")), group_size=group)
    is_group = (nw.col("group_size") >= 1) & (nw.col("group_size") <= _MOST_RANKS)
    listed = nw.when(nw.col("process_group_ranks").str.contains(_RANKS)).then(nw.col("process_group_ranks"))
    return seen.with_columns(
        first_group_rank=listed.str.replace_all("^\\[", "").str.replace_all("[^0-9].*", "").cast(nw.Int64),
        last_group_rank=listed.str.replace_all("\\]\\z", "").str.replace_all("^.*[^0-9]", "").cast(nw.Int64),
        buffer_bytes=nw.coalesce(stated.cast(nw.Int64), nw.col("_elements") * PATTERNS.element_bytes("dtype")),
        group_size=nw.when(is_group).then(nw.col("group_size")),
    )


def _add_evidence(seen: Frame) -> Frame:
    """Say what was timed and what could not be seen."""
    is_timed = nw.col("mention").is_in(["kernel", "hook"]) | (nw.col("pattern") == "gloo_call")
    is_sizeless = nw.col("buffer_bytes").is_null() & (nw.col("collective") != "barrier")
    return seen.with_columns(
        duration_ns=nw.when(is_timed).then(nw.col("duration_ns")),
        evidence=nw.when(is_timed).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
        reason=join_reasons(
            (~is_timed, "no GPU rows: the call was seen, not the transfer"),
            (is_sizeless, "the trace does not give its size"),
        ),
    )
