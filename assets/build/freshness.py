"""Whether a run's tables are made from what is there now, and if not, why: one fingerprint per table and partition.

A fingerprint stands for all that decides a partition's rows: what its inputs were made from, the declaration of the
table, and the version of the code. The lake keeps it beside the rows; a partition that bears another one is stale.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from assets.build import chunking
from assets.build.declarations import find_table
from bronze import runs as landed
from bronze import span_patterns
from gold import attested_runs, time_breakdown
from gold.pairs import pair_runs
from lake.errors import LakeError
from lake.side_files import read_beside
from silver import attestations, device_samples, runs
from silver.patterns import PATTERNS
from silver.policy import POLICY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gold.pairs import Index, Pair
    from lake.attestation_keys import AttestationKeys
    from lake.landing_zone import LandingZone
    from lake.locations import Location
    from lake.snapshot import Snapshot
    from lake.tables import Table

# Raise with every change of what a transform makes of the same rows: every run is then conformed again.
TRANSFORMS_VERSION = 14
# Raise with every change of what a measure makes of the same rows: every run is then measured again.
MEASURES_VERSION = 12


class Snapshots(Protocol):
    """What tells how a table is: the lake as it is now, or one look at it."""

    place: Location

    def snapshot(self, table: Table) -> Snapshot:
        """The table at one version."""


class Look:
    """One look at the lake for many questions: each table's log is read once, when it is first asked for."""

    def __init__(self, lake: Snapshots, zone: LandingZone | None = None, keys: AttestationKeys | None = None) -> None:
        """Without a landing zone, bronze is taken as it is."""
        self.place = lake.place
        self._lake = lake
        self._zone = zone
        self._keys = keys
        self._snapshots: dict[str, Snapshot] = {}

    def snapshot(self, table: Table) -> Snapshot:
        """The table as it was when it was first asked for."""
        if table.full_name not in self._snapshots:
            self._snapshots[table.full_name] = self._lake.snapshot(table)
        return self._snapshots[table.full_name]

    @cached_property
    def site_patterns(self) -> bytes:
        """The site's own span patterns beside the lake; empty where it has none."""
        return read_beside(self.place, span_patterns.FILE_NAME, span_patterns.MOST_BYTES) or b""

    def list_marks(self, table: Table, run_id: str) -> list[int | None]:
        """The one mark that all inputs of a table bear for a run, or all of them where they differ."""
        return sorted({self.snapshot(find_table(name)).mark(run_id) for name in table.inputs}, key=str)

    def list_lacking(self, tables: Iterable[Table], run_id: str) -> list[str]:
        """The inputs of some tables that a run does not have."""
        names = sorted({name for table in tables for name in table.inputs})
        return [name for name in names if self.snapshot(find_table(name)).mark(run_id) is None]

    def is_open(self, run_id: str) -> bool:
        """Whether more files of a run are to come; not asked where there is no landing zone to look at."""
        return self._zone is not None and self._zone.is_open(run_id)

    def mark_landing(self, run_id: str) -> str | None:
        """The mark of a run's landing directory; none where there is no landing zone to look at."""
        return None if self._zone is None else mark_landing(self._zone, run_id, self._keys)

    @cached_property
    def measured_runs(self) -> Index:
        """What the log says of every run that has its own gold."""
        marks = self.snapshot(time_breakdown.TABLE)
        index = self.snapshot(runs.TABLE).index()
        return {run_id: run for run_id, run in index.items() if marks.mark(run_id) is not None}

    @cached_property
    def pairs(self) -> dict[str, Pair]:
        """Every run that is to be compared, with its baseline or why it has none."""
        return pair_runs(self.measured_runs)

    @cached_property
    def replays(self) -> dict[str, list[str]]:
        """All runs that share an id or a nonce of their attestation tokens, each with the others."""
        return attested_runs.find_replays(self.snapshot(runs.TABLE).index())

    def find_replays(self, run_id: str) -> list[str]:
        """The other runs that hold tokens of this one; all runs are looked at only where it has any."""
        if "replays" not in vars(self):
            own = self.snapshot(runs.TABLE).index([run_id]).get(run_id)
            if own is None or own["attestation_ids"] is None:
                return []
        return self.replays.get(run_id, [])


def mark_landing(zone: LandingZone, run_id: str, keys: AttestationKeys | None = None) -> str:
    """The mark of a run's landing directory as the zone lists it."""
    from bronze import land  # all readers: whoever asks about answers needs none of them
    from lake.attestation_keys import NO_KEYS

    found = zone.list_marks(run_id)
    rules = [("/", "sealed files alone")] if zone.seals.must_be_sealed else []
    rules += [("/", "bronze is sealed")] if zone.seals.seals_bronze else []
    return land.mark_landing(found.manifest_etag, [*found.listing, *rules], keys or NO_KEYS, is_open=found.is_open)


def digest_code(table: Table) -> str:
    """What stands for all that decides what a table makes of the same inputs: its declaration, and the code."""
    if table.tier == "bronze":
        from bronze import land

        return land.version()
    code: dict[str, list[object]] = {
        "silver": [
            *(TRANSFORMS_VERSION, chunking.CHUNK_EVENTS, PATTERNS.sha256, POLICY.sha256),
            *(device_samples.METRICS_SHA256, attestations.POLICY_SHA256),
        ],
        "gold": [MEASURES_VERSION, chunking.SLICE_SPANS],
    }
    return _digest([*code[table.tier], table.spark_ddl, table.partition_by])


def fingerprint(table: Table, *parts: object) -> str:
    """What a partition of a table is made from, and all that decides what is made of it."""
    return _digest([digest_code(table), *parts])


def fingerprint_run(look: Look, table: Table, run_id: str) -> str:
    """The fingerprint that a run's partition of a table of silver or gold has to bear."""
    if table.tier == "silver":
        # Bronze is replaced whole, and its last table bears the mark of all of them.
        site = [hashlib.sha256(look.site_patterns).hexdigest()] if look.site_patterns else []
        return fingerprint(table, look.snapshot(landed.TABLE).mark(run_id), *site)
    # What is said of a run's attestation depends on who else holds its tokens.
    others = look.find_replays(run_id) if table == attested_runs.TABLE else []
    return fingerprint(table, *look.list_marks(table, run_id), *others)


def find_stale(look: Look, tables: Sequence[Table], run_ids: Iterable[str]) -> dict[str, str]:
    """Those runs of which one of these tables is not made from what lies upstream of it, and why; in a few words."""
    asked = list(run_ids)
    if len(asked) > 1 and attested_runs.TABLE in tables:
        _ = look.replays  # once for all of them, rather than one search of the log for each
    reasons = ((run_id, _explain_run(look, tables, run_id)) for run_id in asked)
    return {run_id: why for run_id, why in reasons if why is not None}


def find_up_to_date(look: Look, tables: Sequence[Table], run_ids: Iterable[str]) -> set[str]:
    """The other runs: all of these tables are made from what lies upstream of them."""
    asked = set(run_ids)
    return asked - find_stale(look, tables, asked).keys()


def explain_stale(
    look: Look, table: Table, partition: str, made_from: str, changed: str = "what it is made from changed, or how"
) -> str | None:
    """Why a partition does not bear this fingerprint; none where it does. `changed` is what may have changed since."""
    snapshot = look.snapshot(table)
    if snapshot.is_made_from(partition, made_from):
        return None
    if snapshot.outdated:
        return f"{table.full_name} was written by another version, with other columns: {', '.join(snapshot.outdated)}"
    if snapshot.damages(partition):
        return f"a data file of {table.full_name} is missing or truncated"
    if snapshot.mark(partition) is None:
        return f"{table.full_name} was never made"
    return f"{table.full_name} is stale: {changed}"


def _explain_run(look: Look, tables: Sequence[Table], run_id: str) -> str | None:
    if any(table.tier == "bronze" for table in tables):
        why = _explain_bronze(look, [table for table in tables if table.tier == "bronze"], run_id)
        if why is not None:
            return why
    rest = (table for table in tables if table.tier != "bronze")
    reasons = (explain_stale(look, table, run_id, fingerprint_run(look, table, run_id)) for table in rest)
    return next((why for why in reasons if why is not None), None)


def _explain_bronze(look: Look, tables: Sequence[Table], run_id: str) -> str | None:
    outdated = [table.full_name for table in tables if look.snapshot(table).outdated]
    if outdated:
        return f"{', '.join(outdated)} was written by another version, with other columns"
    marks = {look.snapshot(table).mark(run_id) for table in tables}
    if marks == {None}:
        return "bronze was never made"
    if len(marks) > 1:
        return "bronze is incomplete: a launch was stopped while it was written"
    try:
        mark = look.mark_landing(run_id)
    except LakeError as error:  # one directory that cannot be listed says nothing of the others
        return f"its landing directory cannot be read: {error.what}"
    if mark is None or look.snapshot(landed.TABLE).has_seen(run_id, mark):
        return None
    return "bronze is stale: its files, the attestation keys or the readers changed"


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
