"""All tables of the lake, found in their own modules, and the graph that their declarations make.

A module of a tier that has a `TABLE` is a table: nobody lists tables a second time. A table names its inputs; the order
in which tables are built, what Dagster shows, what `--to` asks for and when a table is stale follow from that.
"""

from __future__ import annotations

import pkgutil
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from typing import TYPE_CHECKING

from assets.build.declarations import PACKAGES, import_table_module
from lake.errors import ContractBroken, EvidenceRejected, nearest
from lake.tables import Scope, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType

    from lake.frames import Frame
    from lake.tables import Column

LANDING = "landing.runs"
_TRANSFORMS = {"silver": "conform", "gold": "measure"}
_TIERS = {
    "bronze": "what the source said",
    "silver": "what it meant",
    "gold": "the answers",
}
# Spans never go without the count that holds that no event was lost on the way to them.
_PROVED_BY = {"silver.spans": "silver.rule_counts"}


def find_tables(package: ModuleType) -> list[Table]:
    """The tables of a tier: of each module that declares one, by the modules' names."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    declared = ((name, getattr(import_module(f"{package.__name__}.{name}"), "TABLE", None)) for name in names)
    # A module may also import another's table under that name.
    return [table for name, table in declared if isinstance(table, Table) and table.name == name]


def sort_tables(tables: Sequence[Table]) -> list[list[Table]]:
    """The tables in the order in which they need each other: those of one wave can be built at the same time."""
    by_name = {table.full_name: table for table in tables}
    sorter = TopologicalSorter(
        {name: [one for one in table.inputs if one in by_name] for name, table in by_name.items()}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        raise ContractBroken(f"tables are made from each other in a circle: {' from '.join(error.args[1])}") from error
    waves = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        waves.append([by_name[name] for name in ready])
        sorter.done(*ready)
    return waves


def find_inputs(tables: Iterable[Table]) -> dict[str, tuple[str, ...]]:
    """Each table's name, and the names of what it is made from; one that no table bears is refused."""
    known = {table.full_name: table for table in tables}
    for table in known.values():
        for name in table.inputs:
            if name not in known:
                raise ContractBroken(f"{table.full_name} is made from {name}, which is no table", nearest(name, known))
    return {name: (LANDING,) if table.tier == "bronze" else table.inputs for name, table in known.items()}


_DECLARED = [table for package in PACKAGES.values() for table in find_tables(package)]
_FOUND = {
    tier: [table for table in _DECLARED if table.tier == tier and table.scope is not Scope.QUESTION]
    for tier in PACKAGES
}
UPSTREAM: Mapping[str, tuple[str, ...]] = find_inputs(table for tables in _FOUND.values() for table in tables)
TABLES: dict[str, Table] = {
    table.full_name: table for tables in _FOUND.values() for wave in sort_tables(tables) for table in wave
}
# Declared like the others and in no lake: a command computes them from what it is asked.
ANSWERS: dict[str, Table] = {table.full_name: table for table in _DECLARED if table.scope is Scope.QUESTION}


def select(tier: str, *scopes: Scope) -> tuple[Table, ...]:
    """The tables of a tier, or those of some scopes, in the order in which they are built."""
    return tuple(table for table in TABLES.values() if table.tier == tier and (not scopes or table.scope in scopes))


def table(name: str) -> Table:
    """The table of that name; a wrong one is answered with the nearest right one."""
    if name not in TABLES:
        raise EvidenceRejected(f"there is no table {name[:160]!r}", nearest(name[:160], TABLES))
    return TABLES[name]


def find_transform(declared: Table) -> Callable[..., Frame]:
    """The function that makes a table's rows: `conform` of a module of silver, `measure` of one of gold."""
    module = import_table_module(declared.tier, declared.name)
    transform: Callable[..., Frame] = getattr(module, _TRANSFORMS[declared.tier])
    return transform


def list_required(names: Iterable[str]) -> frozenset[str]:
    """These tables, all that they are made from, and what proves that nothing of it was lost."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and name != LANDING:
            found.add(name)
            waiting += UPSTREAM[name]
            waiting += [_PROVED_BY[name]] if name in _PROVED_BY else []
    return frozenset(found)


# -- the page of tables -----------------------------------------------------------------------------------------------


def render_page() -> str:
    """The text of `docs/tables.md`."""
    lines = [
        "# Tables",
        "",
        "Written by `python -m assets.build.catalogue` from the declarations; a test says that it is current.",
    ]
    for tier, what in _TIERS.items():
        lines += ["", f"## {tier.capitalize()}: {what}"]
        answers = [table for table in ANSWERS.values() if table.tier == tier]
        for entry in sorted((*select(tier), *answers), key=lambda table: table.name):
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
    key, parts, inputs = (
        ", ".join(f"`{name}`" for name in names) for names in (entry.key, entry.partition_by, entry.inputs)
    )
    if entry.scope is Scope.QUESTION:
        return f"Key: {parts}, {key}. In no lake: computed when a command asks."
    return f"Key: {key}. Partitioned by {parts}.{f' Made from {inputs}.' if inputs else ''}"


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
