"""What a commit says of itself: an in-toto Statement v1 with SLSA provenance, and what is read from one again.

A partition is named `table/partition` and known by the content digest of its rows (`rowsSha256`, lake/digest.py); a
data file by its path and the SHA-256 of its bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lake.lineage.envelope import STATEMENT, parse_envelope

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake.lineage.envelope import Envelope
    from lake.lineage.notes import PublicKey

_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://slsa.dev/provenance/v1"
_BUILD = "urn:teetotal:partition:v1"
_INVENTORY = "urn:teetotal:inventory:v1"
ROWS = "rowsSha256"
BYTES = "sha256"
LANDING = "landing"
# The partition of a statement that speaks of all partitions of a table; no id holds an asterisk.
EVERY = "*"


@dataclass(frozen=True)
class Material:
    """Something that a partition was made from: its name, and the digest of its rows or of its bytes."""

    name: str
    digest: str
    algorithm: str = BYTES


@dataclass(frozen=True)
class Build:
    """How a table is made: its code, its policies and the software, whichever partition it is."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    policies: Sequence[Material] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Statement:
    """What was said of one partition, and by which key."""

    table: str
    partition: str
    content_sha256: str
    files: Mapping[str, str]
    materials: tuple[Material, ...]
    made_at: str
    note: str
    key_id: str

    @property
    def name(self) -> tuple[str, str]:
        """The table and the partition."""
        return self.table, self.partition


def name_partition(table: str, partition: str) -> str:
    """A partition as statements name it."""
    return f"{table}/{partition}"


def write_statement(
    table: str,
    partition: str,
    content_sha256: str,
    files: Mapping[str, str],
    materials: Sequence[Material],
    build: Build,
    parameters: Mapping[str, str],
) -> dict[str, Any]:
    """A statement of one partition: `files` are its data files below the lake with the digest of their bytes."""
    dependencies = sorted({*materials, *build.policies}, key=lambda one: (one.name, one.digest))
    return {
        "_type": _TYPE,
        "subject": [
            {"name": name_partition(table, partition), "digest": {ROWS: content_sha256}},
            *({"name": name, "digest": {BYTES: sha256}} for name, sha256 in sorted(files.items())),
        ],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD,
                "externalParameters": {"table": table, "partition": partition},
                "internalParameters": {**build.parameters, **parameters},
                "resolvedDependencies": [
                    {"name": one.name, "digest": {one.algorithm: one.digest}} for one in dependencies
                ],
            },
            "runDetails": {
                "builder": {"id": "urn:teetotal", "version": dict(build.versions)},
                "metadata": {"finishedOn": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")},
            },
        },
    }


def write_inventory(found: Mapping[str, str]) -> dict[str, Any]:
    """Partitions that were there when signing began, by name and rows: how they were made nobody says."""
    return {
        "_type": _TYPE,
        "subject": [{"name": name, "digest": {ROWS: rows}} for name, rows in sorted(found.items())],
        "predicateType": _PREDICATE,
        "predicate": {"buildDefinition": {"buildType": _INVENTORY}, "runDetails": {"builder": {"id": "urn:teetotal"}}},
    }


def parse_inventory(envelope: Envelope) -> dict[str, str] | None:
    """The partitions that were found when signing began; none where a statement is of something else."""
    try:
        loaded: Any = json.loads(envelope.payload)
        if envelope.kind != STATEMENT or loaded["predicate"]["buildDefinition"]["buildType"] != _INVENTORY:
            return None
        return {str(one["name"]): str(one["digest"][ROWS]) for one in loaded["subject"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def parse_statement(text: str | bytes) -> tuple[Envelope | None, Statement | None]:
    """An envelope and the statement in it; none where it is none. Whether its signature holds is another question."""
    envelope = parse_envelope(text)
    if envelope is None or envelope.kind != STATEMENT:
        return envelope, None
    try:
        loaded: Any = json.loads(envelope.payload)
        build = loaded["predicate"]["buildDefinition"]
        named, parameters = build["externalParameters"], build["internalParameters"]
        subject, *files = loaded["subject"]
        if (loaded["_type"], loaded["predicateType"], build["buildType"]) != (_TYPE, _PREDICATE, _BUILD) or subject[
            "name"
        ] != name_partition(named["table"], named["partition"]):
            return envelope, None
        return envelope, Statement(
            str(named["table"]),
            str(named["partition"]),
            str(subject["digest"][ROWS]),
            {str(one["name"]): str(one["digest"][BYTES]) for one in files},
            tuple(
                Material(str(one["name"]), str(digest), str(algorithm))
                for one in build["resolvedDependencies"]
                for algorithm, digest in one["digest"].items()
            ),
            str(loaded["predicate"]["runDetails"]["metadata"]["finishedOn"]),
            str(parameters.get("note", "")),
            envelope.key_id,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return envelope, None


def is_signed(envelope: Envelope, keys: Sequence[PublicKey]) -> bool:
    """Whether one of these keys has signed an envelope."""
    return any(key.key_id == envelope.key_id and envelope.is_signed_by(key) for key in keys)
