"""The landing zone: `<landing>/<run_id>/` with a run's files, complete once `run.toml` is there."""

from __future__ import annotations

import os
import shutil
import stat
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError

from lake.cut_off import delete_object, fetch_object, list_objects, put_new, repeat_cut_off, repeat_read
from lake.errors import EvidenceRejected
from lake.identity import MANIFEST, OPEN, is_slug, slug
from lake.landed_files import LandedFile, open_landed
from lake.landing_copies import copying, remove_abandoned
from lake.locations import report_unreachable
from lake.regular_files import SourceFile, copy_file, mark_of, open_named, read_blocks
from lake.sealed_files import LandingSeals, make_sealer, seal_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore.store import ObjectStore

    from lake.locations import Location
    from lake.sealed_files import Recipient

_CLAIM = ".landing"


class LandingMarks(NamedTuple):
    """What stands for a run's landing directory: its manifest, every other file, and whether more is to come."""

    manifest_etag: str
    listing: list[tuple[str, str]]
    is_open: bool


class LandingZone:
    """All runs under one landing place."""

    def __init__(self, place: Location, seals: LandingSeals | None = None) -> None:
        self.place = place
        self.seals = seals or LandingSeals()

    def run_ids(self) -> tuple[list[str], list[str]]:
        """The runs that are complete, and the directories that are not (no manifest yet, or no valid id)."""
        with report_unreachable(f"{self.place} cannot be listed"):
            names = self.place.list_directories()
            complete = [name for name in names if is_slug(name) and self._has_manifest(name)]
        return complete, sorted(set(names) - set(complete))

    def manifest(self, run_id: str) -> bytes:
        """The text of a run's manifest, opened where it landed sealed."""
        return self.seals.open_manifest(self.landed_manifest(run_id), run_id)

    def landed_manifest(self, run_id: str) -> bytes:
        """The bytes of a run's manifest as they landed: what a statement names takes no key to compare."""
        self._require(run_id)
        with report_unreachable(f"{self.place}/{run_id}/{MANIFEST} could not be read"):
            if not self.place.is_local:
                return fetch_object(self.place.store, f"{run_id}/{MANIFEST}")
            with open_landed(self.place.directory, run_id, MANIFEST) as file:
                return file.read()

    def files(self, run_id: str) -> list[LandedFile]:
        """All entries of a run's directory but the manifest; what may not be read says why."""
        self._require(run_id)
        with report_unreachable(f"{self.place}/{run_id} cannot be listed"):
            entries = list(self._local_files(run_id) if self.place.is_local else self._remote_files(run_id))
        return sorted((one for one in entries if one.name not in {MANIFEST, OPEN}), key=lambda entry: entry.name)

    def is_open(self, run_id: str) -> bool:
        """Whether more files of a run are to come: its directory holds the file `.open`."""
        slug(run_id)
        with report_unreachable(f"{self.place}/{run_id} could not be read"):
            if self.place.is_local:
                return (self.place.directory / run_id / OPEN).is_file()
            try:
                obstore.head(self.place.store, f"{run_id}/{OPEN}")
            except FileNotFoundError:
                return False
            return True

    def list_marks(self, run_id: str) -> LandingMarks:
        """What stands for a run's directory as it is."""
        found = self._list_plain_files(run_id) if self.place.is_local else None
        return self._mark_files(run_id) if found is None else found

    def manifest_etag(self, run_id: str) -> str:
        """What changes whenever the manifest does."""
        self._require(run_id)
        with report_unreachable(f"{self.place}/{run_id}/{MANIFEST} could not be read"):
            if self.place.is_local:
                return _write_etag((self.place.directory / run_id / MANIFEST).stat())
            return str(obstore.head(self.place.store, f"{run_id}/{MANIFEST}")["e_tag"])

    def land(
        self,
        run_id: str,
        files: Mapping[str, Path | SourceFile],
        manifest: str,
        recipient: Recipient | None = None,
    ) -> None:
        """Copy a run's files in under the names given; it becomes visible all at once, the manifest last.

        With a recipient each file is sealed for it on its way, the manifest too.
        """
        slug(run_id)
        sources = {name: open_named(file) if isinstance(file, Path) else file for name, file in files.items()}
        for name in files:
            if name in {"", ".", "..", MANIFEST, OPEN, _CLAIM} or "/" in name or "\x00" in name:
                raise EvidenceRejected(f"{name!r} cannot be the name of a landed file", "use a plain file name")
        with report_unreachable(f"{self.place}/{run_id} could not be written"):
            if self.place.is_local:
                self._land_locally(run_id, sources, manifest, recipient)
            else:
                self._land_remotely(run_id, sources, manifest, recipient)

    def listed_once(self) -> LandingZone:
        """The same zone, in which every directory is listed at most once: what one launch looks at."""
        return _ListedZone(self)

    def relist(self) -> LandingZone:
        """The zone as it is now."""
        return self

    def remove_abandoned(self) -> list[str]:
        """Remove the copies that landings left when they were killed, and name them."""
        return remove_abandoned(self.place.directory) if self.place.is_local else []

    def remove(self, run_id: str) -> tuple[int, int]:
        """Remove a run's directory, the manifest first, so that nobody takes what is left for a run; files, bytes."""
        slug(run_id)
        with report_unreachable(f"{self.place}/{run_id} could not be removed"):
            if not self.place.is_local:
                return _remove_objects(self.place, run_id)
            directory = self.place.directory / run_id
            if directory.is_symlink():
                directory.unlink()  # what it leads to is not ours
            if not directory.is_dir():
                return 0, 0
            sizes = [path.lstat().st_size for path in directory.rglob("*") if not path.is_dir()]
            (directory / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(directory)
            return len(sizes), sum(sizes)

    # -- inside ------------------------------------------------------------------------------------------

    def _require(self, run_id: str) -> None:
        with report_unreachable(f"{self.place}/{slug(run_id)} could not be read"):
            if self._has_manifest(run_id):
                return
        if self.place.is_local and (self.place.directory / run_id / MANIFEST).is_file():
            raise EvidenceRejected(
                f"{self.place}/{run_id}/{MANIFEST} leads out of the landing zone, which is never followed",
                "copy the run's files in, or land them with `teetotal land`",
            )
        complete, _ = self.run_ids()
        raise EvidenceRejected(
            f"{self.place}/{run_id} has no {MANIFEST}",
            f"land it with `teetotal land`; complete runs here: {', '.join(complete) or 'none'}",
        )

    def _has_manifest(self, run_id: str) -> bool:
        if self.place.is_local:
            run = f"{self.place.directory}/{run_id}"  # as text: there may be many thousands
            try:
                found = os.lstat(f"{run}/{MANIFEST}")
            except OSError:
                return False
            if stat.S_ISREG(found.st_mode) and not os.path.islink(run):  # noqa: PTH114
                return True
            # A link that leads out of the landing zone, for the manifest or the whole run, is never followed.
            manifest = Path(run, MANIFEST)
            return manifest.is_file() and manifest.resolve().is_relative_to(self.place.directory.resolve())
        try:
            obstore.head(self.place.store, f"{run_id}/{MANIFEST}")
        except FileNotFoundError:
            return False
        return True

    def _mark_files(self, run_id: str) -> LandingMarks:
        listing = [(entry.name, entry.problem or entry.etag) for entry in self.files(run_id)]
        return LandingMarks(self.manifest_etag(run_id), listing, self.is_open(run_id))

    def _list_plain_files(self, run_id: str) -> LandingMarks | None:
        """The marks of a directory that holds plain files alone, from one listing; none where it holds more."""
        etag, listing, is_open = None, [], False
        directory = f"{self.place.directory}/{slug(run_id)}"
        try:
            if os.path.islink(directory):  # noqa: PTH114 - as text: there may be many thousands
                return None
            with os.scandir(directory) as entries:
                for entry in entries:
                    if not entry.is_file(follow_symlinks=False) or not entry.name.isascii():
                        return None
                    if entry.name == MANIFEST:
                        etag = _write_etag(entry.stat())
                    elif entry.name == OPEN:
                        is_open = True
                    else:
                        listing.append((entry.name, mark_of(entry.stat())))
        except OSError:  # it changes under our eyes, or may not be read: looked at file by file, that is told
            return None
        return None if etag is None else LandingMarks(etag, sorted(listing), is_open)

    def _local_files(self, run_id: str) -> Iterator[LandedFile]:
        listed_ns = time.time_ns()
        directory = self.place.directory / run_id
        is_inside = not directory.is_symlink()
        with os.scandir(directory) as entries:
            listed = list(entries)
        for entry in listed:
            name = entry.name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            try:
                # Only a link leads elsewhere, and to follow one takes longer than all the rest.
                target = None if is_inside and not entry.is_symlink() else Path(entry.path).resolve(strict=True)
                facts = entry.stat() if target is None else target.stat()
            except (OSError, RuntimeError) as error:  # a link to nothing, or to itself
                if not os.path.lexists(entry.path):
                    continue  # renamed or removed since it was listed
                why = error.strerror if isinstance(error, OSError) else "it leads back to itself"
                yield LandedFile(self.place, run_id, name, None, "", f"it leads nowhere: {why}")
                continue
            problem = None
            if target is not None and not target.is_relative_to(self.place.directory.resolve()):
                problem = "it is a link out of the landing zone, which is never followed"
            elif stat.S_ISDIR(facts.st_mode):
                problem = "it is a directory; a run's files lie side by side"
            elif not stat.S_ISREG(facts.st_mode):
                problem = "it is not a regular file"
            elif name != entry.name:
                problem = "its name is not valid UTF-8; rename it"
            size = None if problem else facts.st_size
            yield LandedFile(self.place, run_id, name, size, mark_of(facts), problem, listed_ns, self.seals)

    def _remote_files(self, run_id: str) -> Iterator[LandedFile]:
        found = repeat_read(lambda: obstore.list_with_delimiter(self.place.store, f"{run_id}/"))
        for prefix in found["common_prefixes"]:
            name = prefix.rstrip("/").rpartition("/")[2]
            yield LandedFile(self.place, run_id, name, None, "", "it is a directory; a run's files lie side by side")
        for item in found["objects"]:
            name = item["path"].rpartition("/")[2]
            if name == _CLAIM:
                continue
            yield LandedFile(self.place, run_id, name, item["size"], str(item["e_tag"]), seals=self.seals)

    def _land_locally(
        self, run_id: str, files: Mapping[str, SourceFile], manifest: str, recipient: Recipient | None
    ) -> None:
        target = self.place.directory / run_id
        self.place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if target.exists():
            raise describe_taken(run_id)
        self.remove_abandoned()
        # A dot directory is no run: what a crash leaves there is never taken for one.
        with copying(self.place.directory) as staged:
            for name, source in files.items():
                copy_file(source, staged / name, make_sealer(recipient, run_id, name))
            own = staged / MANIFEST
            own.touch(0o600)
            own.write_bytes(seal_manifest(manifest, run_id, recipient))
            try:
                staged.rename(target)
            except OSError:
                if target.exists():
                    raise describe_taken(run_id) from None
                raise

    def _land_remotely(
        self, run_id: str, files: Mapping[str, SourceFile], manifest: str, recipient: Recipient | None
    ) -> None:
        store, claim = self.place.store, f"{run_id}/{_CLAIM}"
        try:
            # One landing at a time; the store decides who is first, and each tells its own claim from others'.
            put_new(store, claim, uuid4().hex.encode())
        except AlreadyExistsError:
            raise EvidenceRejected(
                f"run {run_id} is being landed, or a landing of it was killed",
                f"wait for it to end; where none is at work: `teetotal forget {run_id}`, then land it again",
            ) from None
        try:
            if [item for item in list_objects(store, f"{run_id}/") if item["path"] != claim]:
                raise describe_taken(run_id)
            for name, source in files.items():
                repeat_cut_off(partial(put_file, store, run_id, name, source, recipient))
            obstore.put(store, f"{run_id}/{MANIFEST}", seal_manifest(manifest, run_id, recipient))
        finally:
            delete_object(store, claim)


class _ListedZone(LandingZone):
    """A landing zone as it was when each directory was first asked for."""

    def __init__(self, zone: LandingZone) -> None:
        super().__init__(zone.place, zone.seals)
        self._zone = zone
        self._run_ids: tuple[list[str], list[str]] | None = None
        self._files: dict[str, list[LandedFile]] = {}
        self._etags: dict[str, str] = {}
        self._open: dict[str, bool] = {}
        self._marks: dict[str, LandingMarks] = {}

    def run_ids(self) -> tuple[list[str], list[str]]:
        if self._run_ids is None:
            self._run_ids = self._zone.run_ids()
        return self._run_ids

    def files(self, run_id: str) -> list[LandedFile]:
        if run_id not in self._files:
            self._files[run_id] = self._zone.files(run_id)
        return self._files[run_id]

    def manifest_etag(self, run_id: str) -> str:
        if run_id not in self._etags:
            self._etags[run_id] = self._zone.manifest_etag(run_id)
        return self._etags[run_id]

    def list_marks(self, run_id: str) -> LandingMarks:
        # Of the files as they were listed to be read, or else of a listing before that: never of a later one.
        if not self.place.is_local or run_id in self._files:
            return self._mark_files(run_id)
        if run_id not in self._marks:
            self._marks[run_id] = self._zone.list_marks(run_id)
            self._open.setdefault(run_id, self._marks[run_id].is_open)
        return self._marks[run_id]

    def is_open(self, run_id: str) -> bool:
        if run_id not in self._open:
            self._open[run_id] = self._zone.is_open(run_id)
        return self._open[run_id]

    def relist(self) -> LandingZone:
        return self._zone


def _write_etag(facts: os.stat_result) -> str:
    """The mark of a local manifest as the store for a local directory writes it, which takes ten times as long."""
    return f'"{facts.st_ino:x}-{facts.st_mtime_ns // 1000:x}-{facts.st_size:x}"'


def put_file(store: ObjectStore, run_id: str, name: str, source: SourceFile, recipient: Recipient | None) -> None:
    """Put one file of a run, sealed on its way where there is somebody to seal it for."""
    sealer = make_sealer(recipient, run_id, name)
    with source.open() as file:
        data = file if sealer is None else sealer(read_blocks(file, source.where))
        obstore.put(store, f"{run_id}/{name}", data)


def _remove_objects(place: Location, run_id: str) -> tuple[int, int]:
    found = list_objects(place.store, f"{run_id}/")
    for item in sorted(found, key=lambda item: not item["path"].endswith(f"/{MANIFEST}")):
        delete_object(place.store, item["path"])
    return len(found), sum(item["size"] for item in found)


def describe_taken(run_id: str) -> EvidenceRejected:
    """The error of a run id that is in use."""
    return EvidenceRejected(
        f"run {run_id} is already in the landing zone",
        "choose another --run-id, or remove its directory first",
    )
