"""What `run.toml` may say: the claims of a run, each with its meaning, checked field by field."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from datetime import date, time
from typing import Any

from lake.errors import EvidenceRejected, nearest
from lake.identity import MANIFEST, is_slug
from lake.tables import Column, Kind

SCHEMA = 1
REGIMES = (
    "cc_off",
    "hopper_spt_cc",
    "hopper_ppcie",
    "blackwell_mpt_nvle",
    "tee_io_tdisp",
    "sw_per_hop_aesgcm",
)
CC_MODES = ("off", "on", "devtools")


def _declare_claim(name: str, kind: Kind, meaning: str, **rules: Any) -> Column:
    return Column(name, kind, meaning, nullable=True, **rules)


CLAIMS = (
    _declare_claim("regime", Kind.TEXT, "How links are secured; results are never averaged over it.", one_of=REGIMES),
    _declare_claim("cc_mode", Kind.TEXT, "Confidential-computing mode of the GPU.", one_of=CC_MODES),
    _declare_claim("model", Kind.TEXT, "Model that was trained."),
    _declare_claim("parameters_count", Kind.INT64, "Trainable parameters.", minimum=1),
    _declare_claim("dtype", Kind.TEXT, "Number format of the training step."),
    _declare_claim("batch_size", Kind.INT64, "Samples per rank and step.", minimum=1),
    _declare_claim("sequence_length", Kind.INT64, "Tokens per sample.", minimum=1),
    _declare_claim("world_size", Kind.INT64, "Ranks of the job.", minimum=1),
    _declare_claim("nodes_count", Kind.INT64, "Hosts of the job.", minimum=1),
    _declare_claim("parallelism", Kind.TEXT, "How the work is split over ranks, for example ddp."),
    _declare_claim("backend", Kind.TEXT, "Collective backend, for example nccl or gloo."),
    _declare_claim("bucket_cap_mib", Kind.FLOAT64, "Cap of a gradient bucket in MiB.", minimum=0),
    _declare_claim("gpu", Kind.TEXT, "GPU model."),
    _declare_claim("driver_version", Kind.TEXT, "GPU driver."),
    _declare_claim("cuda_version", Kind.TEXT, "CUDA runtime."),
    _declare_claim("torch_version", Kind.TEXT, "PyTorch."),
    _declare_claim("nccl_version", Kind.TEXT, "NCCL."),
    _declare_claim("host_cpu", Kind.TEXT, "Host processor."),
    _declare_claim("warmup_steps_count", Kind.INT64, "Recorded steps at the start that are warm-up.", minimum=0),
    _declare_claim(
        "open_cycles_count",
        Kind.INT64,
        "Cycles of the profiler that count while the run is open, the last ones; once it is closed, all do.",
        minimum=1,
    ),
    _declare_claim(
        "recording_slowdown_ratio",
        Kind.FLOAT64,
        "Median recorded step over the median step without the profiler.",
        minimum=0,
    ),
    _declare_claim("baseline", Kind.TEXT, "Run id of the baseline, of any regime."),
    _declare_claim("repeat_of", Kind.TEXT, "Run id that this run repeats, unchanged and in a process of its own."),
    _declare_claim("clock_zone", Kind.TEXT, "Zone of clocks that name none, as nvidia-smi's: UTC, or as +02:00."),
    _declare_claim("attestation_nonce", Kind.TEXT, "Nonce that this run's attestation was asked with, in hexadecimal."),
    _declare_claim(
        "device_ueids",
        Kind.TEXT,
        "GPUs that trained, by the `ueid` of their attestation tokens, with commas between them.",
        sensitive=True,
    ),
    _declare_claim("recorded_at", Kind.TEXT, "When it was recorded, ISO 8601."),
    _declare_claim("host", Kind.TEXT, "Host name.", sensitive=True),
    _declare_claim("owner", Kind.TEXT, "Who ran it.", sensitive=True),
    _declare_claim("job", Kind.TEXT, "Job name or id.", sensitive=True),
    _declare_claim("note", Kind.TEXT, "Anything a reader should know.", sensitive=True, is_free_text=True),
)
_BY_NAME = {claim.name: claim for claim in CLAIMS}
_MOST_SHOWN = 120
_ZONE = re.compile(r"UTC|[+-](?:0[0-9]|1[0-4]):[0-5][0-9]")
_NONCE = re.compile(r"(?:[0-9A-Fa-f]{2}){16,}")
_RUN_IDS = {"baseline", "repeat_of"}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", list: "a list", dict: "a table"}
_EXPECTED = {Kind.TEXT: "a text", Kind.INT64: "a whole number", Kind.FLOAT64: "a number"}


@dataclass(frozen=True)
class Manifest:
    """A valid `run.toml`: its claims, and whatever else the recorder wanted kept (`[extra]`)."""

    claims: dict[str, str | int | float]
    extra: dict[str, Any]

    def to_toml(self) -> str:
        """The text of `run.toml`, in the order of the declaration."""
        lines = [f"schema = {SCHEMA}"]
        lines += [f"{name} = {_literal(self.claims[name])}" for name in _BY_NAME if name in self.claims]
        if self.extra:
            lines += ["", "[extra]"]
            lines += [f"{_literal(name)} = {_literal(value)}" for name, value in sorted(self.extra.items())]
        return "\n".join(lines) + "\n"


def parse(data: bytes, where: str) -> Manifest:
    """Read a manifest; every wrong field is named at once, with what was expected and the nearest right name."""
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise EvidenceRejected(f"{where} is not TOML: {_abbreviate(str(error))}", "see docs/manifest.md") from error
    schema = document.pop("schema", SCHEMA)
    extra = document.pop("extra", {})
    is_known = schema == SCHEMA and type(schema) is int
    faults = [] if is_known else [f"schema: expected {SCHEMA}, found {_abbreviate(schema)}"]
    if not isinstance(extra, dict):
        faults.append("extra: expected a table")
    for name, value in document.items():
        fault = _fault(name, value)
        if fault:
            faults.append(f"{name if is_slug(name) else _abbreviate(name)}: {fault}")
    if faults:
        raise EvidenceRejected(f"{where}: {'; '.join(faults)}", "see docs/manifest.md")
    claims = {name: float(value) if _BY_NAME[name].kind is Kind.FLOAT64 else value for name, value in document.items()}
    return Manifest(claims, extra)


def claim_from_text(name: str, value: str) -> str | int | float:
    """The value of a claim as a person types it after `--set name=`."""
    if name not in _BY_NAME:
        raise EvidenceRejected(f"{_abbreviate(name)} is not a field of {MANIFEST}", nearest(name, _BY_NAME))
    kind = _BY_NAME[name].kind
    try:
        return int(value) if kind is Kind.INT64 else float(value) if kind is Kind.FLOAT64 else value
    except ValueError:
        raise EvidenceRejected(f"{name}: expected {_EXPECTED[kind]}, found {_abbreviate(value)}") from None


def _fault(name: str, value: object) -> str | None:
    """What is wrong with a field, or nothing."""
    claim = _BY_NAME.get(name)
    if claim is None:
        return f"is not a field; {nearest(name, _BY_NAME)} (anything else may go under [extra])"
    types: dict[Kind, tuple[type, ...]] = {Kind.TEXT: (str,), Kind.INT64: (int,), Kind.FLOAT64: (int, float)}
    if isinstance(value, bool) or not isinstance(value, types[claim.kind]):
        found = _name_kind(value) if claim.sensitive else _abbreviate(value)
        return f"expected {_EXPECTED[claim.kind]}, found {found}"
    if claim.one_of and value not in claim.one_of:
        close = nearest(str(value)[:80], claim.one_of)
        return f"expected one of {', '.join(claim.one_of)}; found {_abbreviate(value)}; {close}"
    if isinstance(value, int | float):
        if claim.minimum is not None and value < claim.minimum:
            return f"expected at least {claim.minimum}, found {_abbreviate(value)}"
        if not -(1 << 63) <= value < 1 << 63:  # NaN is no such number either
            return f"expected a number that fits 64 bits, found {_abbreviate(value)}"
    if name == "clock_zone" and not _ZONE.fullmatch(str(value)):
        return f"expected UTC, or hours and minutes before or behind it as +02:00, found {_abbreviate(value)}"
    if name == "attestation_nonce" and not _NONCE.fullmatch(str(value)):
        return f"expected at least 16 bytes in hexadecimal, found {_abbreviate(value)}"
    if name in _RUN_IDS and not is_slug(str(value)):
        return f"expected a run id (letters, digits, '_', '.', '-'), found {_abbreviate(value)}"
    return None


def _name_kind(value: object) -> str:
    """What a value is, where the value itself must not stand in a message: messages are kept as records."""
    return _KINDS.get(type(value), "another kind of value")


def _abbreviate(value: object) -> str:
    """A value as one short line, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # a number with more digits than Python prints
        text = "a number of very many digits"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _literal(value: object) -> str:
    """A TOML literal."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)} = {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, date | time):
        return value.isoformat()
    text = str(value).encode("utf-8", "replace").decode("utf-8")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
