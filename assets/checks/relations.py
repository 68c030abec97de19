"""What one table cannot say of itself: how its rows relate to those of other tables, by tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assets.checks import bronze_relations, gold_relations, silver_relations

if TYPE_CHECKING:
    from assets.checks.relation import Relation
    from lake.tables import Table

RELATIONS: tuple[Relation, ...] = (
    *bronze_relations.RELATIONS,
    *silver_relations.RELATIONS,
    *gold_relations.RELATIONS,
)


def list_relations(table: Table) -> tuple[Relation, ...]:
    """The relations that a table is held to."""
    return tuple(relation for relation in RELATIONS if relation.table.full_name == table.full_name)
