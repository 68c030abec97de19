"""Runs that grow: opened before their first file, added to file by file, and closed when the last one is there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError

from lake.cut_off import delete_object, list_objects, put_new
from lake.errors import EvidenceRejected
from lake.identity import MANIFEST, OPEN, slug
from lake.landing_copies import copying
from lake.landing_zone import describe_taken, put_file
from lake.locations import report_unreachable
from lake.regular_files import copy_file
from lake.sealed_files import make_sealer, seal_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lake.landing_zone import LandingZone
    from lake.regular_files import SourceFile
    from lake.sealed_files import Recipient


@dataclass(frozen=True)
class Added:
    """What became of files that were added to an open run."""

    new: tuple[str, ...]
    replaced: tuple[str, ...]


def open_run(
    zone: LandingZone,
    run_id: str,
    files: Mapping[str, SourceFile],
    manifest: str,
    recipient: Recipient | None = None,
) -> None:
    """Land a run that more files will come to: it is visible at once, with whatever files it has so far.

    With a recipient each file that is not sealed yet is sealed for it on its way, the manifest too.
    """
    slug(run_id)
    check_names(files)
    with report_unreachable(f"{zone.place}/{run_id} could not be written"):
        if not zone.place.is_local:
            _open_remotely(zone, run_id, seal_manifest(manifest, run_id, recipient))
            add_files(zone, run_id, files, recipient)
            return
        landing = zone.place.directory
        landing.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (landing / run_id).exists():
            raise describe_taken(run_id)
        zone.remove_abandoned()
        with copying(landing) as staged:
            for name, source in files.items():
                copy_file(source, staged / name, make_sealer(recipient, run_id, name))
            (staged / OPEN).touch(0o600)
            (staged / MANIFEST).touch(0o600)
            (staged / MANIFEST).write_bytes(seal_manifest(manifest, run_id, recipient))
            try:
                staged.rename(landing / run_id)
            except OSError:
                if (landing / run_id).exists():
                    raise describe_taken(run_id) from None
                raise


def add_files(
    zone: LandingZone, run_id: str, files: Mapping[str, SourceFile], recipient: Recipient | None = None
) -> Added:
    """Add files to an open run, each whole or not at all; one of a name that is there replaces it.

    With a recipient each one that is not sealed yet is sealed for it on its way.
    """
    require_open(zone, run_id)
    check_names(files)
    before = {file.name for file in zone.files(run_id)}
    with report_unreachable(f"{zone.place}/{run_id} could not be written"):
        if zone.place.is_local:
            with copying(zone.place.directory) as staged:
                for name, source in files.items():
                    copy_file(source, staged / name, make_sealer(recipient, run_id, name))
                    (staged / name).rename(zone.place.directory / run_id / name)
        else:
            for name, source in files.items():
                put_file(zone.place.store, run_id, name, source, recipient)
    return Added(tuple(sorted(files.keys() - before)), tuple(sorted(files.keys() & before)))


def close_run(zone: LandingZone, run_id: str) -> None:
    """Say that no further file of a run will come; what has come is on the disk before that."""
    require_open(zone, run_id)
    with report_unreachable(f"{zone.place}/{run_id}/{OPEN} could not be removed"):
        if zone.place.is_local:
            directory = zone.place.directory / run_id
            (directory / OPEN).unlink()
            _sync(directory)
        else:
            delete_object(zone.place.store, _name_marker(run_id))


def require_open(zone: LandingZone, run_id: str) -> None:
    """Refuse a run that is not there, or to which nothing can be added."""
    zone.manifest_etag(run_id)
    if not zone.is_open(run_id):
        raise EvidenceRejected(
            f"run {run_id} is not open: its files are complete",
            f"land them under another --run-id, or open it again: touch {zone.place}/{run_id}/{OPEN}",
        )


def check_names(names: Mapping[str, object]) -> None:
    """Refuse what cannot be the name of a landed file."""
    for name in names:
        if name.startswith(".") or name in {"", MANIFEST} or "/" in name or "\x00" in name:
            raise EvidenceRejected(f"{name!r} cannot be the name of a landed file", "use a plain file name")


def _open_remotely(zone: LandingZone, run_id: str, manifest: bytes) -> None:
    store = zone.place.store
    try:
        put_new(store, _name_marker(run_id), uuid4().bytes)  # the store decides who is first
    except AlreadyExistsError:
        raise describe_taken(run_id) from None
    if [item for item in list_objects(store, f"{run_id}/") if item["path"] != _name_marker(run_id)]:
        delete_object(store, _name_marker(run_id))
        raise describe_taken(run_id)
    obstore.put(store, f"{run_id}/{MANIFEST}", manifest)


def _name_marker(run_id: str) -> str:
    return f"{run_id}/{OPEN}"


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
