"""`teetotal land`: which files make up a run, what it is called, and what its files say of it."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bronze import runs
from bronze.land import peek
from bronze.manifest import CLAIMS, REGIMES, Manifest, claim_from_text, parse
from lake.errors import EvidenceRejected, nearest
from lake.identity import MANIFEST, is_slug, slug
from lake.keyring_guard import KeyringGuard
from lake.locations import report_unreachable
from lake.open_runs import add_files, open_run
from lake.regular_files import Tree, open_named
from lake.sealed_files import MAGIC, find_recipient, is_sealed, parse_recipient, require_place
from silver.cc_evidence import infer_regime

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from bronze.envelope import Envelope
    from bronze.land import Peek
    from bronze.limits import Limits
    from lake.landing_zone import LandingZone
    from lake.open_runs import Added
    from lake.regular_files import SourceFile
    from lake.sealed_files import LandingSeals, Recipient
    from lake.store import Lake
    from pipelines.settings import Settings

_SUFFIXES = re.compile(r"(\.(json|gz|zst|zstd|pt|trace|chrome|csv|log|txt|sqlite|jsonl))+$", re.IGNORECASE)
_RANK = re.compile(r"[-_.]?(?:rank|worker|r)[-_]?$", re.IGNORECASE)
_NOTHING_READ = "none of these files is in a format that teetotal reads; docs/landing.md lists them"
_MOST_NAMES = 3
_MOST_MANIFEST_BYTES = 1 << 20


@dataclass(frozen=True)
class Landed:
    """A run in the landing zone, and what whoever landed it should know."""

    run_id: str
    manifest: Manifest
    files: int
    notes: tuple[str, ...] = ()
    sealed_for: str | None = None


def land_files(
    zone: LandingZone,
    paths: Sequence[Path],
    limits: Limits,
    *,
    run_id: str | None,
    given: Mapping[str, str],
    is_open: bool = False,
    recipient: Recipient | None = None,
) -> Landed:
    """Put files into the landing zone as one run; what is typed wins over its `run.toml`, which wins over its files."""
    # Directories stay open until all is copied: one that is swapped meanwhile is not the one that was looked at.
    with ExitStack() as held:
        files = _name_files(paths, held)
        own = files.pop(MANIFEST, None)
        if not files and not (is_open and run_id):
            raise EvidenceRejected(
                f"no file to land in {', '.join(map(str, paths))}", "name files, or a directory of files"
            )
        name = slug(run_id) if run_id else _name_of(paths, files)
        recipient = _require_sealing(zone.seals, [*files.values(), *([own] if own else [])], recipient)
        recorded = _read_manifest(own, name, zone.seals) if own else Manifest({}, {})
        typed = {key: claim_from_text(key, value) for key, value in given.items()}
        seals = replace(zone.seals, must_be_sealed=False)
        peeks = {key: _peek(name, key, file, limits, seals) for key, file in files.items()}
        left_out = _leave_out(peeks, {path.name for path in paths if not path.is_dir()})
        files = {key: file for key, file in files.items() if key not in left_out}
        peeks = {key: one for key, one in peeks.items() if key not in left_out}
        if left_out and not files:
            raise EvidenceRejected(_NOTHING_READ, "name a file to land it all the same")
        claims = {**_merge_envelopes(peeks.values()), **recorded.claims, **typed}
        notes = _name_unread(peeks)
        if left_out:
            notes.append(f"left out, as no telemetry: {_list_some(left_out)}; name a file to land it all the same")
        notes += _name_misplaced(recorded.extra)
        notes += _add_regime(claims, peeks)
        text = Manifest(claims, recorded.extra).to_toml()
        manifest = parse(text.encode(), f"the manifest of {name}")
        if is_open:
            open_run(zone, name, files, text, recipient)
        else:
            zone.land(name, files, text, recipient)
        sealed_for = None if recipient is None else recipient.recipient_id
        return Landed(name, manifest, len(files), tuple(notes), sealed_for)


def append_files(zone: LandingZone, run_id: str, paths: Sequence[Path], recipient: Recipient | None = None) -> Added:
    """Add files to an open run; its manifest stays as it is. What is added to a sealed run is sealed."""
    with ExitStack() as held:
        files = _name_files(paths, held)
        if files.pop(MANIFEST, None) is not None:
            raise EvidenceRejected(
                f"{MANIFEST} is among the files, and run {run_id} has one already",
                "leave it out; what the run claims is changed in its own directory",
            )
        if recipient is None and is_sealed(zone.landed_manifest(slug(run_id))) and zone.seals.keyring is not None:
            recipient = find_recipient(zone.seals.keyring())
        recipient = _require_sealing(zone.seals, files.values(), recipient)
        for name, file in files.items():
            _require_place(file, run_id, name)
        return add_files(zone, run_id, files, recipient)


def _read_manifest(own: SourceFile, run_id: str, seals: LandingSeals) -> Manifest:
    """The manifest that lies beside the files, opened where it is sealed."""
    with report_unreachable(f"{own.where} could not be read"), own.open() as file:
        text = file.read(_MOST_MANIFEST_BYTES + 1)
    if is_sealed(text):
        text = b"".join(seals.open_blocks(BytesIO(text), run_id, MANIFEST))
    if len(text) > _MOST_MANIFEST_BYTES:
        raise EvidenceRejected(f"{own.where} has more than {_MOST_MANIFEST_BYTES:,} bytes, which no manifest has")
    return parse(text, own.where)


def _name_files(paths: Sequence[Path], held: ExitStack) -> dict[str, SourceFile]:
    """All files under the paths, each with the name it will have in the landing zone."""
    found: dict[str, SourceFile] = {}
    for path in paths:
        try:
            is_there = path.exists()
        except OSError as error:  # a name that no file system takes
            raise EvidenceRejected(f"{str(path)[:160]} cannot be a path: {error.strerror}", "check the path") from error
        if not is_there:
            raise EvidenceRejected(f"{path} does not exist", "check the path")
        with report_unreachable(f"{path} could not be read"):
            files = _list_files(path, held)
        for name, file in files.items():
            if name in found:
                name = f"{Path(file.where).parent.name}-{name}"  # noqa: PLW2901 - the same name from two folders
            if name in found:
                raise EvidenceRejected(
                    f"{file.where} and {found[name].where} would both be called {name}", "rename one of them"
                )
            found[name] = file
    return found


def _list_files(path: Path, held: ExitStack) -> dict[str, SourceFile]:
    if not path.is_dir():
        return {path.name: open_named(path)}
    found: dict[str, SourceFile] = {}
    for parts, file in held.enter_context(Tree(path)).files().items():
        name = "-".join(parts)
        if name in found:
            raise EvidenceRejected(
                f"{file.where} and {found[name].where} would both be called {name}", "rename one of them"
            )
        found[name] = file
    return found


def _name_of(paths: Sequence[Path], files: Collection[str]) -> str:
    """A run id from the one directory, or from what the file names have in common before the rank."""
    if len(paths) == 1 and paths[0].is_dir():
        name = paths[0].resolve().name
    else:
        stems = [_SUFFIXES.sub("", name) for name in files]
        first, last = min(stems), max(stems)
        same = next((index for index, char in enumerate(first) if last[index : index + 1] != char), len(first))
        common = first[:same]
        name = (_RANK.sub("", common.rstrip("0123456789")) if len(stems) > 1 else common).rstrip("-_.")
    if not is_slug(name):
        raise EvidenceRejected(f"the files' names give no run id ({name!r})", "choose one with --run-id")
    return name


def warn_of_unknown(lake: Lake, zone: LandingZone, landed: Landed) -> list[str]:
    """One sentence for each run that the manifest names and that neither the landing zone nor the lake knows."""
    named = {
        key: str(landed.manifest.claims[key]) for key in ("baseline", "repeat_of") if key in landed.manifest.claims
    }
    known = {*zone.run_ids()[0], *lake.snapshot(runs.TABLE).run_ids} - {landed.run_id} if named else set()
    return [
        f"{key} {run_id!r} is no run of {zone.place} or {lake.place} yet: land it too, or was another one meant? "
        f"({nearest(run_id, known)})"
        for key, run_id in named.items()
        if run_id not in known
    ]


def choose_recipient(chosen: Settings, *, seal: bool, seal_for: Path | None) -> Recipient | None:
    """The key that files are sealed for: none, the lake's own, or one from a file."""
    if seal_for is not None:
        with report_unreachable(f"{seal_for} could not be read"), open_named(seal_for).open() as file:
            return parse_recipient(file.read(_MOST_MANIFEST_BYTES), str(seal_for))
    return find_recipient(KeyringGuard(chosen.lake, chosen.keyring).peek()) if seal else None


def _require_sealing(seals: LandingSeals, files: Iterable[SourceFile], recipient: Recipient | None) -> Recipient | None:
    """Whom to seal for: a run of which a part is sealed lands sealed; one that is not may be refused."""
    if recipient is not None:
        return recipient
    if any(_is_sealed(file) for file in files):
        return None if seals.keyring is None else find_recipient(seals.keyring())
    if seals.must_be_sealed:
        raise EvidenceRejected(
            "this lake accepts sealed files alone (TEETOTAL_ACCEPT_ONLY_SEALED)", "land them with --seal"
        )
    return None


def _is_sealed(file: SourceFile) -> bool:
    with report_unreachable(f"{file.where} could not be read"), file.open() as opened:
        return is_sealed(opened.read(len(MAGIC)))


def _require_place(file: SourceFile, run_id: str, name: str) -> bool:
    """Whether a file is sealed; an error that names it where it is sealed for another run or name."""
    with report_unreachable(f"{file.where} could not be read"), file.open() as opened:
        try:
            return require_place(opened, run_id, name)
        except EvidenceRejected as error:
            raise EvidenceRejected(f"{file.where}: {error.what}", error.hint) from error


def _peek(run_id: str, name: str, file: SourceFile, limits: Limits, seals: LandingSeals) -> Peek:
    """Look at a file as it will land; one that is sealed already must be sealed for this run, name and lake."""

    def blocks() -> Iterator[bytes]:
        with file.open() as opened:
            yield from seals.open_blocks(opened, run_id, name)

    with report_unreachable(f"{file.where} could not be read"):
        was_sealed = _require_place(file, run_id, name)
        found = peek(blocks, name, limits)
    # Whoever lands it need not be able to open it.
    return replace(found, format="sealed") if was_sealed and found.format is None else found


def _leave_out(peeks: Mapping[str, Peek], named: Collection[str]) -> list[str]:
    """Files of a directory that no reader takes and that are no text, as checkpoints of a model are.

    Where a recorder signed which files the run has, all are landed.
    """
    if any(one.format == "recording_statement" for one in peeks.values()):
        return []
    return [name for name, one in peeks.items() if one.format is None and name not in named and b"\0" in one.head]


def _name_unread(peeks: Mapping[str, Peek]) -> list[str]:
    """Which files will be rejected, because no reader takes them."""
    unread = [name for name, one in peeks.items() if one.format is None]
    if not unread:
        return []
    if len(unread) == len(peeks):
        return [_NOTHING_READ]
    return [f"in no format that teetotal reads: {_list_some(unread)}; docs/landing.md lists what is read"]


def _list_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _name_misplaced(extra: Mapping[str, Any]) -> list[str]:
    """Fields that stand under `[extra]`, as everything does that is added at the end of a `run.toml` that has one."""
    names = [claim.name for claim in CLAIMS if claim.name in extra]
    if not names:
        return []
    verbs = "is kept and claims" if len(names) == 1 else "are kept and claim"
    return [f"{', '.join(names)} under [extra] {verbs} nothing; a field of {MANIFEST} stands above [extra]"]


def _add_regime(claims: dict[str, Any], peeks: Mapping[str, Peek]) -> list[str]:
    """Fill in the regime from what `nvidia-smi conf-compute -q` said, where nobody claims one; gives what to tell."""
    states = {name: one for name, one in peeks.items() if one.format == "conf_compute"}
    if "regime" in claims or not states:
        return []
    readings: dict[str, set[str]] = {}
    for one in states.values():
        for line in one.head.decode("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            readings.setdefault(name.strip(), set()).add(value.strip())
    regime = infer_regime(readings, claims.get("gpu"))
    where = ", ".join(sorted(states))
    if regime is None:
        return [f"the regime is unknown: {where} does not settle it; name it with --regime ({', '.join(REGIMES)})"]
    claims["regime"] = regime
    return [f"regime {regime} is taken from {where}; --regime names another, for example where software seals"]


def _merge_envelopes(peeks: Iterable[Peek]) -> dict[str, Any]:
    """What the traces say of themselves before their first event."""
    found: dict[str, Any] = {}
    for one in peeks:
        for name, value in _merge_claims(one.envelope).items():
            found.setdefault(name, value)
    return found


def _merge_claims(envelope: Envelope) -> dict[str, Any]:
    distributed = envelope.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    devices = envelope.get("deviceProperties")
    device = devices[0] if isinstance(devices, list) and devices and isinstance(devices[0], dict) else {}
    runtime = envelope.get("cuda_runtime_version")
    said = {
        "world_size": distributed.get("world_size"),
        "backend": distributed.get("backend"),
        "nccl_version": distributed.get("nccl_version"),
        "gpu": device.get("name"),
        "cuda_version": f"{runtime // 1000}.{runtime % 1000 // 10}" if isinstance(runtime, int) else None,
    }
    kinds = {"world_size": int}
    return {name: value for name, value in said.items() if isinstance(value, kinds.get(name, str)) and value}
