"""All tables of the lake, by name, and the page that describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assets.build import bronze, gold, silver
from lake.errors import EvidenceRejected, nearest

if TYPE_CHECKING:
    from lake.tables import Column, Table

TABLES: dict[str, Table] = {table.full_name: table for table in (*bronze.TABLES, *silver.TABLES, *gold.TABLES)}
_TIERS = {
    "bronze": "what the source said",
    "silver": "what it meant",
    "gold": "the answers",
}


def table(name: str) -> Table:
    """The table of that name; a wrong one is answered with the nearest right one."""
    if name not in TABLES:
        raise EvidenceRejected(f"there is no table {name[:160]!r}", nearest(name[:160], TABLES))
    return TABLES[name]


def render_page() -> str:
    """The text of `docs/tables.md`."""
    lines = [
        "# Tables",
        "",
        "Written by `python -m assets.build.catalogue` from the declarations; a test says that it is current.",
    ]
    for tier, what in _TIERS.items():
        declared = [table for table in TABLES.values() if table.tier == tier]
        if not declared:
            continue
        lines += ["", f"## {tier.capitalize()}: {what}"]
        for entry in sorted(declared, key=lambda table: table.name):
            lines += [
                "",
                f"### `{entry.full_name}`",
                "",
                entry.grain,
                "",
                _key(entry),
                "",
                "| column | kind | meaning |",
                "|---|---|---|",
            ]
            lines += [f"| `{column.name}` | {_kind(column)} | {_meaning(column)} |" for column in entry.columns]
    return "\n".join(lines) + "\n"


def _key(entry: Table) -> str:
    key, parts = (", ".join(f"`{name}`" for name in names) for names in (entry.key, entry.partition_by))
    return f"Key: {key}. Partitioned by {parts}."


def _kind(column: Column) -> str:
    return f"{column.kind.value}{', may be null' if column.nullable else ''}"


def _meaning(column: Column) -> str:
    notes = [column.meaning]
    if column.one_of:
        notes.append(f"One of {', '.join(f'`{value}`' for value in column.one_of)}.")
    if column.minimum is not None:
        notes.append(f"At least {column.minimum}.")
    if column.maximum is not None:
        notes.append(f"At most {column.maximum}.")
    if column.sensitive:
        notes.append("Sensitive: sealed from silver on.")
    return " ".join(notes).replace("|", "\\|")


if __name__ == "__main__":
    from pathlib import Path

    (Path(__file__).parents[2] / "docs" / "tables.md").write_text(render_page(), "utf-8")
