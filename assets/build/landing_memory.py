"""What earlier landings of an open run have read: its data files are taken as they are while their source stays."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from bronze import attestations, land, nsys_report, trace_events, unreadable
from bronze.envelope import Envelope
from bronze.file_report import FileReport
from lake.executor_stage import RecalledFile
from lake.regular_files import is_at_rest
from lake.staging import Staged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lake.attestation_keys import AttestationKeys
    from lake.landed_files import LandedFile
    from lake.sealed_files import LandingSeals
    from lake.staging import Stage
    from lake.store import Lake

# Of a report, all that its bytes alone decide; name, size, rank and data files are told beside it.
_KEPT = (
    *("content_sha256", "format", "outcome", "reason", "inflated_bytes", "events_count", "rows_count", "passed_count"),
    *("unreadable_count", "residue_count", "ignored_tables", "is_complete", "base_ns", "first_ns", "last_ns"),
    "process_id",
)
_EVENTS, _UNREADABLE = trace_events.TABLE.name, unreadable.TABLE.name


class _Filed(Protocol):
    """A data file that has its name."""

    staged: Staged | None


@dataclass
class LandingMemory:
    """The note on one run, and the data files that the lake holds of it now."""

    note: Mapping[str, Any]
    stages: Mapping[str, Stage]
    sizes: Mapping[str, Mapping[str, int]]
    keys_sha256: str | None

    def find_digest(self, source: land.Source) -> str | None:
        """The digest of a file that has the mark under which it was read."""
        etag, sha256 = self.note.get("files", {}).get(source.name, ("", None))
        return sha256 if etag and etag == source.etag else None

    def is_held_back(self, source: land.Source) -> bool:
        """Whether a file has the mark under which it was found unfinished."""
        etag = self.note.get("held_back", {}).get(source.name, "")
        return bool(etag) and etag == source.etag

    def recall(self, sha256: str, source: land.Source) -> FileReport | None:
        """The report of these bytes, where the lake still holds all data files of their rows."""
        found = self.note.get("contents", {}).get(sha256)
        if found is None or found["is_report"] != nsys_report.is_report(source.name):
            return None
        units: dict[str, Staged | None] = {
            name: None if unit is None else Staged(**unit, spooled="") for name, unit in found["units"].items()
        }
        if attestations.TABLE.name in units and self.note.get("keys_sha256") != self.keys_sha256:
            return None  # verified with other keys
        for name, unit in units.items():
            if unit is not None and self.sizes[name].get(unit.path) != unit.bytes:
                return None
        files = {name: RecalledFile(self.stages[name], unit) for name, unit in units.items()}
        return FileReport(
            source.name,
            source.size_bytes,
            sha256=sha256,
            **{name: found["report"][name] for name in _KEPT},
            envelope=Envelope.restore((key, value) for key, value in found["envelope"]),
            attestation_ids=frozenset(found["attestation_ids"]),
            events=files.pop(_EVENTS, None),
            unreadable=files.pop(_UNREADABLE, None),
            records=files,
        )


def recall_landing(
    lake: Lake,
    run_id: str,
    stages: Mapping[str, Stage],
    keys: AttestationKeys,
    seals: LandingSeals,
    note: Mapping[str, Any] | None,
) -> land.Memory:
    """The memory of a run from its note; none where the note is of other readers or other rules, or there is none."""
    if not note or (note.get("version"), note.get("seals")) != (land.version(), _describe_seals(seals)):
        return land.NO_MEMORY
    sizes = {}
    for name, stage in stages.items():
        snapshot = lake.snapshot(stage.table)
        damaged = snapshot.damages(run_id)
        found = snapshot.sizes(run_id)
        sizes[name] = {path: size for path, size in found.items() if path not in damaged}
    return LandingMemory(note, stages, sizes, keys.sha256)


def describe_landing(
    landed: land.Landed, sources: Sequence[LandedFile], keys: AttestationKeys, seals: LandingSeals
) -> dict[str, Any]:
    """The note of a landing that was committed: which bytes lie under which name, and what became of each."""
    digests = {report.name: report.sha256 for report in landed.files if report.sha256 is not None}
    etags = {source.name: source.etag for source in sources if _is_told_by_mark(source)}
    return {
        "version": land.version(),
        "seals": _describe_seals(seals),
        "keys_sha256": keys.sha256,
        "files": {name: (etags.get(name, ""), sha256) for name, sha256 in digests.items()},
        "held_back": {name: etags.get(name, "") for name in landed.held_back},
        "contents": {
            report.sha256: _describe_report(report)
            for report in landed.files
            if report.sha256 is not None and report.outcome != "merged"
        },
    }


def _describe_seals(seals: LandingSeals) -> list[bool]:
    """What is accepted, and how bronze is written: under other rules every file is read again."""
    return [seals.must_be_sealed, seals.seals_bronze]


def list_held_back(note: Mapping[str, Any] | None) -> list[str]:
    """The files of an open run that were held back when it was last read."""
    return sorted((note or {}).get("held_back", {}))


def _is_told_by_mark(source: LandedFile) -> bool:
    """Whether a change of a file since it was listed would show in its mark: not where it was just written then."""
    return not source.place.is_local or is_at_rest(source.etag, source.listed_ns)


def _describe_report(report: FileReport) -> dict[str, Any]:
    named = [(_EVENTS, report.events), (_UNREADABLE, report.unreadable), *report.records.items()]
    return {
        "report": {name: getattr(report, name) for name in _KEPT} | {"ignored_tables": dict(report.ignored_tables)},
        "envelope": report.envelope.members,
        "attestation_ids": sorted(report.attestation_ids),
        "is_report": nsys_report.is_report(report.name),
        "units": dict(_describe_units((name, cast("_Filed", unit)) for name, unit in named if unit is not None)),
    }


def _describe_units(units: Iterable[tuple[str, _Filed]]) -> Iterable[tuple[str, dict[str, Any] | None]]:
    for name, unit in units:
        described = None if unit.staged is None else asdict(unit.staged)
        if described is not None:
            del described["spooled"]
        yield name, described
