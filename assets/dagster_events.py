"""What Dagster is told of each partition: its content digest as data version, what it came from, and what it holds."""

from __future__ import annotations

from collections import defaultdict
from graphlib import TopologicalSorter
from itertools import groupby
from typing import TYPE_CHECKING, Any

import dagster as dg
import polars as pl

from assets.build.catalogue import LANDING, UPSTREAM
from assets.specs import asset_key, code_version, locate_figure
from bronze import source_files
from lake.digest import combine
from lake.few_rows import FEW_ROWS
from report.drawing import specification
from report.markdown import escape_markdown, markdown
from report.pictures import figure
from silver import rule_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from assets.build.tiers import TierResult
    from lake.snapshot import Written
    from lake.store import Lake
    from lake.tables import Table

# Dagster's own names. They are written out because a stage tells of many runs at once, each with its own versions,
# which an output of Dagster's cannot; a test holds Dagster's verdict on what is stale to them.
_DATA_VERSION = "dagster/data_version"
_IS_OURS = "dagster/data_version_is_user_provided"
_CODE_VERSION = "dagster/code_version"
_INPUT_VERSION = "dagster/input_data_version"
_INPUT_EVENT = "dagster/input_event_pointer"
_NO_EVENT = "NULL"

_ROWS_SHOWN = 10


def _list_levels() -> dict[str, int]:
    """How many tables lie between the landing zone and each table, on the longest way."""
    levels: dict[str, int] = {}
    for name in TopologicalSorter(UPSTREAM).static_order():
        levels[name] = max((levels[upstream] + 1 for upstream in UPSTREAM.get(name, ())), default=0)
    return levels


_LEVELS = _list_levels()


class EventWriter:
    """Tells of partitions as they are made; remembers what it told, so that what comes after can point to it."""

    def __init__(self, instance: dg.DagsterInstance, lake: Lake, tables: Iterable[Table], **facts: str) -> None:
        self._instance = instance
        self._lake = lake
        self._tables = {table.full_name: table for table in tables}
        self._facts = facts
        self._versions: dict[str, dict[str, str]] = defaultdict(dict)
        self._known_events: dict[str, dict[str, str]] = defaultdict(dict)

    def observe_landings(self, marks: Mapping[str, str]) -> Iterator[dg.AssetObservation]:
        """The landing directories as they were read."""
        for run_id, mark in marks.items():
            self._versions[LANDING][run_id] = mark
            yield observe_landing(run_id, mark)
        self._known_events.pop(LANDING, None)

    def materialise_tier(self, made: Iterable[TierResult]) -> Iterator[dg.AssetMaterialization]:
        """One event for each partition of what could be made, upstream first."""
        done = [one for one in made if one.fault is None]
        notes = {(one.run_id, written.table): _make_note(one) for one in done for written in one.written}
        yield from self.materialise_partitions([written for one in done for written in one.written], notes)

    def materialise_partitions(
        self, written: Iterable[Written], notes: Mapping[tuple[str, str], Mapping[str, Any]] | None = None
    ) -> Iterator[dg.AssetMaterialization]:
        """One event for each partition, upstream first."""
        by_table: dict[str, list[Written]] = defaultdict(list)
        for one in written:
            by_table[one.table].append(one)
        for _, level in groupby(sorted(by_table, key=_find_place), key=_LEVELS.__getitem__):
            # What a level points to is asked before any of it is told: its events can then be stored together.
            names = list(level)
            origins = {
                name: self._origins(self._tables[name], [one.run_id for one in by_table[name]]) for name in names
            }
            for name in names:
                yield from self._materialise_some(self._tables[name], by_table[name], origins[name], notes or {})

    def materialise_table(self, table: Table, partitions: Iterable[Written]) -> dg.MaterializeResult[None]:
        """The event of an asset without partitions, from all partitions that its table has."""
        held = sorted(partitions, key=lambda one: one.run_id)
        rows = self._lake.scan(table).collect().to_arrow()
        content = combine(f"{one.run_id}:{one.content_sha256}" for one in held)
        return dg.MaterializeResult(
            asset_key=asset_key(table.full_name),
            data_version=dg.DataVersion(content),
            metadata={
                "dagster/row_count": rows.num_rows,
                "bytes": sum(one.bytes for one in held),
                "files": sum(one.files for one in held),
                "delta_version": max((one.version for one in held), default=0),
                **self._facts,
                **_render_preview(table, rows, locate_figure(table, content)),
            },
        )

    # -- inside ---------------------------------------------------------------------------------------------------

    def _materialise_some(
        self,
        table: Table,
        partitions: list[Written],
        origins: Mapping[str, Mapping[str, str]],
        notes: Mapping[tuple[str, str], Mapping[str, Any]],
    ) -> Iterator[dg.AssetMaterialization]:
        """One event for each of these partitions of a table."""
        counts = self._counts(table, [one.run_id for one in partitions])
        for one in partitions:
            self._versions[table.full_name][one.run_id] = one.content_sha256
            yield dg.AssetMaterialization(
                asset_key(table.full_name),
                partition=one.run_id,
                metadata={
                    **_size(one),
                    **self._find_signer(one),
                    **self._facts,
                    **notes.get((one.run_id, table.full_name), {}),
                    **counts.get(one.run_id, {}),
                    **self._preview(table, one),
                },
                tags={**_version_tags(table, one.content_sha256), **origins[one.run_id]},
            )
        self._known_events.pop(table.full_name, None)

    def _find_signer(self, one: Written) -> dict[str, str]:
        """Who signed what this launch has committed; of what it found there, `teetotal verify` says that."""
        keys = self._lake.signing_keys
        if keys is None or keys.signer is None or not one.is_changed:
            return {}
        return {"signed_by": keys.signer.public.key_id}

    def _origins(self, table: Table, run_ids: list[str]) -> dict[str, dict[str, str]]:
        """For each run: the versions upstream, and the events that told of them."""
        tags: dict[str, dict[str, str]] = {run_id: {} for run_id in run_ids}
        for upstream in UPSTREAM[table.full_name]:
            name, events = asset_key(upstream).to_user_string(), self._events(upstream, run_ids)
            for run_id in run_ids:
                tags[run_id][f"{_INPUT_VERSION}/{name}"] = self._version(upstream, run_id)
                tags[run_id][f"{_INPUT_EVENT}/{name}"] = events[run_id]
        return tags

    def _events(self, name: str, run_ids: list[str]) -> dict[str, str]:
        """The events that last told of some runs; asked once for all that come from them."""
        known = self._known_events[name]
        unknown = {run_id for run_id in run_ids if run_id not in known}
        if unknown:
            kinds = dg.DagsterEventType
            kind = kinds.ASSET_OBSERVATION if name == LANDING else kinds.ASSET_MATERIALIZATION
            found = self._instance.get_latest_storage_id_by_partition(asset_key(name), kind, unknown)
            known |= {run_id: str(found.get(run_id, _NO_EVENT)) for run_id in unknown}
        return known

    def _version(self, name: str, run_id: str) -> str:
        known = self._versions[name]
        if run_id not in known:
            known[run_id] = "" if name == LANDING else self._lake.snapshot(self._tables[name]).content_sha256(run_id)
        return known[run_id]

    def _counts(self, table: Table, run_ids: list[str]) -> dict[str, dict[str, int]]:
        """How many files or events were kept, merged and rejected, where a table says so."""
        if table is source_files.TABLE:
            rows = self._lake.scan(table, run_ids).group_by("run_id", pl.col("outcome").alias("what")).len("count")
        elif table is rule_counts.TABLE:
            rows = (
                self._lake.scan(table, run_ids)
                .group_by("run_id", pl.col("effect").alias("what"))
                .agg(pl.col("events_count").sum().alias("count"))
            )
        else:
            return {}
        counts: dict[str, dict[str, int]] = defaultdict(dict)
        for row in rows.collect().sort("run_id", "what").iter_rows(named=True):
            counts[row["run_id"]][row["what"]] = row["count"]
        return counts

    def _preview(self, table: Table, one: Written) -> dict[str, dg.MetadataValue[Any]]:
        if table.tier != "gold":
            return {}
        address = locate_figure(table, one.content_sha256, one.run_id)
        few = self._lake.read_few(table, [one.run_id], FEW_ROWS)
        return _render_preview(
            table, self._lake.scan(table, [one.run_id]).collect().to_arrow() if few is None else few, address
        )


def _find_place(name: str) -> tuple[int, str]:
    """Where a table comes when events are told: upstream first."""
    return _LEVELS[name], name


def observe_landing(run_id: str, mark: str) -> dg.AssetObservation:
    """A landing directory as it was seen."""
    return dg.AssetObservation(
        asset_key(LANDING), partition=run_id, tags={_DATA_VERSION: mark}, metadata={"mark_sha256": mark}
    )


def observe_failure(table: Table, run_id: str, reason: str, *, is_transient: bool) -> dg.AssetObservation:
    """Why a partition could not be made, for its page."""
    return dg.AssetObservation(
        asset_key(table.full_name),
        partition=run_id,
        description=reason,
        metadata={"failed": reason, "is_transient": is_transient},
    )


def find_terminal_failure(event: dg.DagsterEvent) -> str | None:
    """The reason, where an event tells of a failure that no further try will mend."""
    if not event.is_asset_observation:
        return None
    metadata = event.asset_observation_data.asset_observation.metadata
    return str(metadata["failed"].value) if "failed" in metadata and not metadata["is_transient"].value else None


def _version_tags(table: Table, digest: str) -> dict[str, str]:
    return {_DATA_VERSION: digest, _IS_OURS: "true", _CODE_VERSION: code_version(table)}


def _size(one: Written) -> dict[str, Any]:
    return {
        # Under `dagster/row_count` the rows of the run made last would stand on the asset's page as those of the table.
        "dagster/partition_row_count": one.rows,
        "bytes": one.bytes,
        "files": one.files,
        "delta_version": one.version,
        "content_sha256": one.content_sha256,
        "is_changed": one.is_changed,
    }


def _make_note(made: TierResult) -> dict[str, Any]:
    return {"is_recomputed": not made.is_fresh, "tier_seconds": round(made.seconds, 3)}


def _render_preview(table: Table, rows: Any, address: str) -> dict[str, dg.MetadataValue[Any]]:
    """A few rows, the address of a picture, and what the web interface draws it from when somebody looks at it."""
    found = figure(table, rows)
    shown: dict[str, dg.MetadataValue[Any]] = {"rows_shown": dg.MetadataValue.md(markdown(table, rows, _ROWS_SHOWN))}
    if found is None or found.is_empty:
        return shown
    at_once = f"![{escape_markdown(table.full_name)}]({address})"
    return {
        "figure": dg.MetadataValue.md(at_once),
        "vega_lite": dg.MetadataValue.json(specification(found, is_titled=True)),
        **shown,
    }
