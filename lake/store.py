"""The store: the one place that writes to the lake."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from lake import commits
from lake.compaction import compact
from lake.contract import matches, partitions, require_declared
from lake.cut_off import repeat_cut_off, repeat_read
from lake.datafiles import compare_sizes
from lake.digest import combine
from lake.errors import SourceUnavailable
from lake.executor_stage import ExecutorStage
from lake.identity import slug
from lake.landing_notes import read_note, remove_note, write_note
from lake.lineage.statements import EVERY, ROWS, Material, name_partition
from lake.local_commits import commit_entry, compose_entry, create_table
from lake.locations import report_unreachable
from lake.log_recovery import remove_leftovers
from lake.reader import BATCH_ROWS, LakeReader, cast_partition_values
from lake.sealed_source import SEALED_SOURCE
from lake.sealing import seal, unseal
from lake.snapshot import Written, bytes_id, bytes_mark, format_label, mark_of, seen_id, stated_id
from lake.staging import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake.lineage.keys import SigningKeys
    from lake.lineage.log import LogState
    from lake.table_log import TableLog
    from lake.tables import Table

_TIERS = ("bronze", "silver", "gold", "checks")
_CONFIGURATION = {
    "delta.checkpointInterval": str(commits.CHECKPOINT_INTERVAL),
    # Of all columns; by itself, Delta goes by the first 32.
    "delta.dataSkippingNumIndexedCols": "-1",
}


class Lake(LakeReader):
    """All tables under one root; every write replaces the partition of one run, whole, in one commit."""

    def stage(self, table: Table, run_id: str) -> Stage:
        """Open a stage for one partition: units are written aside, nothing is visible until `commit`."""
        return Stage(self.place, table, slug(run_id), self._sealer(table, slug(run_id)), self._prefix(table))

    def executor_stage(self, table: Table, run_id: str, spool: str) -> ExecutorStage:
        """Open, on an executor, the part of a stage that another process holds open."""
        sealer = self._sealer(table, slug(run_id))
        return ExecutorStage(self.place, table, slug(run_id), sealer, spool, self._prefix(table))

    def replace(
        self,
        table: Table,
        run_id: str,
        frame: Any,
        made_from: str,
        seen: str | None = None,
        *,
        read: Sequence[str] | None = None,
        sources: Sequence[Material] = (),
    ) -> Written:
        """Replace a run's partition by a frame (anything that speaks Arrow), sorted by the table's key."""
        with self.stage(table, run_id) as stage:
            self.add(stage, frame)
            return self.commit(stage, made_from, seen, read=read, sources=sources)

    def add(self, stage: Stage, frame: Any) -> None:
        """Put a frame's rows on a stage, sorted by the table's key: one data file for each of its inner partitions."""
        table = stage.table
        rows = require_declared(table, pa.table(frame), stage.run_id).combine_chunks()
        parts = partitions(table, rows)
        for values in parts:
            part = rows if len(parts) == 1 else rows.filter(matches(values)).combine_chunks()
            order = pc.sort_indices(part, sort_keys=[(name, "ascending") for name in table.key])
            part = part.select(table.file_schema.names)
            unit = stage.unit()
            for first in range(0, part.num_rows, BATCH_ROWS):
                for batch in part.take(order.slice(first, BATCH_ROWS)).combine_chunks().to_batches():
                    unit.write(batch)
            unit.finish(**values)

    def commit(
        self,
        stage: Stage,
        made_from: str,
        seen: str | None = None,
        *,
        read: Sequence[str] | None = None,
        sources: Sequence[Material] = (),
    ) -> Written:
        """Make a stage's units the run's partition in one commit; write nothing where it holds them already.

        Its statement names what it was made from: the partitions `read` of its inputs (the one of the same name by
        default), and `sources` from outside of the lake.
        """
        # One application id per run: a second writer of the same run conflicts, writers of other runs do not.
        marks = {stage.run_id: mark_of(made_from)}
        marks |= {} if seen is None else {seen_id(stage.run_id): mark_of(seen)}
        if self._lineage is not None:  # rows that nobody has signed are committed again, with a statement
            marks[stated_id(stage.run_id)] = mark_of(combine(format_label(unit.path) for unit in stage.units))
        materials = [*sources, *self._find_materials(stage.table, [stage.run_id] if read is None else read)]
        for attempt in range(commits.TRIES):
            handle, log = self._open_log(stage.table)
            is_due = any(log.find_mark(app) != mark for app, mark in marks.items())
            actions, written, bytes_marks = self._exchange(log, stage, will_sign=is_due)
            marks |= bytes_marks
            if not actions and all(log.find_mark(app) == mark for app, mark in marks.items()):
                self._give_back(stage.table, handle)
                return written
            if seen is None and log.find_mark(seen_id(stage.run_id)) is not None:
                marks[seen_id(stage.run_id)] = 0  # it is no longer what was seen then
            try:
                notes = {"made_from_sha256": made_from}
                return self._commit(handle, log, stage, actions, written, marks, materials, notes)
            except commits.CommitConflict:
                commits.wait_before_retry(attempt)
        raise commits.too_many_conflicts(stage.table, stage.run_id)

    def reseal(self, table: Table, run_id: str) -> Written:
        """Seal a run's partition again with the active key: the same rows, made from and having seen the same."""
        if self.has_sealed_source(table, [run_id]):
            return self.sealing_bronze()._reseal(table, table.source_sealed, run_id)  # noqa: SLF001 - a copy of our own
        return self._reseal(table, table, run_id)

    def _reseal(self, table: Table, stored: Table, run_id: str) -> Written:
        for attempt in range(commits.TRIES):
            with self.stage(table, run_id) as stage:
                keyring, (handle, log) = self._keys(stored), self._open_log(table)
                before = log.files.get(run_id, {})
                for path, file in before.items():
                    unit = stage.unit()
                    for batch in self._batches(table, path):
                        unit.write(unseal(stored, batch, keyring, run_id))
                    unit.finish(**cast_partition_values(table, file.values))
                actions, written, bytes_marks = self._exchange(log, stage)
                if not actions:
                    return written
                # The log keeps every mark; this one is said again so that another writer of the run conflicts.
                marks = {run_id: log.find_mark(run_id) or 0, **bytes_marks}
                if self._lineage is not None:
                    marks[stated_id(run_id)] = mark_of(written.content_sha256)
                name, rows = name_partition(table.full_name, run_id), combine(map(format_label, before))
                notes = {"sealed_with": keyring.active_id}
                try:
                    materials = [Material(name, rows, ROWS)]
                    return self._commit(handle, log, stage, actions, written, marks, materials, notes)
                except commits.CommitConflict:  # the partition may be another by now: its rows are read again
                    commits.wait_before_retry(attempt)
        raise commits.too_many_conflicts(table, run_id)

    def read_landing_note(self, run_id: str) -> dict[str, Any] | None:
        """What the last landing of an open run noted; none for a full rebuild, and where there is no keyring."""
        if self._rewrites or self._guard is None:
            return None
        return read_note(self.place, self._guard.peek, slug(run_id))

    def write_landing_note(self, run_id: str, note: dict[str, Any] | None) -> None:
        """Note what a landing of an open run has read; none forgets it."""
        if note is None:
            remove_note(self.place, slug(run_id))
        elif self._guard is not None:
            write_note(self.place, self._guard.peek(), slug(run_id), note)

    def tidy(self, table: Table, retention_hours: int) -> list[str]:
        """Write the log as one checkpoint and delete files that no version since then holds; gives their names.

        Data files are never merged: a partition is written whole, in files as large as a chunk, and its content
        digest is that of those files. What grows with every commit is the log. Small files of many runs are copied
        into one beside them.
        """
        handle = self._open(table)
        if handle is None:
            return []
        with report_unreachable(f"{self.uri(table)} could not be tidied"):
            repeat_cut_off(handle.create_checkpoint)
            if self._disk is not None:
                self._disk.sync_log(self.log(table), handle.version() - 1, handle.version())
                remove_leftovers(self.log(table))
            repeat_cut_off(handle.cleanup_metadata)
            # full: also what a killed writer left, which no version ever held.
            removed = sorted(repeat_cut_off(partial(handle.vacuum, retention_hours, dry_run=False, full=True)))
        snapshot = self.snapshot(table)
        sizes = {path: size for run_id in snapshot.run_ids for path, size in snapshot.sizes(run_id).items()}
        compact(table, self.root(table), sizes)
        return removed

    def replace_outdated(self, table: Table) -> tuple[str, ...]:
        """Empty a table that another version wrote with other columns; gives those columns.

        Only for a table that is made from others of the lake, and only while nobody else writes. What it held stays in
        its history until `tidy` deletes it. Fingerprints hold the declaration: none that was kept before fits.
        """
        outdated = self.snapshot(table).outdated
        if outdated and table.tier != "bronze":
            self._create(table, "overwrite")
        return outdated

    def noting(self, **notes: str) -> Self:
        """The same lake, whose statements say something more, such as the engine."""
        lake = copy(self)
        lake._lineage = None if self._lineage is None else self._lineage.noting(**notes)  # noqa: SLF001 - a copy
        return lake

    @property
    def signing_keys(self) -> SigningKeys | None:
        """What signs the commits, and whose statements are believed; none where nobody signs."""
        return None if self._lineage is None else self._lineage.keys

    def log_statements(self) -> LogState | None:
        """Add the statements of all commits to the lake's log, also of a killed launch; none where nobody signs."""
        if self._lineage is None:
            return None
        return self._lineage.log_commits(self.list_stored(_TIERS), self._disk)

    def _find_materials(self, table: Table, partitions: Sequence[str]) -> list[Material]:
        return [] if self._lineage is None else self._lineage.find_materials(table.inputs, partitions)

    def _prefix(self, table: Table) -> str:
        return SEALED_SOURCE if self.seals_bronze and table.tier == "bronze" else ""

    def _sealer(self, table: Table, run_id: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        table = table.source_sealed if self.seals_bronze else table
        keyring = self._keys(table, will_seal=True) if table.sealed else None
        return _keep_rows if keyring is None else partial(seal, table, run_id=run_id, keyring=keyring)

    def _exchange(
        self, log: TableLog, stage: Stage, *, will_sign: bool = False
    ) -> tuple[list[Any], Written, dict[str, int]]:
        """Move a stage's files to their names.

        Gives the actions that make them the partition, what it will be, and the mark of its bytes where they change.
        """
        units = {unit.path: unit for unit in stage.units}
        before = log.files.get(stage.run_id, {})
        added = [unit for path, unit in units.items() if path not in before]
        kept = {path: file.size_bytes for path, file in before.items() if path in units}
        damaged = compare_sizes(self.root(stage.table), kept)
        removes = [
            commits.RemovedFile(path, file.size_bytes, file.values)
            for path, file in before.items()
            if path not in units
        ]
        # Where anything changes, the bytes of all files are known afterwards: those that stay are compared.
        is_signed = will_sign and self._lineage is not None
        is_compared = bool(units) and bool(self._rewrites or added or removes or damaged or is_signed)
        repaired = [
            units[path] for path in kept if path in damaged or (is_compared and stage.has_other_bytes(units[path]))
        ]
        with report_unreachable(f"{self.uri(stage.table)} could not be written to"):
            stage.settle([*added, *repaired], self._disk)
        # A version that writes other bytes for the same rows gives a file another size: the log must say so.
        adds = [unit.add_action() for unit in (*added, *(u for u in repaired if u.bytes != kept[u.path]))]
        written = Written(
            table=stage.table.full_name,
            run_id=stage.run_id,
            rows=sum(unit.rows for unit in units.values()),
            bytes=sum(unit.bytes for unit in units.values()),
            files=len(units),
            content_sha256=combine(map(format_label, units)),
            version=log.version,
            is_changed=bool(added or removes or repaired),
        )
        mark = bytes_mark({path: unit.bytes_sha256 for path, unit in units.items()})
        return [*removes, *adds], written, {bytes_id(stage.run_id): mark} if is_compared else {}

    def _commit(
        self,
        handle: DeltaTable | None,
        log: TableLog,
        stage: Stage,
        actions: list[Any],
        written: Written,
        marks: dict[str, int],
        materials: Sequence[Material],
        notes: dict[str, str],
    ) -> Written:
        statement = None
        if self._lineage is not None:
            files = {unit.path: unit.bytes_sha256 for unit in stage.units}
            statement = self._lineage.sign(stage.table, stage.run_id, written.content_sha256, files, materials, **notes)
        notes = {"run_id": stage.run_id, "content_sha256": written.content_sha256, **notes}
        notes |= {} if statement is None else {"statement": statement}
        notes = {f"teetotal.{name}": note for name, note in notes.items()}
        notes = commits.describe_commit(notes, actions, list(marks))
        with report_unreachable(f"{self.uri(stage.table)} could not be committed to"):
            if handle is None:
                entry = compose_entry(stage.table, actions, notes, marks)
                version = commit_entry(self.root(stage.table), log, entry, stage.run_id, marks)
            else:
                properties = CommitProperties(notes, app_transactions=[Transaction(*mark) for mark in marks.items()])
                commits.commit_actions(handle, actions, stage.table, properties)
                repeat_read(handle.update_incremental)
                version = handle.version()
            if self._disk is not None:
                self._disk.sync_log(self.log(stage.table), log.version, version)
        if self._lineage is not None:
            self._lineage.note_commit(stage.table.full_name, version)
        self._give_back(stage.table, handle)
        return replace(written, version=version)

    def _give_back(self, table: Table, handle: DeltaTable | None) -> None:
        if handle is not None and not self.place.is_local:
            self._tables.give_back(self.root(table), handle)

    def _open_log(self, table: Table) -> tuple[DeltaTable | None, TableLog]:
        """What the log says, for one writer; with a handle where Delta commits: remotely, or where only it can read."""
        if self.place.is_local:
            log = self._read_log(table)
            if log is None:
                log = self._create_locally(table)
            self._require_declared(table, log)
            if log is not None and log.handle is None:
                return None, log
        handle = self._open_or_create(table)
        return handle, self._read_log_at(table, handle)

    def _create_locally(self, table: Table) -> TableLog | None:
        with report_unreachable(f"{self.uri(table)} could not be made"):
            create_table(self.root(table), table, _CONFIGURATION)
            if self._disk is not None:
                self._disk.sync_log(self.log(table), -1, 0)
        return self._read_log(table)

    def _open_or_create(self, table: Table) -> DeltaTable:
        handle = self._open(table)
        if handle is not None:
            return handle
        # Where the commit fails, another writer made it a moment earlier: it is there now.
        self._create(table, "ignore", CommitFailedError)
        handle = self._open(table)
        if handle is None:
            raise SourceUnavailable(f"{self.uri(table)} could not be created", "check that the lake can be written to")
        return handle

    def _create(self, table: Table, mode: Literal["ignore", "overwrite"], *ignored: type[Exception]) -> None:
        statement = None
        if mode == "overwrite" and self._lineage is not None:
            statement = self._lineage.sign(
                table, EVERY, combine([]), {}, (), note="emptied: written by another version"
            )
        with report_unreachable(f"{self.uri(table)} could not be made"), suppress(*ignored):
            make = partial(
                DeltaTable.create,
                self.uri(table),
                schema=table.arrow_schema,
                mode=mode,
                partition_by=list(table.partition_by),
                name=table.full_name,
                description=table.grain,
                configuration=_CONFIGURATION,
                storage_options=dict(self.place.options) or None,
                commit_properties=None
                if statement is None
                else CommitProperties(custom_metadata={"teetotal.statement": statement}),
            )
            made = repeat_cut_off(make)
            if self._disk is not None:
                self._disk.sync_log(self.log(table), made.version() - 1, made.version())


def _keep_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch
