"""Each table as Dagster sees it: one asset a table, its key the tier and the name, all it says from the declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.addresses import DATA_DOCS, FIGURES
from assets.build.catalogue import LANDING, UPSTREAM
from assets.build.freshness import digest_code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lake.tables import Column, Table

TRAINING_RUNS = dg.DynamicPartitionsDefinition(name="training_runs")
OWNERS = ("team:teetotal",)

_KINDS = {"bronze": {"python", "deltalake"}, "silver": {"polars", "deltalake"}, "gold": {"polars", "deltalake"}}


def locate_figure(table: Table, content_sha256: str, run_id: str | None = None) -> str:
    """Where the web interface serves the picture of a partition: short, because Dagster hides long texts."""
    place = "/".join(filter(None, (FIGURES, table.tier, table.name, run_id)))
    return f"{place}.svg?version={content_sha256[:16]}"


def asset_key(full_name: str) -> dg.AssetKey:
    """`silver.spans` is the asset `silver/spans`."""
    return dg.AssetKey(full_name.split("."))


def code_version(table: Table) -> str:
    """What a change of code changes: part of the fingerprint that makes a partition of the lake stale."""
    return digest_code(table)[:16]


def landing_spec() -> dg.AssetSpec:
    """The landing zone, which others fill: a run's data version is the mark of its directory."""
    return dg.AssetSpec(
        asset_key(LANDING),
        description="One directory per run in the landing zone, complete once its run.toml is there.",
        group_name="bronze",
        kinds={"file"},
        owners=OWNERS,
        partitions_def=TRAINING_RUNS,
    )


def asset_spec(
    table: Table,
    partitions: dg.PartitionsDefinition | None = TRAINING_RUNS,
    condition: dg.AutomationCondition[Any] | None = None,
) -> dg.AssetSpec:
    """A table's asset: the description is its grain, the columns with their meanings are metadata."""
    return dg.AssetSpec(
        asset_key(table.full_name),
        deps=[_dependency(name, partitions) for name in UPSTREAM[table.full_name]],
        description=table.grain,
        metadata={
            "dagster/column_schema": dg.TableSchema([_column(table, column) for column in table.columns]),
            "dagster/table_name": table.full_name,
            "key": ", ".join(table.key),
            "partitioned_by": ", ".join(table.partition_by),
            "data_docs": dg.MetadataValue.url(f"{DATA_DOCS}/{table.tier}/{table.name}/_all.html"),
        },
        group_name=table.tier,
        kinds=_KINDS[table.tier],
        owners=OWNERS,
        code_version=code_version(table),
        partitions_def=partitions,
        automation_condition=condition,
        # Every stage tells of each run by itself, so none of its outputs is given for all runs at once.
        skippable=True,
    )


def on_new_content() -> dg.AutomationCondition[Any]:
    """As soon as what a table is made from has other content; the same content made again asks nothing."""
    changed = dg.AutomationCondition.any_deps_match(dg.AutomationCondition.data_version_changed())
    return (changed.since_last_handled() & ~dg.AutomationCondition.in_progress()).with_label("upstream has new content")


def _dependency(name: str, partitions: dg.PartitionsDefinition | None) -> dg.AssetDep:
    """A run comes from the same run upstream; what has no partitions comes from all runs."""
    mapping = None if partitions else dg.AllPartitionMapping()
    return dg.AssetDep(asset_key(name), partition_mapping=mapping)


def _column(table: Table, column: Column) -> dg.TableColumn:
    return dg.TableColumn(
        column.name,
        type=column.kind.value,
        description=column.meaning,
        constraints=dg.TableColumnConstraints(
            nullable=column.nullable,
            unique=table.key == ("run_id",) == (column.name,),
            other=list(_limits(table, column)),
        ),
    )


def _limits(table: Table, column: Column) -> Iterable[str]:
    if column.one_of:
        yield f"one of {', '.join(column.one_of)}"
    if column.minimum is not None:
        yield f"at least {column.minimum}"
    if column.maximum is not None:
        yield f"at most {column.maximum}"
    if column in table.sealed:
        yield "sealed"


def tables_of(keys: Iterable[dg.AssetKey], tables: Iterable[Table]) -> list[Table]:
    """Those tables whose assets are among the keys."""
    wanted = set(keys)
    return [table for table in tables if asset_key(table.full_name) in wanted]
