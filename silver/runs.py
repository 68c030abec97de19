"""One row per training run: what was claimed, what was found, and whether the two agree."""

from __future__ import annotations

import narwhals as nw

from bronze.manifest import CC_MODES, CLAIMS
from bronze.runs import TABLE as CLAIMED
from lake.frames import Frame, join_reasons, select_declared, to_flag
from lake.tables import RUN_ID, Table, boolean, int64, text
from silver.attestations import STANDINGS
from silver.crossings import RELABELLING_REGIMES
from silver.ring_settings import OPTIONS, describe_option
from silver.steps import EVIDENCE

# What must be equal in a family of runs; a pair must also be equal in world size and bucket cap.
WORKLOAD = (
    "model",
    "parameters_count",
    "dtype",
    "batch_size",
    "sequence_length",
    "parallelism",
    "backend",
    "gpu",
    "driver_version",
    "cuda_version",
    "torch_version",
    "nccl_version",
    "host_cpu",
    "nodes_count",
)
# Regimes in which the GPU itself is in confidential-computing mode.
_CC_REGIMES = ("hopper_spt_cc", "hopper_ppcie", "blackwell_mpt_nvle", "tee_io_tdisp")
AGREEMENTS = ("agrees", "contradicted", "unproven")

TABLE = Table(
    tier="silver",
    name="runs",
    grain="One row per training run.",
    key=("run_id",),
    indexed=("regime", "baseline", "repeat_of", "workload", "family", "attestation_ids", "so_far"),
    inputs=(
        "bronze.runs",
        "bronze.device_samples",
        "bronze.collective_records",
        "silver.spans",
        "silver.steps",
        "silver.crossings",
        "silver.throughput",
        "silver.attestations",
    ),
    columns=(
        RUN_ID,
        *CLAIMS,
        text("workload", "What must be equal for two runs to be a pair, as `field=value` parts.", nullable=True),
        text(
            "family",
            "The same without world size and bucket cap, and with the ring's options: runs to be compared for scaling.",
            nullable=True,
        ),
        text("extra", "The manifest's `[extra]` table as JSON text.", nullable=True, sensitive=True, is_free_text=True),
        int64("found_world_size", "Ranks of the job, as the traces say.", nullable=True, minimum=1),
        text("found_backend", "Collective backend, as the traces say.", nullable=True),
        text("found_gpu", "GPU model, as the traces say.", nullable=True),
        int64("ranks_count", "Ranks that a trace has landed from.", minimum=0),
        CLAIMED.column("is_open"),
        CLAIMED.column("cycles_count"),
        text(
            "so_far",
            "How far a run that is open has come, as `so far, 3 cycles`; null once it is closed.",
            nullable=True,
        ),
        int64("found_steps_count", "Steps over all ranks.", minimum=0),
        int64("found_warmup_steps_count", "Those of them that are left out of pairs.", minimum=0),
        int64("found_periods_count", "Epochs and steps of training logs.", minimum=0),
        int64("found_spans_count", "Intervals.", minimum=0),
        int64("found_gpu_spans_count", "Intervals on a GPU.", minimum=0),
        text("gpu_evidence", "Whether the GPU was observed at all.", one_of=EVIDENCE),
        boolean("is_shipped_mode", "Whether the mode is one that people ship: devtools is not (R3).", nullable=True),
        int64("found_crossings_count", "Transfers across a trust boundary.", minimum=0),
        int64("found_sealed_message_count", "Messages whose sealing was recorded.", minimum=0),
        int64("found_violations_count", "Crossings that break the regime's promise.", minimum=0),
        text(
            "found_cc_mode",
            "Mode that the evidence shows; null where it shows none, or both.",
            nullable=True,
            one_of=CC_MODES,
        ),
        text("found_cc_evidence", "What shows it, whatever the run claims, as sentences.", nullable=True),
        text(
            "attestation",
            "Standing of the run's worst token (silver.attestations); null where there is none.",
            nullable=True,
            one_of=STANDINGS,
        ),
        text("attestation_finding", "What speaks against that token, as sentences.", nullable=True),
        CLAIMED.column("attestation_ids"),
        text(
            "agreement",
            "agrees: the recording shows what the regime promises; contradicted: it shows the opposite; unproven: it "
            "shows neither.",
            one_of=AGREEMENTS,
        ),
        text("contradictions", "What speaks against the claim, as sentences.", nullable=True),
        text("conflicts", "Where manifest and files disagree, as sentences.", nullable=True),
    ),
)


def conform(runs: Frame, spans: Frame, steps: Frame, crossings: Frame, throughput: Frame, evidence: Frame) -> Frame:
    """Hold the claim against the recording: it agrees, is contradicted, or stays unproven."""
    found = runs
    logged = _counts(throughput, "found_periods_count", {})
    for counts in (_span_counts(spans), _step_counts(steps), _crossing_counts(crossings), logged):
        found = found.join(counts, on="run_id", how="left")
    counted = [name for name in TABLE.column_names if name.startswith("found_") and name.endswith("_count")]
    found = found.with_columns(nw.col(*counted, "_true_labels", "_hidden_labels", "_relabelled").fill_null(0))
    found = found.join(evidence, on="run_id", how="left").with_columns(nw.col("_devices", "_tokens").fill_null(0))
    found = _add_contradictions(_add_observed_mode(_add_workload(found)))
    is_seen = nw.col("found_gpu_spans_count") > 0
    return select_declared(
        found.with_columns(
            so_far=_describe_progress(),
            attestation_finding=nw.col("_finding"),
            gpu_evidence=nw.when(is_seen).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
            is_shipped_mode=nw.when(~nw.col("cc_mode").is_null()).then(nw.col("cc_mode") != "devtools"),
        ),
        TABLE,
    )


def _describe_progress() -> nw.Expr:
    """How far an open run has come: in cycles of its profiler, and how many of them count; else in logged periods."""
    cycles, periods = nw.col("cycles_count"), nw.col("found_periods_count")
    most = nw.col("open_cycles_count")
    last = nw.concat_str(nw.lit("the last "), most.cast(nw.String), nw.lit(" of "), _count_words(cycles, "cycle"))
    counted = nw.when(most < cycles).then(last).otherwise(_count_words(cycles, "cycle"))
    told = nw.when(cycles > 0).then(counted).otherwise(_count_words(periods, "logged period"))
    return nw.when(nw.col("is_open")).then(nw.concat_str(nw.lit("so far, "), told))


def _count_words(count: nw.Expr, noun: str) -> nw.Expr:
    plural = nw.when(count == 1).then(nw.lit(f" {noun}")).otherwise(nw.lit(f" {noun}s"))
    return nw.concat_str(count.cast(nw.Int64).cast(nw.String), plural)


def _add_workload(found: Frame) -> Frame:
    """The workload as text; a run that names no model can be nobody's baseline."""
    fields = {
        **{name: nw.col(name).cast(nw.String) for name in WORKLOAD},
        "gpu": nw.coalesce(nw.col("gpu"), nw.col("found_gpu")),
        "backend": nw.coalesce(nw.col("backend"), nw.col("found_backend")),
    }
    parts = [nw.concat_str(nw.lit(f"{name}="), value.fill_null("")) for name, value in fields.items()]
    ranks = nw.coalesce(nw.col("found_world_size"), nw.col("world_size")).cast(nw.String).fill_null("")
    size = nw.concat_str(nw.lit("world_size="), ranks)
    cap = nw.concat_str(nw.lit("bucket_cap_mib="), _describe_plainly(nw.col("bucket_cap_mib")))
    is_named = ~nw.col("model").is_null()
    ring = [nw.concat_str(nw.lit(f"{name}="), describe_option(name)) for name in OPTIONS]
    family = nw.concat_str(*parts, *ring, separator="|")
    workload = nw.concat_str(*parts, size, cap, separator="|")
    return found.with_columns(family=nw.when(is_named).then(family), workload=nw.when(is_named).then(workload))


def _describe_plainly(number: nw.Expr) -> nw.Expr:
    """A number as text where every engine writes it alike: without an exponent."""
    is_plain = (number >= 0.001) & (number < 1_000_000)
    odd = nw.when(number.is_null()).then(nw.lit("")).otherwise(nw.lit("beyond reason"))
    return nw.when(is_plain).then(number.cast(nw.String)).otherwise(odd)


def _span_counts(spans: Frame) -> Frame:
    is_managed = (nw.col("memory") == "managed") & (nw.col("reported_direction") == "on_gpu")
    flags = {
        "found_gpu_spans_count": nw.col("is_gpu"),
        "_relabelled": nw.col("is_relabelled"),
        "_true_labels": (nw.col("memory") == "pinned") & ~nw.col("is_relabelled"),
        "_hidden_labels": is_managed & ~nw.col("is_relabelled"),
    }
    return _counts(spans, "found_spans_count", flags)


def _step_counts(steps: Frame) -> Frame:
    return _counts(steps, "found_steps_count", {"found_warmup_steps_count": nw.col("is_warmup")})


def _crossing_counts(crossings: Frame) -> Frame:
    counts = _counts(crossings, "found_crossings_count", {"found_violations_count": ~nw.col("violation").is_null()})
    sealed = crossings.group_by("run_id").agg(
        found_sealed_message_count=nw.col("sealed_message_count").fill_null(0).sum().cast(nw.Int64)
    )
    return counts.join(sealed, on="run_id", how="left")


def _counts(rows: Frame, total: str, flags: dict[str, nw.Expr]) -> Frame:
    """How many rows a run has, and how many of them bear each flag."""
    marked = rows.select("run_id", **{name: to_flag(condition) for name, condition in flags.items()})
    return marked.group_by("run_id").agg(
        nw.len().cast(nw.Int64).alias(total), *(nw.col(name).sum().cast(nw.Int64) for name in flags)
    )


def _add_observed_mode(found: Frame) -> Frame:
    """The mode that device, NCCL, copies and attestation show; where they differ it is none."""
    is_protected = nw.col("_cc_protected") > 0
    # The labels were seen on Hopper: elsewhere they show nothing.
    labelled = nw.when(nw.col("regime").is_in(RELABELLING_REGIMES)).then(nw.col("_relabelled"))
    found = found.with_columns(_labelled=labelled.fill_null(0))
    on = (
        (nw.col("_cc_on") > 0, "conf-compute says that CC is on"),
        (is_protected, "conf-compute says Protected PCIe"),
        (nw.col("_nccl_on") > 0, "NCCL saw CC on"),
        (nw.col("_labelled") > 0, _join_count("", "_labelled", " copies are labelled as CC labels them")),
        (nw.col("_devices") > 0, "a GPU attested itself, which it does in CC only"),
    )
    off = (
        ((nw.col("_cc_off") > 0) & ~is_protected, "conf-compute says that CC is off"),
        (nw.col("_nccl_off") > 0, "NCCL saw CC off"),
    )
    tools = ((nw.col("_cc_tools") > 0, "conf-compute says devtools"),)
    is_on, is_off = (_any_of(parts) for parts in (on, off))
    mode = nw.when(nw.col("_cc_tools") > 0).then(nw.lit("devtools")).otherwise(nw.lit("on"))
    return found.with_columns(
        found_cc_evidence=join_reasons(*on, *off, *tools),
        found_cc_mode=nw.when(is_on & ~is_off).then(mode).otherwise(nw.when(is_off & ~is_on).then(nw.lit("off"))),
        _is_split=is_on & is_off,
    )


def _any_of(parts: tuple[tuple[nw.Expr, str | nw.Expr], ...]) -> nw.Expr:
    found = nw.lit(False)
    for condition, _ in parts:
        found |= condition.fill_null(False)
    return found


def _add_contradictions(found: Frame) -> Frame:
    """The sentences that speak against the claim, and the verdict."""
    regime, sealed = nw.col("regime"), nw.col("found_sealed_message_count")
    is_off, is_hook = regime == "cc_off", regime == "sw_per_hop_aesgcm"
    is_relabelling = regime.is_in(RELABELLING_REGIMES)
    against = (
        (
            is_off & nw.col("cc_mode").is_in(["on", "devtools"]),
            nw.concat_str(nw.lit("it claims regime cc_off and cc_mode "), nw.col("cc_mode")),
        ),
        (
            is_off & (sealed > 0),
            _join_count(
                "it claims cc_off, yet ", "found_sealed_message_count", " messages were sealed by a software hook"
            ),
        ),
        (
            is_off & (nw.col("_hidden_labels") > 0),
            _join_count(
                "it claims cc_off, yet ", "_hidden_labels", " copies are reported as CC does: on the device, Managed"
            ),
        ),
        (
            is_relabelling & (nw.col("_true_labels") > 0),
            _join_count("it claims CC, yet ", "_true_labels", " pinned copies bear their true label, which CC hides"),
        ),
        (
            is_hook & (nw.col("found_violations_count") > 0),
            _join_count("it claims sw_per_hop_aesgcm, yet ", "found_violations_count", " crossings were not sealed"),
        ),
        *_list_disproofs(),
    )
    proof = (
        (is_hook & (sealed > 0))
        | (is_relabelling & (nw.col("_relabelled") > 0))
        | (is_off & (nw.col("_true_labels") > 0))
        | (is_off & (nw.col("found_cc_mode") == "off"))
        | (regime.is_in(_CC_REGIMES) & nw.col("found_cc_mode").is_in(["on", "devtools"]))
    ).fill_null(False)
    found = found.with_columns(contradictions=join_reasons(*against))
    return found.with_columns(
        agreement=nw.when(~nw.col("contradictions").is_null())
        .then(nw.lit("contradicted"))
        .otherwise(nw.when(proof).then(nw.lit("agrees")).otherwise(nw.lit("unproven")))
    )


def _list_disproofs() -> tuple[tuple[nw.Expr, nw.Expr | str], ...]:
    """What device and attestation say against the claim, each in one sentence."""
    regime, mode, seen = nw.col("regime"), nw.col("cc_mode"), nw.col("found_cc_mode")
    says_on = regime.is_in(_CC_REGIMES) | mode.is_in(["on", "devtools"])
    says_off = (regime == "cc_off") | (mode == "off")
    claim = nw.concat_str(
        nw.lit("it claims "), nw.coalesce(regime, nw.concat_str(nw.lit("cc_mode "), mode)), nw.lit(", yet ")
    )
    shown = nw.concat_str(claim, nw.col("found_cc_evidence"))
    is_hopper, is_blackwell = regime.str.starts_with("hopper"), regime.str.starts_with("blackwell")
    chip = nw.col("_hardware").str
    is_other = (is_hopper & chip.starts_with("GB")) | (is_blackwell & chip.starts_with("GH"))
    driver = nw.col("driver_version")
    return (
        (says_on & (seen == "off"), shown),
        (says_off & seen.is_in(["on", "devtools"]), shown),
        ((mode == "on") & (seen == "devtools"), nw.lit("it claims cc_mode on, yet conf-compute says devtools")),
        (nw.col("_is_split"), nw.concat_str(nw.lit("the evidence disagrees: "), nw.col("found_cc_evidence"))),
        (is_other, nw.concat_str(claim, nw.lit("the attested hardware is "), nw.col("_hardware"))),
        (
            driver != nw.col("_driver"),
            nw.concat_str(
                nw.lit("it claims driver "), driver, nw.lit(", yet the attested driver is "), nw.col("_driver")
            ),
        ),
        (
            nw.col("attestation").is_in(["forged", "refused", "failed"]),
            nw.concat_str(nw.lit("an attestation token does not stand: "), nw.col("_finding")),
        ),
    )


def _join_count(before: str, count: str, after: str) -> nw.Expr:
    return nw.concat_str(nw.lit(before), nw.col(count).cast(nw.Int64).cast(nw.String), nw.lit(after))
