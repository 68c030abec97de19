"""All that was said of a lake and counts: statements whose signatures hold, and what is wrong with the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.digest import combine
from lake.lineage.delta_entries import find_statement, read_entries
from lake.lineage.log import Leaves, StatementLog
from lake.lineage.merkle import compute_root
from lake.lineage.notes import Checkpoint, read_checkpoint
from lake.lineage.statements import EVERY, parse_inventory, parse_statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lake.lineage.envelope import Envelope
    from lake.lineage.keys import Trust
    from lake.lineage.statements import Statement
    from lake.locations import Location

NOTHING = combine([])


@dataclass(frozen=True)
class Entry:
    """One statement that counts, and its place in the log; none where its commit is not in the log yet."""

    place: int | None
    statement: Statement

    def __str__(self) -> str:
        where = "a statement that is not in the log yet" if self.place is None else f"statement {self.place}"
        return f"{where} ({self.statement.made_at}, key {self.statement.key_id})"


@dataclass
class History:
    """What the log and the latest commits say of each partition."""

    leaves: Leaves
    origin: str = ""
    faults: list[str] = field(default_factory=list)
    unlogged: int = 0
    keys: Counter[str] = field(default_factory=Counter)
    # Partitions that were there, unsigned, when signing began: their rows.
    inventory: dict[tuple[str, str], str] = field(default_factory=dict)
    inventory_place: int | None = None
    _said: dict[tuple[str, str], list[Entry]] = field(default_factory=lambda: defaultdict(list))

    def list_said(self, table: str, partition: str) -> list[Entry]:
        """All that was said of a partition, the oldest first."""
        return self._said.get((table, partition), [])

    def find_latest(self, table: str, partition: str) -> Entry | None:
        """What holds of a partition now."""
        return next(reversed(self.list_said(table, partition)), None)

    def find_said(self, table: str, partition: str, content_sha256: str) -> Entry | None:
        """The last statement that a partition had these rows."""
        said = reversed(self.list_said(table, partition))
        return next((one for one in said if one.statement.content_sha256 == content_sha256), None)

    @property
    def partitions(self) -> list[tuple[str, str]]:
        """The partitions of which anything was said."""
        return sorted(name for name in self._said if name[1] != EVERY)

    def add(self, entry: Entry) -> None:
        """Take one more statement in."""
        statement = entry.statement
        self.keys[statement.key_id] += 1
        names = [name for name in self._said if name[0] == statement.table and name[1] != EVERY]
        for name in names if statement.partition == EVERY else [statement.name]:
            self._said[name].append(entry)


def read_history(place: Location, trust: Trust, tables: Iterable[str], since: tuple[str, str] | None = None) -> History:
    """Read the log of a lake, and the commits that are not in it yet; `since` is a kept checkpoint and its name."""
    log = StatementLog(place)
    history = History(log.read())
    history.faults += history.leaves.faults
    refused: dict[str, list[str]] = defaultdict(list)
    for number, line in enumerate(history.leaves.lines):
        envelope, statement = parse_statement(line)
        inventory = None if envelope is None else parse_inventory(envelope)
        why = _find_problem(envelope, statement, trust, number, is_inventory=inventory is not None and number == 0)
        if why is None and inventory is not None:
            history.inventory = {_split_name(name): rows for name, rows in inventory.items()}
            history.inventory_place = number
        elif why is None and statement is not None:
            history.add(Entry(number, statement))
        else:
            name = "" if statement is None else f" ({statement.table}, run {statement.partition})"
            refused[why or ""].append(f"statement {number}{name}")
    history.faults += [_describe(names, why) for why, names in refused.items()]
    _check_state(history, log, trust)
    if since is not None:
        _check_since(history, trust, *since)
    _add_unlogged(history, place, trust, tables)
    return history


def _split_name(name: str) -> tuple[str, str]:
    table, _, partition = name.partition("/")
    return table, partition


def _find_problem(
    envelope: Envelope | None, statement: Statement | None, trust: Trust, number: int, *, is_inventory: bool = False
) -> str | None:
    """Why a statement does not count."""
    if envelope is None or (statement is None and not is_inventory):
        return "no statement of a partition in a signed envelope"
    trusted = trust.find(envelope.key_id)
    if trusted is None:
        return f"signed by key {envelope.key_id}, which {trust.place} does not list"
    if not envelope.is_signed_by(trusted.key):
        return f"not signed by key {envelope.key_id}, which it names: it was forged or changed"
    if trusted.revoked_after is not None and number >= trusted.revoked_after:
        return f"signed by key {envelope.key_id}, which was revoked"
    return None


def _describe(names: list[str], why: str) -> str:
    more = f" and {len(names) - 1:,} more are" if len(names) > 1 else " is"
    return f"the log: {names[0]}{more} {why}"


def _check_state(history: History, log: StatementLog, trust: Trust) -> None:
    """Compare the log with what its last writer signed."""
    state = log.read_state([one.key for one in trust.keys])
    if not state.checkpoint:
        if history.leaves.lines:
            history.faults.append("the log: its end (_lineage/state.json) is not signed by a key that is trusted")
        return
    checkpoint, _ = read_checkpoint(state.checkpoint, (), "_lineage/state.json")
    history.origin = checkpoint.origin
    _compare(history, checkpoint, "as its last writer signed it")


def _check_since(history: History, trust: Trust, text: str, where: str) -> None:
    """Compare the log with a checkpoint that somebody kept."""
    checkpoint, key = read_checkpoint(text, [one.key for one in trust.keys], where)
    if key is None:
        history.faults.append(f"{where}: no key that {trust.place} lists has signed this checkpoint")
    elif history.origin and checkpoint.origin != history.origin:
        history.faults.append(f"{where} is of the log {checkpoint.origin}, not of {history.origin}")
    else:
        _compare(history, checkpoint, f"as {where} has it")


def _compare(history: History, checkpoint: Checkpoint, whence: str) -> None:
    held = len(history.leaves.lines)
    if held < checkpoint.size:
        history.faults.append(
            f"the log holds {held:,} statements, and held {checkpoint.size:,} {whence}: the last were taken away"
        )
    elif compute_root(history.leaves.hashes[: checkpoint.size]) != checkpoint.root:
        history.faults.append(
            f"the first {checkpoint.size:,} statements of the log are not those {whence}: some were changed, "
            "taken away or put in another order"
        )


def _add_unlogged(history: History, place: Location, trust: Trust, tables: Iterable[str]) -> None:
    """Take in what commits say that are not in the log: their launch was killed, or is at work."""
    known = set(history.leaves.lines)
    for table in tables:
        for _, entry in read_entries(place, table, None):
            text = find_statement(entry)
            line = b"" if text is None else text.encode()
            if not line or line in known:
                continue
            envelope, statement = parse_statement(line)
            problem = _find_problem(envelope, statement, trust, len(known))
            if problem is None and statement is not None and statement.table == table:
                history.add(Entry(None, statement))
                history.unlogged += 1
            else:
                history.faults.append(f"{table}: a commit carries a statement that is {problem or 'of another table'}")
