"""What signs commits as they are made: the build that it names, the digests of what was read, and the log after it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake.digest import combine
from lake.lineage.envelope import STATEMENT, sign_payload
from lake.lineage.log import StatementLog
from lake.lineage.statements import ROWS, Build, Material, name_partition, write_inventory, write_statement
from lake.open_tables import share_tables
from lake.snapshot import format_label, mark_of, stated_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lake.durability import Disk
    from lake.lineage.keys import SigningKeys
    from lake.lineage.log import LogState
    from lake.locations import Location
    from lake.tables import Table


def describe_nothing(_: Table) -> Build:
    """A build of which nothing is said."""
    return Build()


@dataclass(frozen=True)
class Lineage:
    """Signs the commits of one lake."""

    place: Location
    keys: SigningKeys
    describe: Callable[[Table], Build] = describe_nothing
    # Said in every statement: the engine.
    notes: Mapping[str, str] = field(default_factory=dict)
    # The oldest version of each table that was committed and is not in the log yet.
    _touched: dict[str, int] = field(default_factory=dict, repr=False)

    def noting(self, **notes: str) -> Lineage:
        """The same, which says something more in every statement."""
        return replace(self, notes={**self.notes, **notes})

    def sign(
        self,
        table: Table,
        partition: str,
        content_sha256: str,
        files: Mapping[str, str],
        materials: Sequence[Material],
        **parameters: str,
    ) -> str | None:
        """The signed statement of a partition that is about to be committed; none where nobody signs."""
        if self.keys.signer is None:
            return None
        statement = write_statement(
            table.full_name,
            partition,
            content_sha256,
            {f"{table.path}/{path}": sha256 for path, sha256 in files.items()},
            materials,
            self.describe(table),
            {**self.notes, **parameters},
        )
        return sign_payload(STATEMENT, statement, self.keys.signer)

    def find_materials(self, inputs: Iterable[str], partitions: Iterable[str]) -> list[Material]:
        """The partitions of some tables that a partition is made from, by the digest of their rows as they are now."""
        names = list(partitions)
        return [
            Material(name_partition(table, name), self._find_digest(table, name), ROWS)
            for table in inputs
            for name in names
        ]

    def note_commit(self, table: str, version: int) -> None:
        """Remember what was committed, for the log."""
        self._touched[table] = min(version, self._touched.get(table, version))

    def log_commits(self, tables: Iterable[str], disk: Disk | None) -> LogState | None:
        """Add the statements of commits to the log, those of an earlier, killed run too; none where nobody signs."""
        if self.keys.signer is None:
            return None
        names = list(tables)
        state = StatementLog(self.place).append_commits(
            names,
            dict(self._touched),
            self.keys.signer,
            self.keys.trust.current,
            disk,
            lambda: self._take_inventory(names),
        )
        self._touched.clear()
        return state

    def _find_digest(self, table: str, partition: str) -> str:
        log = share_tables(self.place).read(table)
        return combine(map(format_label, () if log is None else log.files.get(partition, ())))

    def _take_inventory(self, tables: Iterable[str]) -> list[bytes]:
        """What a new log begins with: the rows of all partitions that nobody has signed, as they are now."""
        found = {}
        for table in tables:
            log = share_tables(self.place).read(table)
            if log is None:
                continue
            for partition, files in log.files.items():
                rows = combine(map(format_label, files))
                if log.find_mark(stated_id(partition)) != mark_of(rows):
                    found[name_partition(table, partition)] = rows
        if not found or self.keys.signer is None:
            return []
        return [sign_payload(STATEMENT, write_inventory(found), self.keys.signer).encode()]
