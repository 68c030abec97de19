"""One row per boundary of a run: what had to be sealed there, and of how much that is shown, claimed or belied."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, divide_down, divide_to_fraction, join_reasons, select_declared, to_flag
from lake.tables import RUN_ID, Column, Table, float64, int64, text
from silver.crossings import TABLE as CROSSINGS
from silver.policy import BOUNDARIES
from silver.steps import EVIDENCE

# What became of messages that had to be sealed; each is in exactly one of these.
FATES = {
    "sealed": "whose sealing was recorded",
    "claimed": "of which only the regime says that they were sealed",
    "contradicted": "whose recorded seal is faster than a processor seals, so that it is no evidence",
    "plain": "that crossed in plaintext",
    "unknown": "of which nothing says whether they were sealed",
}

# The gravest first: what is said of a boundary as a whole.
VERDICTS = ("contradicted", "plaintext", "unknown", "incomplete", "claimed", "sealed", "nothing_due")


def _sums() -> tuple[Column, ...]:
    due = "that the regime must seal, of known size"
    counts = [int64("promised_message_count", f"Messages {due}.", minimum=0)]
    sizes = [int64("promised_bytes", f"Bytes of data {due}.", minimum=0)]
    for fate, what in FATES.items():
        counts.append(int64(f"{fate}_message_count", f"Those {what}.", minimum=0))
        sizes.append(int64(f"{fate}_bytes", f"Those {what}.", minimum=0))
    return (*counts, *sizes)


def _share(name: str, meaning: str) -> Column:
    return float64(name, meaning, nullable=True, minimum=0, maximum=1)


TABLE = Table(
    tier="gold",
    name="sealing_coverage",
    grain="One row per run and trust boundary that it crossed.",
    key=("boundary",),
    inputs=("silver.crossings", "silver.nonce_budgets", "silver.runs"),
    is_empty_without_first_input=True,
    columns=(
        RUN_ID,
        text("boundary", "Boundary.", one_of=BOUNDARIES),
        text("regime", "Regime that the run claims.", nullable=True, one_of=CROSSINGS.column("regime").one_of),
        text(
            "verdict_class",
            "contradicted: seals that cannot be true; plaintext: a message that had to be sealed was not; unknown: of "
            "some nothing says whether they were; incomplete: of some ranks or sizes nothing was recorded; claimed: "
            "only the regime says it; sealed: every seal was recorded, on every rank; nothing_due: nothing had to be.",
            one_of=VERDICTS,
        ),
        text("verdict", "The same as a sentence, with its numbers."),
        int64("ranks_count", "Ranks that a trace has landed from.", nullable=True, minimum=0),
        int64("world_size", "Ranks of the job, as traces or manifest say.", nullable=True, minimum=1),
        int64("crossings_count", "Transfers across it.", minimum=1),
        int64("promised_crossings_count", "Those that the regime must seal.", minimum=0),
        int64(
            "unsized_crossings_count",
            "Those of the promised ones whose messages or bytes the trace does not give; they are in no sum.",
            minimum=0,
        ),
        *_sums(),
        _share("measured_messages_fraction", "Promised messages whose sealing was recorded."),
        _share("covered_messages_fraction", "Promised messages that were sealed, by record or by claim."),
        _share("measured_bytes_fraction", "Promised bytes whose sealing was recorded."),
        _share("covered_bytes_fraction", "Promised bytes that were sealed, by record or by claim."),
        int64("violations_count", "Crossings that break the regime's promise.", minimum=0),
        int64("seal_ns", "Time spent sealing, where it was recorded.", nullable=True, minimum=0),
        int64("open_ns", "Time spent opening, where it was recorded.", nullable=True, minimum=0),
        int64(
            "overhead_bytes",
            "Bytes that headers, nonces and tags add on the wire, where known.",
            nullable=True,
            minimum=0,
        ),
        float64(
            "nonce_used_fraction",
            "Share of its AES-GCM limit that the most used key of the run has spent.",
            nullable=True,
            minimum=0,
        ),
        int64(
            "nonce_limit_step_number",
            "Step at which the first key of the run passes its limit at this pace; always modelled.",
            nullable=True,
            minimum=0,
        ),
        text("size_evidence", "Weakest evidence for messages and bytes of the promised crossings.", one_of=EVIDENCE),
        text("evidence", "Weakest evidence of sealing of the promised crossings.", one_of=EVIDENCE),
        text("reason", "What could not be told, and why, as sentences.", nullable=True),
    ),
)
_KEYS = ("run_id", "boundary")
_INT = nw.Int64


def measure(crossings: Frame, nonce_budgets: Frame, runs: Frame) -> Frame:
    """Split what was promised by what became of it; a claim counts as a claim, and is never added to what was seen."""
    split = _split_by_evidence(crossings)
    sums = [
        *(nw.col(name).sum().cast(_INT) for name in (*_flags(), *(column.name for column in _sums()))),
        *(nw.col(name).sum().cast(_INT) for name in ("seal_ns", "open_ns", "overhead_bytes")),
    ]
    found = split.group_by(*_KEYS).agg(nw.col("regime").max(), *sums)
    budgets = nonce_budgets.group_by("run_id").agg(
        nonce_used_fraction=nw.col("used_fraction").max(), nonce_limit_step_number=nw.col("limit_step_number").min()
    )
    world = nw.coalesce(nw.col("found_world_size"), nw.col("world_size"))
    found = found.join(runs.select("run_id", "ranks_count", world_size=world), on="run_id", how="left")
    return select_declared(_judge(_add_evidence(found.join(budgets, on="run_id", how="left"))), TABLE)


def _flags() -> dict[str, nw.Expr]:
    """What is counted of the crossings."""
    is_due = nw.col("must_seal").fill_null(False)
    is_sized = ~nw.col("message_count").is_null() & ~nw.col("payload_bytes").is_null()
    return {
        "crossings_count": nw.lit(True),
        "promised_crossings_count": is_due,
        "unsized_crossings_count": is_due & ~is_sized,
        "violations_count": ~nw.col("violation").is_null(),
        "_modelled": is_due & (nw.col("seal_evidence") == "modelled"),
        "_unobservable": is_due & (nw.col("seal_evidence") == "unobservable"),
        "_sizes_modelled": is_due & (nw.col("size_evidence") == "modelled"),
        "_sizes_unobservable": is_due & (nw.col("size_evidence") == "unobservable"),
        "_unplaced": nw.col("boundary_evidence") == "unobservable",
        "_timed": ~nw.col("seal_ns").is_null(),
        "_wired": ~nw.col("wire_bytes").is_null(),
    }


def _split_by_evidence(crossings: Frame) -> Frame:
    """Give each crossing's messages and bytes to one fate; a hook that sealed a part splits both in proportion."""
    zero = nw.lit(0).cast(_INT)
    is_sized = ~nw.col("message_count").is_null() & ~nw.col("payload_bytes").is_null()
    is_due = nw.col("must_seal").fill_null(False) & is_sized
    is_measured = nw.col("seal_evidence") == "measured"
    found = crossings.with_columns(**{name: to_flag(condition) for name, condition in _flags().items()})
    found = found.with_columns(
        promised_message_count=nw.when(is_due).then(nw.col("message_count")).otherwise(zero),
        promised_bytes=nw.when(is_due).then(nw.col("payload_bytes")).otherwise(zero),
        overhead_bytes=nw.col("wire_bytes") - nw.col("payload_bytes"),
        _is_sealed=to_flag(is_measured & (nw.col("sealed_by") != "none")),
    )
    due, size = nw.col("promised_message_count"), nw.col("promised_bytes")
    # More seals than messages leave nothing in plaintext, whatever else they may mean.
    sealed = nw.min_horizontal(nw.coalesce(nw.col("sealed_message_count"), zero), due)
    found = found.with_columns(
        sealed_message_count=nw.when(is_measured & (nw.col("_is_sealed") == 1)).then(sealed).otherwise(zero)
    )
    whole = nw.when(due > 0).then(due).otherwise(nw.lit(1).cast(_INT))
    found = found.with_columns(sealed_bytes=divide_down(size * nw.col("sealed_message_count"), whole))

    def of(evidence: str, value: nw.Expr) -> nw.Expr:
        return nw.when(nw.col("seal_evidence") == evidence).then(value).otherwise(zero)

    belied = nw.min_horizontal(
        nw.coalesce(nw.col("contradicted_message_count"), zero), due - nw.col("sealed_message_count")
    )
    found = found.with_columns(contradicted_message_count=of("measured", belied))
    shown = nw.col("sealed_message_count") + nw.col("contradicted_message_count")
    found = found.with_columns(
        contradicted_bytes=divide_down(size * shown, whole) - nw.col("sealed_bytes"),
    )
    return found.with_columns(
        claimed_message_count=of("modelled", due),
        claimed_bytes=of("modelled", size),
        plain_message_count=of("measured", due - nw.col("sealed_message_count") - nw.col("contradicted_message_count")),
        plain_bytes=of("measured", size - nw.col("sealed_bytes") - nw.col("contradicted_bytes")),
        unknown_message_count=of("unobservable", due),
        unknown_bytes=of("unobservable", size),
    )


def _add_evidence(found: Frame) -> Frame:
    """Fractions of what was promised, with the weakest evidence that they rest on."""
    messages, size = nw.col("promised_message_count"), nw.col("promised_bytes")
    is_claimless = nw.col("regime").is_null()
    is_due = nw.col("promised_crossings_count") > 0
    is_unsized = is_due & (nw.col("unsized_crossings_count") == nw.col("promised_crossings_count"))
    has_key = ~nw.col("nonce_used_fraction").is_null()
    return found.with_columns(
        measured_messages_fraction=divide_to_fraction(nw.col("sealed_message_count"), messages),
        covered_messages_fraction=divide_to_fraction(
            nw.col("sealed_message_count") + nw.col("claimed_message_count"), messages
        ),
        measured_bytes_fraction=divide_to_fraction(nw.col("sealed_bytes"), size),
        covered_bytes_fraction=divide_to_fraction(nw.col("sealed_bytes") + nw.col("claimed_bytes"), size),
        seal_ns=nw.when(nw.col("_timed") > 0).then(nw.col("seal_ns")),
        open_ns=nw.when(nw.col("_timed") > 0).then(nw.col("open_ns")),
        overhead_bytes=nw.when(nw.col("_wired") > 0).then(nw.col("overhead_bytes")),
        size_evidence=_pick_weakest(nw.col("_sizes_unobservable") > 0, nw.col("_sizes_modelled") > 0),
        evidence=_pick_weakest(is_claimless | (nw.col("_unobservable") > 0), nw.col("_modelled") > 0),
        reason=join_reasons(
            (is_claimless, "the run claims no regime, so nothing says what must be sealed"),
            (~is_claimless & ~is_due, "the regime asks for nothing to be sealed here"),
            (is_unsized, "the trace gives the size of no crossing that must be sealed"),
            (is_due & ~is_unsized & (size == 0), "what must be sealed has no bytes"),
            (is_due & (nw.col("_timed") == 0), "what seals here leaves no span of its own, so its time is not known"),
            (nw.col("_unplaced") > 0, "nobody says on which node each rank is, so some may belong to another boundary"),
            (nw.col("_wired") == 0, "what travels on the wire is not known"),
            (~has_key, "no key sealed in software, so no nonces were counted"),
            (has_key & nw.col("nonce_limit_step_number").is_null(), "sealing fell into no step, so it has no pace"),
        ),
    )


def _judge(found: Frame) -> Frame:
    """One word and one sentence for a boundary; ranks without a record keep it from being called sealed."""
    is_due, missing = nw.col("promised_crossings_count") > 0, nw.col("world_size") - nw.col("ranks_count")
    is_short = ((missing > 0) | (nw.col("unsized_crossings_count") > 0)).fill_null(False)
    conditions = {
        "contradicted": nw.col("contradicted_message_count") > 0,
        "plaintext": (nw.col("plain_message_count") > 0) | (nw.col("violations_count") > 0),
        "unknown": (nw.col("unknown_message_count") > 0) | nw.col("regime").is_null() | nw.col("world_size").is_null(),
        "incomplete": is_short,
        "claimed": nw.col("claimed_message_count") > 0,
        "sealed": nw.lit(True),
    }
    found = found.with_columns(_missing=nw.when(missing > 0).then(missing).otherwise(nw.lit(0).cast(_INT)))
    word = nw.lit("nothing_due")
    for name in reversed(VERDICTS[:-1]):
        word = (
            nw.when(conditions[name].fill_null(False) & (is_due | nw.col("regime").is_null()))
            .then(nw.lit(name))
            .otherwise(word)
        )
    found = found.with_columns(verdict_class=word)
    parts = [
        nw.concat_str(
            nw.col("verdict_class"),
            nw.lit(": "),
            _tell("sealed_message_count"),
            nw.lit(" of "),
            _tell("promised_message_count"),
            nw.lit(" messages were seen to be sealed"),
        ),
        *(
            nw.when(nw.col(f"{fate}_message_count") > 0).then(
                nw.concat_str(_tell(f"{fate}_message_count"), nw.lit(said))
            )
            for fate, said in _SAID.items()
        ),
        nw.when(nw.col("unsized_crossings_count") > 0).then(
            nw.concat_str(_tell("unsized_crossings_count"), nw.lit(" crossings have no size"))
        ),
        nw.when(nw.col("_missing") > 0).then(
            nw.concat_str(_tell("_missing"), nw.lit(" of "), _tell("world_size"), nw.lit(" ranks recorded no trace"))
        ),
        nw.when(nw.col("world_size").is_null()).then(nw.lit("how many ranks there were is not known")),
    ]
    verdict = nw.concat_str(*parts, separator=", ", ignore_nulls=True)
    nothing = nw.lit("nothing_due: the regime asks for nothing to be sealed here")
    claimless = nw.lit("unknown: the run claims no regime, so nothing says what must be sealed")
    verdict = (
        nw.when(nw.col("regime").is_null()).then(claimless).otherwise(nw.when(is_due).then(verdict).otherwise(nothing))
    )
    return found.with_columns(verdict=verdict)


# What is said of messages beyond those that were seen to be sealed.
_SAID = {
    "claimed": " are sealed by the regime's claim alone",
    "contradicted": " have a seal that no processor could do",
    "plain": " crossed in plaintext",
    "unknown": " may be sealed or not",
}


def _tell(count: str) -> nw.Expr:
    return nw.col(count).cast(_INT).cast(nw.String)


def _pick_weakest(is_unobservable: nw.Expr, is_modelled: nw.Expr) -> nw.Expr:
    return (
        nw.when(is_unobservable)
        .then(nw.lit("unobservable"))
        .otherwise(nw.when(is_modelled).then(nw.lit("modelled")).otherwise(nw.lit("measured")))
    )
