"""Checkpoints of a lake's log, and bundles with everything that it takes to check one run offline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.errors import EvidenceRejected
from lake.lineage.log import StatementLog
from pipelines.cli.session import open_signed_lake

if TYPE_CHECKING:
    from lake.store import Lake
    from pipelines.settings import Settings


def find_checkpoint(lake: Lake, chosen: Settings) -> str:
    """The signed checkpoint of a lake's log, with all commits in it; as it stands where nobody signs here."""
    from lake.lineage.keys import load_trust

    can_sign = chosen.signing is not None and (
        chosen.signing.command or (chosen.signing.key_path or chosen.trust).exists()
    )
    state = open_signed_lake(chosen).log_statements() if can_sign else None
    state = state or StatementLog(lake.place).read_state([one.key for one in load_trust(chosen.trust).keys])
    if not state.size:
        raise EvidenceRejected(
            f"no signed statement in {lake.place}", "`teetotal run --full` makes and signs what is there again"
        )
    return state.checkpoint
