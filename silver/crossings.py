"""One row per transfer that leaves a trusted package, and how it was sealed: the encrypt-annotation."""

from __future__ import annotations

import narwhals as nw

from bronze.manifest import REGIMES
from lake.frames import Frame, compute_once, cut_plan, divide_down, select_declared
from lake.tables import RUN_ID, Table, boolean, int32, int64, text
from silver.collectives import COLLECTIVES
from silver.hops import SEAL_SUMS, count_hops, doubt_seals
from silver.interval_cover import add_covered_time
from silver.network import find_boundary
from silver.policy import BOUNDARIES, CIPHER, KEY_BITS, POLICY, SEALERS
from silver.ring_settings import CONSTRUCTIONS, count_chains, has_ring, name_construction
from silver.steps import EVIDENCE

PATHS = ("pinned", "pageable", "managed", "peer", "hook", "gloo", "nccl", "rccl", "oneccl", "nvshmem", "other")
# Regimes in which a pinned copy that bears its true label went through no bounce buffer (R1, seen on Hopper).
RELABELLING_REGIMES = ("hopper_spt_cc", "hopper_ppcie")

TABLE = Table(
    tier="silver",
    name="crossings",
    grain="One row per transfer across a trust boundary: a host copy, or a rank's part in a collective.",
    key=("rank", "source_sha256", "ordinal"),
    inputs=("silver.spans", "silver.collectives", "bronze.runs"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace; the sender of a collective's messages.", minimum=0),
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the event that stands for it in its source.", minimum=0),
        text("boundary", "Boundary that it crosses.", one_of=BOUNDARIES),
        text(
            "boundary_evidence",
            "measured: the copy says it; modelled: the nodes that the manifest claims, filled in the order of ranks, "
            "say it; unobservable: nobody says on which node the ranks are.",
            one_of=EVIDENCE,
        ),
        text("path", "How: by which host memory, or by which library.", one_of=PATHS),
        text("collective", "Collective that it is part of.", nullable=True, one_of=COLLECTIVES),
        int64("ts_ns", "Start, UTC, as the rank's own clock says.", minimum=1),
        int64("duration_ns", "Duration; null where only the call is seen.", nullable=True, minimum=0),
        int64(
            "aligned_ts_ns",
            "Start on the clock of the reference rank; null where the offset is not known.",
            nullable=True,
        ),
        int64("step_number", "Step that launched it, else the one in which it started.", nullable=True, minimum=0),
        int64("group_size", "Ranks that take part in the collective.", nullable=True),
        int64("buffer_bytes", "Size of the whole buffer.", nullable=True, minimum=0),
        int64("message_count", "Messages that this rank sends.", nullable=True, minimum=0),
        int64("payload_bytes", "Bytes of data that this rank sends.", nullable=True, minimum=0),
        int64(
            "wire_bytes",
            "The same with what every message has before and after it: header, nonce, tags.",
            nullable=True,
            minimum=0,
        ),
        text(
            "size_evidence",
            "Where messages and bytes come from: measured, or modelled by the algorithm's formula.",
            one_of=EVIDENCE,
        ),
        text("regime", "Regime that the run claims.", nullable=True, one_of=REGIMES),
        boolean("must_seal", "Whether the regime must seal it; null where none is claimed.", nullable=True),
        text("sealed_by", "What sealed it; null where nothing shows it.", nullable=True, one_of=SEALERS),
        text("cipher", "Cipher.", nullable=True),
        int64("key_bits", "Length of the key.", nullable=True),
        int64("sealed_message_count", "Messages whose sealing was recorded.", nullable=True, minimum=0),
        int64(
            "contradicted_message_count",
            "Messages whose seal was recorded as faster than a processor seals: no evidence of sealing.",
            nullable=True,
            minimum=0,
        ),
        int64("seal_ns", "Time spent sealing.", nullable=True, minimum=0),
        int64("open_ns", "Time spent opening.", nullable=True, minimum=0),
        text(
            "seal_evidence",
            "measured: spans show it; modelled: the claimed regime implies it; unobservable: nothing shows it.",
            one_of=EVIDENCE,
        ),
        int64("exposed_ns", "Part of its duration during which no compute kernel ran.", nullable=True, minimum=0),
        text("key_scope", "What one key serves.", nullable=True),
        text(
            "nonce_construction",
            "How the nonces under that key are made: counted (deterministic), random, or not said.",
            nullable=True,
            one_of=CONSTRUCTIONS,
        ),
        int64("key_message_count", "Messages under that key so far, this one's included.", nullable=True, minimum=0),
        text("violation", "Why it breaks the regime's promise, as a sentence.", nullable=True),
        text("reason", "What could not be seen, and why, as a sentence.", nullable=True),
    ),
)
_MOST_BYTES = 1 << 50
_KEYS = ["rank", "source_sha256", "ordinal"]
_INT = nw.Int64


def conform(spans: Frame, collectives: Frame, runs: Frame) -> Frame:
    """Annotate every crossing with what its regime promises and what the recording shows; silence is never a zero."""
    claims = runs.select(
        "run_id",
        "regime",
        "nodes_count",
        _world=nw.coalesce(nw.col("found_world_size"), nw.col("world_size")),
        _is_ring=has_ring(),
        _chains=count_chains(),
        _construction=name_construction(),
    )
    exchanges = _find_exchanges(collectives, count_hops(spans, claims))
    found = nw.concat([_find_copies(spans), exchanges], how="diagonal").join(claims, on="run_id", how="left")
    found = find_boundary(cut_plan(found))
    found = _add_exposed_time(compute_once(found), spans)
    return select_declared(_count_messages(_judge_sealing(found)), TABLE)


def _find_copies(spans: Frame) -> Frame:
    """Copies between host and GPU, and between GPUs; a copy on one GPU leaves no package."""
    copies = spans.filter(
        nw.col("kind") == "copy", nw.col("direction").is_in(["host_to_gpu", "gpu_to_host", "gpu_to_gpu"])
    )
    # What no copy could move is taken for what the source does not say: sums and products fit 64 bits.
    is_known = (nw.col("payload_bytes") >= 0) & (nw.col("payload_bytes") <= _MOST_BYTES)
    return copies.select(
        "run_id",
        *_KEYS,
        "ts_ns",
        "duration_ns",
        "aligned_ts_ns",
        "is_relabelled",
        step_number=nw.coalesce(nw.col("launch_step_number"), nw.col("step_number")),
        boundary=nw.col("direction"),
        path=nw.when(nw.col("direction") == "gpu_to_gpu")
        .then(nw.lit("peer"))
        .otherwise(nw.col("memory").fill_null("other")),
        collective=nw.lit(None).cast(nw.String),
        buffer_bytes=nw.when(is_known).then(nw.col("payload_bytes")),
        payload_bytes=nw.when(is_known).then(nw.col("payload_bytes")),
        message_count=nw.lit(1).cast(_INT),
        size_evidence=nw.when(is_known.fill_null(False)).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
    )


def _find_exchanges(collectives: Frame, hops: Frame) -> Frame:
    """A rank's part in a collective: what it sends, by the hook's own hops where it recorded them, else by formula."""
    sending = collectives.filter(
        ~nw.col("collective").is_in(["barrier", "recv"]), (nw.col("group_size") > 1) | nw.col("group_size").is_null()
    )
    sending = sending.join(hops, on=_KEYS, how="left")
    size, group = nw.col("buffer_bytes"), nw.col("group_size")
    is_reduced = nw.col("collective") == "all_reduce"
    is_around = nw.col("collective").is_in(["all_gather", "reduce_scatter", "all_to_all"])
    is_single = nw.col("collective").is_in(["broadcast", "send", "reduce", "gather"])
    rounds = (
        nw.when(is_reduced)
        .then((group - 1) * 2)
        .otherwise(nw.when(is_around).then(group - 1).otherwise(nw.when(is_single).then(nw.lit(1).cast(_INT))))
    )
    sending = sending.with_columns(_hops=nw.col("_hops").fill_null(0), _rounds=rounds)
    is_hooked = nw.col("_hops") > 0
    sending = sending.with_columns(message_count=nw.when(is_hooked).then(nw.col("_hops")).otherwise(nw.col("_rounds")))
    # Whole buffers travel in a broadcast, a share of 1/N in every round of a ring.
    share = nw.when(group > 1).then(group)
    payload = nw.when(is_single).then(size).otherwise(divide_down(size * nw.col("message_count"), share.fill_null(1)))
    is_sized = ~size.is_null() & ~nw.col("message_count").is_null() & (is_single | ~share.is_null())
    # A hook that says the size of every hop is believed: its messages may be smaller than a share.
    is_stated = (is_hooked & (nw.col("_sized_hops") == nw.col("_hops"))).fill_null(False)
    payload, is_sized = nw.when(is_stated).then(nw.col("_hop_bytes")).otherwise(payload), is_stated | is_sized
    return sending.select(
        "run_id",
        *_KEYS,
        "ts_ns",
        "duration_ns",
        "aligned_ts_ns",
        "step_number",
        "collective",
        "group_size",
        "buffer_bytes",
        "message_count",
        "first_group_rank",
        "last_group_rank",
        *SEAL_SUMS,
        boundary=nw.lit("gpu_to_gpu"),
        path=nw.col("library"),
        payload_bytes=nw.when(is_sized).then(payload),
        size_evidence=nw.when(is_hooked & is_sized)
        .then(nw.lit("measured"))
        .otherwise(nw.when(is_sized).then(nw.lit("modelled")).otherwise(nw.lit("unobservable"))),
    )


def _add_exposed_time(found: Frame, spans: Frame) -> Frame:
    """What of a crossing no compute kernel of its rank hid; null where the crossing or the GPU was not seen."""
    compute = spans.filter(nw.col("is_gpu"), nw.col("kind") == "compute")
    seeing = spans.filter(nw.col("is_gpu")).select("rank").unique().with_columns(_sees=nw.lit(1))
    timed = found.filter(~nw.col("duration_ns").is_null())
    shares = add_covered_time(timed.select(*_KEYS, "ts_ns", "duration_ns"), compute).join(
        seeing, on="rank", how="inner"
    )
    shares = shares.select(*_KEYS, exposed_ns=nw.col("duration_ns") - nw.col("covered_ns"))
    return found.join(shares, on=_KEYS, how="left")


def _judge_sealing(found: Frame) -> Frame:
    """Hold what the recording shows against what the regime promises."""
    is_hook, is_copy = nw.col("path") == "hook", nw.col("collective").is_null()
    found = doubt_seals(found)
    found = found.with_columns(
        must_seal=POLICY.must_seal(),
        _promised=POLICY.promised_sealer(),
        _is_exempt=POLICY.is_exempt(),
        _is_plain_label=(
            nw.col("regime").is_in(RELABELLING_REGIMES) & (nw.col("path") == "pinned") & ~nw.col("is_relabelled")
        ).fill_null(False),
        _by_software=(nw.col("_sealed") > 0).fill_null(False),
        _is_belied=(nw.col("_contradicted") > 0).fill_null(False),
    )
    by_hook = nw.col("_promised") == "software_hook"
    # A hook would have left spans: where it is promised, or where one is at work, their absence is an observation.
    is_seen_plain = is_hook | by_hook.fill_null(False) | nw.col("_is_plain_label")
    sealed_by = (
        nw.when(nw.col("_by_software"))
        .then(nw.lit("software_hook"))
        .otherwise(
            nw.when(is_seen_plain & ~nw.col("_is_belied"))
            .then(nw.lit("none"))
            .otherwise(nw.when(~nw.col("_is_belied")).then(nw.col("_promised")))
        )
    )
    found = found.with_columns(
        sealed_by=sealed_by,
        seal_evidence=nw.when(nw.col("_by_software") | nw.col("_is_belied") | is_seen_plain)
        .then(nw.lit("measured"))
        .otherwise(nw.when(nw.col("_promised").is_null()).then(nw.lit("unobservable")).otherwise(nw.lit("modelled"))),
    )
    is_sealed = (nw.col("sealed_by") != "none").fill_null(False)
    is_measured = nw.col("seal_evidence") == "measured"
    found = found.with_columns(
        cipher=nw.when(is_sealed).then(nw.lit(CIPHER)),
        key_bits=nw.when(is_sealed).then(nw.lit(KEY_BITS).cast(_INT)),
        sealed_message_count=nw.when(is_measured).then(nw.col("_sealed").fill_null(0)),
        contradicted_message_count=nw.when(is_measured).then(nw.col("_contradicted").fill_null(0)),
        seal_ns=nw.when(is_measured).then(nw.col("seal_ns").fill_null(0)),
        open_ns=nw.when(is_measured).then(nw.col("open_ns").fill_null(0)),
        _is_partial=(nw.col("_by_software") & (nw.col("_sealed") != nw.col("message_count"))).fill_null(False),
    )
    sealed = nw.coalesce(nw.col("sealed_message_count"), nw.col("message_count"))
    is_ring = nw.col("_is_ring").fill_null(False) & (nw.col("path") == "hook")
    headers = nw.when(is_ring).then(nw.col("message_count") * POLICY.ring_header_bytes).otherwise(nw.lit(0).cast(_INT))
    ring_bytes = nw.col("_chains") * POLICY.ring_tag_bytes + POLICY.ring_nonce_bytes
    added = nw.when(is_ring).then(sealed * ring_bytes).otherwise(sealed * POLICY.message_overhead_bytes)
    return found.with_columns(
        violation=_violation(),
        reason=_reason(is_copy),
        wire_bytes=nw.when(nw.col("sealed_by") == "none")
        .then(nw.col("payload_bytes") + headers)
        .otherwise(nw.when(is_sealed).then(nw.col("payload_bytes") + headers + added)),
    )


def _violation() -> nw.Expr:
    """The sentence that names a broken promise."""
    is_plain = (nw.col("sealed_by") == "none").fill_null(False) & nw.col("must_seal").fill_null(False)
    boundary = nw.concat_str(nw.col("regime"), nw.lit(" must seal "), nw.col("boundary"))
    partial = nw.concat_str(
        boundary,
        nw.lit(", yet only "),
        nw.col("sealed_message_count").cast(_INT).cast(nw.String),
        nw.lit(" of "),
        nw.col("message_count").cast(_INT).cast(nw.String),
        nw.lit(" messages were sealed"),
    )
    labelled = nw.concat_str(
        boundary, nw.lit(", yet this pinned copy bears its true label: no bounce buffer was at work")
    )
    belied = nw.concat_str(
        boundary,
        nw.lit(", yet "),
        nw.col("_contradicted").cast(_INT).cast(nw.String),
        nw.lit(f" seals were faster than {POLICY.most_seal_bytes_per_ns} GB/s per thread: no processor seals so fast"),
    )
    plain = nw.concat_str(boundary, nw.lit(", yet it crossed in plaintext: no seal was recorded"))
    is_due = nw.col("must_seal").fill_null(False)
    partly = (
        nw.when(nw.col("_is_belied") & is_due)
        .then(belied)
        .otherwise(nw.when(nw.col("_is_partial") & is_due).then(partial))
    )
    return (
        nw.when((nw.col("_is_belied") | nw.col("_is_partial")) & is_due)
        .then(partly)
        .otherwise(
            nw.when(is_plain & nw.col("_is_plain_label")).then(labelled).otherwise(nw.when(is_plain).then(plain))
        )
    )


def _reason(is_copy: nw.Expr) -> nw.Expr:
    """What could not be seen; the first that applies."""
    reasons = (
        (nw.col("regime").is_null(), "the run claims no regime, so nothing says what must be sealed"),
        (nw.col("_is_exempt"), "this regime seals the hops of reductions; what DDP broadcasts itself is outside of it"),
        (
            nw.col("seal_evidence") == "unobservable",
            "the regime leaves the network to other software, and no trace shows what that does",
        ),
        (nw.col("payload_bytes").is_null() & is_copy, "the trace does not give the copy's size"),
        (nw.col("payload_bytes").is_null(), "the trace does not give the collective's size"),
        (
            (nw.col("seal_evidence") == "modelled") & (nw.col("sealed_by") != "none"),
            "driver and hardware seal without a span of their own: that it was sealed is the regime's claim",
        ),
        (nw.col("exposed_ns").is_null(), "no GPU rows were recorded, so what was hidden cannot be told"),
        (
            nw.col("boundary_evidence") == "unobservable",
            "nobody says on which node each rank is, so whether it leaves one is not known",
        ),
    )
    found = nw.lit(None).cast(nw.String)
    for condition, sentence in reversed(reasons):
        found = nw.when(condition).then(nw.lit(sentence)).otherwise(found)
    return found


def _count_messages(found: Frame) -> Frame:
    """Count the messages under each key: a hook has one for what a rank sends on."""
    is_hooked = (nw.col("sealed_by") == "software_hook").fill_null(False)
    found = found.with_columns(
        key_scope=nw.when(is_hooked).then(
            nw.concat_str(nw.lit("rank "), nw.col("rank").cast(nw.String), nw.lit(" to the next"))
        ),
        nonce_construction=nw.when(is_hooked).then(nw.col("_construction")),
        _spent=nw.when(is_hooked)
        .then(nw.col("sealed_message_count") - nw.col("_relayed").fill_null(0))
        .otherwise(nw.lit(0).cast(_INT)),
    )
    running = nw.col("_spent").cum_sum().over("rank", order_by=["ts_ns", "source_sha256", "ordinal"])
    return found.with_columns(_running=running).with_columns(
        key_message_count=nw.when(~nw.col("key_scope").is_null()).then(nw.col("_running"))
    )
