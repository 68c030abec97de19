"""One commit to a Delta table: what it removes, how it is tried, and what it says when others were always first."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltalake import PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import RemoveAction

from lake.cut_off import is_cut_off
from lake.errors import SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction

    from lake.tables import Table

TRIES = 40
# After how many entries a table's log is written down as a whole.
CHECKPOINT_INTERVAL = 20
# Old entries are deleted by `Lake.tidy`, when the checkpoint that stands in for them is on the disk.
_HOOKS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


# How many lines an entry has, said in its first one: an entry that was cut at the end of a line is found by it.
LINES = "teetotal.lines"


class CommitConflict(Exception):
    """Another writer committed first."""


@dataclass(frozen=True)
class RemovedFile:
    """A data file that is no longer part of a table."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    modification_time: int = field(default_factory=lambda: int(time.time() * 1000))

    def make_action(self) -> RemoveAction:
        """What Delta will write of it."""
        return RemoveAction(self.path, True, self.modification_time, self.size, dict(self.partition_values))


def commit_actions(
    handle: DeltaTable, actions: Sequence[AddAction | RemovedFile], table: Table, properties: CommitProperties
) -> None:
    """Have Delta add an entry to a table's log; a conflict, or a request that was cut off, is worth another try."""
    try:
        handle.create_write_transaction(
            [one.make_action() if isinstance(one, RemovedFile) else one for one in actions],
            "append",
            handle.schema(),
            list(table.partition_by),
            commit_properties=properties,
            post_commithook_properties=_HOOKS,
        )
    except CommitFailedError as error:
        raise CommitConflict from error
    except (OSError, DeltaError) as error:
        if is_cut_off(error):  # it may be in the log, or not: whoever tries again looks first
            raise CommitConflict from error
        raise


def describe_commit(notes: Mapping[str, str], actions: Sequence[object], marks: Sequence[object]) -> dict[str, str]:
    """What an entry says of itself, and how many lines it has: its own description, each action and each mark."""
    return {LINES: str(1 + len(actions) + len(marks)), **notes}


def wait_before_retry(attempt: int) -> None:
    """Let other writers finish."""
    time.sleep(random.uniform(0, 0.02 * (attempt + 1)))  # noqa: S311 - jitter, not a secret


def too_many_conflicts(table: Table, run_id: str) -> SourceUnavailable:
    """The error of a commit that never was first."""
    return SourceUnavailable(
        f"{table.full_name}, run {run_id}: {TRIES} commits in a row lost to other writers",
        "run it again when fewer writers are at work on this lake",
    )
