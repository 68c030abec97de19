"""One row per training run: what was claimed, what was found, and whether the two agree."""

from __future__ import annotations

import narwhals as nw

from bronze.manifest import CLAIMS
from lake.frames import Frame, flag, sentences, shaped
from lake.tables import RUN_ID, Table, boolean, int64, text
from silver.crossings import RELABELLING_REGIMES
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
AGREEMENTS = ("agrees", "contradicted", "unproven")

TABLE = Table(
    tier="silver",
    name="runs",
    grain="One row per training run.",
    key=("run_id",),
    indexed=("regime", "baseline", "repeat_of", "workload", "family"),
    columns=(
        RUN_ID,
        *CLAIMS,
        text("workload", "What must be equal for two runs to be a pair, as `field=value` parts.", nullable=True),
        text("family", "The same without world size and bucket cap: runs to be compared for scaling.", nullable=True),
        text("extra", "The manifest's `[extra]` table as JSON text.", nullable=True, sensitive=True, is_free_text=True),
        int64("found_world_size", "Ranks of the job, as the traces say.", nullable=True, minimum=1),
        text("found_backend", "Collective backend, as the traces say.", nullable=True),
        text("found_gpu", "GPU model, as the traces say.", nullable=True),
        int64("ranks_count", "Ranks that a trace has landed from.", minimum=0),
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
            "agreement",
            "agrees: the recording shows what the regime promises; contradicted: it shows the opposite; unproven: it "
            "shows neither.",
            one_of=AGREEMENTS,
        ),
        text("contradictions", "What speaks against the claim, as sentences.", nullable=True),
        text("conflicts", "Where manifest and files disagree, as sentences.", nullable=True),
    ),
)


def conform(runs: Frame, spans: Frame, steps: Frame, crossings: Frame, throughput: Frame) -> Frame:
    """Hold the claim against the recording: it agrees, is contradicted, or stays unproven."""
    found = runs
    logged = _counts(throughput, "found_periods_count", {})
    for counts in (_span_counts(spans), _step_counts(steps), _crossing_counts(crossings), logged):
        found = found.join(counts, on="run_id", how="left")
    counted = [name for name in TABLE.column_names if name.startswith("found_") and name.endswith("_count")]
    found = found.with_columns(nw.col(*counted, "_true_labels", "_hidden_labels", "_relabelled").fill_null(0))
    found = _contradicted(_keyed(found))
    is_seen = nw.col("found_gpu_spans_count") > 0
    return shaped(
        found.with_columns(
            gpu_evidence=nw.when(is_seen).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
            is_shipped_mode=nw.when(~nw.col("cc_mode").is_null()).then(nw.col("cc_mode") != "devtools"),
        ),
        TABLE,
    )


def _keyed(found: Frame) -> Frame:
    """The workload as text; a run that names no model can be nobody's twin."""
    told = {
        **{name: nw.col(name).cast(nw.String) for name in WORKLOAD},
        "gpu": nw.coalesce(nw.col("gpu"), nw.col("found_gpu")),
        "backend": nw.coalesce(nw.col("backend"), nw.col("found_backend")),
    }
    parts = [nw.concat_str(nw.lit(f"{name}="), value.fill_null("")) for name, value in told.items()]
    ranks = nw.coalesce(nw.col("found_world_size"), nw.col("world_size")).cast(nw.String).fill_null("")
    size = nw.concat_str(nw.lit("world_size="), ranks)
    cap = nw.concat_str(nw.lit("bucket_cap_mib="), _plainly(nw.col("bucket_cap_mib")))
    is_named = ~nw.col("model").is_null()
    family = nw.concat_str(*parts, separator="|")
    workload = nw.concat_str(*parts, size, cap, separator="|")
    return found.with_columns(family=nw.when(is_named).then(family), workload=nw.when(is_named).then(workload))


def _plainly(number: nw.Expr) -> nw.Expr:
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
    marked = rows.select("run_id", **{name: flag(condition) for name, condition in flags.items()})
    return marked.group_by("run_id").agg(
        nw.len().cast(nw.Int64).alias(total), *(nw.col(name).sum().cast(nw.Int64) for name in flags)
    )


def _contradicted(found: Frame) -> Frame:
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
            _told("it claims cc_off, yet ", "found_sealed_message_count", " messages were sealed by a software hook"),
        ),
        (
            is_off & (nw.col("_hidden_labels") > 0),
            _told(
                "it claims cc_off, yet ", "_hidden_labels", " copies are reported as CC does: on the device, Managed"
            ),
        ),
        (
            is_relabelling & (nw.col("_true_labels") > 0),
            _told("it claims CC, yet ", "_true_labels", " pinned copies bear their true label, which CC hides"),
        ),
        (
            is_hook & (nw.col("found_violations_count") > 0),
            _told("it claims sw_per_hop_aesgcm, yet ", "found_violations_count", " crossings were not sealed"),
        ),
    )
    proof = (
        (is_hook & (sealed > 0))
        | (is_relabelling & (nw.col("_relabelled") > 0))
        | (is_off & (nw.col("_true_labels") > 0))
    ).fill_null(False)
    found = found.with_columns(contradictions=sentences(*against))
    return found.with_columns(
        agreement=nw.when(~nw.col("contradictions").is_null())
        .then(nw.lit("contradicted"))
        .otherwise(nw.when(proof).then(nw.lit("agrees")).otherwise(nw.lit("unproven")))
    )


def _told(before: str, count: str, after: str) -> nw.Expr:
    return nw.concat_str(nw.lit(before), nw.col(count).cast(nw.Int64).cast(nw.String), nw.lit(after))
