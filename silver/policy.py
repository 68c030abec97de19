"""What each regime promises at each boundary, read from `sealing_policy.toml`."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw

BOUNDARIES = ("host_to_gpu", "gpu_to_host", "gpu_to_gpu", "gpu_to_network")
SEALERS = ("none", "bounce_buffer", "copy_engine", "link_hardware", "software_hook")
CIPHER = "AES-GCM"
KEY_BITS = 256
_FILE = Path(__file__).with_name("sealing_policy.toml")


@dataclass(frozen=True)
class Promise:
    """What one regime promises at one boundary."""

    regime: str
    boundary: str
    must_seal: bool
    sealed_by: str | None
    except_collectives: tuple[str, ...]


class Policy:
    """The file as it is, and the questions that transforms ask of it."""

    def __init__(self, data: bytes) -> None:
        document: dict[str, Any] = tomllib.loads(data.decode())
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.message_overhead_bytes: int = document["aes_gcm"]["nonce_bytes"] + document["aes_gcm"]["tag_bytes"]
        ring, nonces = document["ring"], document["nonces"]
        self.ring_header_bytes: int = ring["header_bytes"]
        self.ring_nonce_bytes: int = ring["nonce_bytes"]
        self.ring_tag_bytes: int = ring["tag_bytes"]
        self.limit_bits: dict[str, int] = {
            "counted": ring["counted_limit_bits"],
            "random": nonces["random_limit_bits"],
            "unknown": nonces["unknown_limit_bits"],
        }
        self.messages_per_key: int = 1 << min(ring["own_limit_bits"], nonces["unknown_limit_bits"])
        self.most_seal_bytes_per_ns: int = document["seal"]["most_bytes_per_ns"]
        self.promises = tuple(
            Promise(
                entry["regime"],
                boundary,
                entry["must_seal"],
                entry.get("sealed_by"),
                tuple(entry.get("except_collectives", ())),
            )
            for entry in document["policy"]
            for boundary in entry["boundaries"]
        )

    def must_seal(self) -> nw.Expr:
        """Whether the crossing must be sealed; null where the run claims no regime."""
        found = nw.lit(None).cast(nw.Boolean)
        for promise in self.promises:
            is_exempt = nw.col("collective").is_in(promise.except_collectives).fill_null(False)
            answer = nw.when(is_exempt).then(nw.lit(False)).otherwise(nw.lit(promise.must_seal))
            found = nw.when(_applies(promise)).then(answer).otherwise(found)
        return found

    def is_exempt(self) -> nw.Expr:
        """Whether the crossing is one that its regime does not promise to seal though the boundary is one it seals."""
        found = nw.lit(False)
        for promise in self.promises:
            if promise.except_collectives:
                is_exempt = nw.col("collective").is_in(promise.except_collectives).fill_null(False)
                found = nw.when(_applies(promise) & is_exempt).then(nw.lit(True)).otherwise(found)
        return found

    def promised_sealer(self) -> nw.Expr:
        """What seals there; null where no regime is claimed or the regime leaves it to somebody else."""
        found = nw.lit(None).cast(nw.String)
        for promise in self.promises:
            found = nw.when(_applies(promise)).then(nw.lit(promise.sealed_by).cast(nw.String)).otherwise(found)
        return found


def _applies(promise: Promise) -> nw.Expr:
    return (nw.col("regime") == promise.regime) & (nw.col("boundary") == promise.boundary)


POLICY = Policy(_FILE.read_bytes())
