"""One commit to a Delta table: what it removes, how it is tried, and what it says when others were always first."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import RemoveAction

from lake.cut_off import is_cut_off
from lake.errors import SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable, Transaction

    from lake.tables import Table

TRIES = 40
# Old entries are deleted by `Lake.tidy`, when the checkpoint that stands in for them is on the disk.
_HOOKS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


# How many lines an entry has, said in its first one: an entry that was cut at the end of a line is found by it.
LINES = "teetotal.lines"


class CommitConflict(Exception):
    """Another writer committed first."""


def commit_actions(handle: DeltaTable, actions: list[Any], table: Table, properties: CommitProperties) -> None:
    """Add an entry to a table's log; a conflict, or a request that was cut off, is worth another try."""
    try:
        handle.create_write_transaction(
            actions,
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


def describe_commit(notes: Mapping[str, str], actions: Sequence[object], marks: list[Transaction]) -> CommitProperties:
    """What an entry says of itself, and how many lines it has: its own description, each action and each mark."""
    return CommitProperties(
        custom_metadata={LINES: str(1 + len(actions) + len(marks)), **notes}, app_transactions=marks
    )


def remove_file(path: str, size: int, values: Mapping[str, str | None]) -> RemoveAction:
    """What the Delta log will say of a file that is no longer part of a table."""
    return RemoveAction(path, True, int(time.time() * 1000), size, dict(values))


def wait_before_retry(attempt: int) -> None:
    """Let other writers finish."""
    time.sleep(random.uniform(0, 0.02 * (attempt + 1)))  # noqa: S311 - jitter, not a secret


def too_many_conflicts(table: Table, run_id: str) -> SourceUnavailable:
    """The error of a commit that never was first."""
    return SourceUnavailable(
        f"{table.full_name}, run {run_id}: {TRIES} commits in a row lost to other writers",
        "run it again when fewer writers are at work on this lake",
    )
