"""Which runs need no second look: they were up to date and checked, and nothing that decides it has changed since."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from assets.build import gold
from assets.build.freshness import digest_code
from assets.build.tiers import TIERS
from assets.checks import outcomes
from assets.checks.outcomes import asset_checks
from lake.errors import LakeError
from lake.settled_runs import SettledRuns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from assets.build.freshness import Look
    from lake.tables import Table

# Fewer are looked at as they are.
MANY_RUNS = 200
MADE: tuple[Table, ...] = (*(table for some in TIERS.values() for table in some), *gold.PAIR_TABLES)
# All logs in which a commit may change what is known of a run; the landing zone, and pairs, are always looked at.
_LOGS = (*MADE, outcomes.TABLE)


def recall(look: Look) -> SettledRuns:
    """What is remembered of the lake, to be read before anything is looked at."""
    checks = [[*check.key, check.rules_sha256] for check in asset_checks(MADE)]
    site = hashlib.sha256(look.site_patterns).hexdigest()
    rules = json.dumps([[digest_code(table) for table in MADE], checks, site])
    return SettledRuns.read(look.place, hashlib.sha256(rules.encode()).hexdigest(), _LOGS)


def find_settled(memory: SettledRuns, look: Look, run_ids: Iterable[str]) -> set[str]:
    """Those of some runs that are up to date and checked, but perhaps for their pairs."""
    if not memory:
        return set()
    return memory.find(_mark_landings(look, run_ids)) - look.replays.keys()


def remember(memory: SettledRuns, look: Look, run_ids: Collection[str]) -> None:
    """Keep that runs are up to date and checked; one that grows is never settled."""
    if run_ids:
        memory.add(_mark_landings(look, run_ids), [look.snapshot(table) for table in _LOGS])
    memory.write()


def _mark_landings(look: Look, run_ids: Iterable[str]) -> dict[str, str]:
    found = {}
    for run_id in run_ids:
        try:
            mark = look.mark_landing(run_id)
        except LakeError:  # it is looked at as it is, which says why
            continue
        if mark is not None and not look.is_open(run_id):
            found[run_id] = mark
    return found
