"""Whether runs and comparisons are up to date: made from what is there now, and checked; and if not, why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from assets.build import freshness, gold
from assets.build.catalogue import TABLES
from assets.build.comparisons import COMPARISON_TABLES, explain_published, stale_families, stale_pairs
from assets.build.forecasts import stale_regimes
from assets.build.freshness import Look
from assets.build.histories import stale_histories
from assets.build.state_memory import MADE, MANY_RUNS, find_settled, recall, remember
from assets.build.tiers import TIERS, list_left_out
from assets.checks import outcomes
from assets.checks.outcomes import asset_checks, read_verdicts
from gold import published
from gold.margin import MARGIN
from lake.attestation_keys import NO_KEYS, AttestationKeys
from lake.errors import ContractBroken
from lake.tables import Scope

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from assets.build.tiers import Tables
    from assets.checks.outcomes import Outcome, Verdict
    from lake.landing_zone import LandingZone
    from lake.settled_runs import SettledRuns
    from lake.store import Lake
    from lake.tables import Table

NOT_CHECKED = "not checked since it was built"


@dataclass(frozen=True)
class State:
    """What is known of one run, or of one partition of a comparison."""

    # Why a table of it must be made, in a few words.
    stale: str | None = None
    # Of what is made: the checks that failed, and that nothing was changed since.
    failed: tuple[Outcome, ...] = ()
    warned: tuple[Outcome, ...] = ()
    is_checked: bool = True
    # Why a comparison that it is part of must be made; it may be up to date itself.
    comparison: str | None = None

    def needs_launch(self, *, check: bool = True) -> bool:
        """Whether there is something to make or to check; what failed is not tried again while nothing changes."""
        return self.stale is not None or (check and not self.is_checked and not self.failed)

    @property
    def word(self) -> str:
        """The state in one word."""
        if self.failed:
            return "failed"
        if self.stale is not None or self.comparison is not None:
            return "stale"
        return "up-to-date" if self.is_checked else "unchecked"

    @property
    def reasons(self) -> list[str]:
        """Why it is not up to date, and what to know if it is."""
        return [
            *(f"check failed: {one}" for one in self.failed),
            *(f"stale: {why}" for why in (self.stale, self.comparison) if why is not None),
            *([] if self.is_checked or self.stale is not None or self.failed else [NOT_CHECKED]),
            *(f"check warns: {one}" for one in self.warned),
        ]

    @property
    def fault(self) -> ContractBroken | None:
        """The failed checks as an error; none where none failed."""
        if not self.failed:
            return None
        first, *more = self.failed
        return ContractBroken(
            f"check failed: {first}{f', and {len(more)} more' if more else ''}",
            "it stays failed until the rows or the rules change; `teetotal run --full` makes the rows and checks again",
        )


def assess_runs(
    lake: Lake,
    zone: LandingZone,
    run_ids: Iterable[str],
    keys: AttestationKeys = NO_KEYS,
    tables: Tables = TIERS,
    pair_tables: Sequence[Table] = gold.PAIR_TABLES,
    *,
    check: bool = True,
    names: Collection[str] | None = None,
    margin: float = MARGIN,
    memory: SettledRuns | None = None,
    look: Look | None = None,
) -> dict[str, State]:
    """The state of each run, of these tables of it; each table's log is read once for any number of runs.

    With `names`, only those of the tables have to be checked: bronze is always made whole, whatever was asked for.
    With `check`, a failed check ends the look: what lies downstream was rightly not made.
    With `memory`, or where all tables of many runs are asked for, only what has changed since the last look is.
    With `look`, what it has seen is not looked at again.
    """
    asked, look = list(run_ids), look or Look(lake, zone, keys)
    made = [*(table for some in tables.values() for table in some), *pair_tables]
    promised = [table for table in made if names is None or table.full_name in names]
    if not check or set(promised) != set(MADE):
        memory = None  # of a part of the tables nothing is remembered
    elif memory is None and len(asked) >= MANY_RUNS:
        memory = recall(look)
    settled = set() if memory is None else find_settled(memory, look, asked)
    rest = [run_id for run_id in asked if run_id not in settled]
    verdicts = read_verdicts(lake, look, rest, asset_checks(promised, list_left_out(tables)))
    # Bronze always: a part that reads it asks that it be there as it is.
    steps = {"bronze": TIERS["bronze"], **tables, "pairs": pair_tables}
    # A pair goes stale by what becomes of other runs, too.
    parts = {step: asked if step == "pairs" else rest for step in steps}
    stale = {step: find_stale(look, some, parts[step], margin) for step, some in steps.items()}
    steps["bronze"] = tables.get("bronze", ())
    found = dict.fromkeys(asked, State())
    found |= {run_id: State(stale=stale["pairs"][run_id]) for run_id in settled.intersection(stale["pairs"])}
    found |= {run_id: _assess(run_id, steps, stale, verdicts[run_id], check=check) for run_id in rest}
    if memory is not None:
        remember(memory, look, [run_id for run_id in rest if found[run_id] == State()])
    return found


def find_stale(
    look: Look, tables: Sequence[Table], partitions: Collection[str] | None = None, margin: float = MARGIN
) -> dict[str, str]:
    """Of tables of one scope, the partitions that are not made from what is there now, and why: all, or of some.

    This is the one answer to "is it up to date, and if not, why": for runs, pairs, families, regimes, workloads and
    publications.
    """
    scope = tables[0].scope if tables else Scope.RUN
    if scope is Scope.RUN:
        return freshness.find_stale(look, tables, partitions or ())
    if scope is Scope.PAIR:
        return {one.run_id: one.why for one in stale_pairs(look, only=partitions, margin=margin)}
    if scope is Scope.FAMILY:
        found = {one.partition: one.why for one in stale_families(look)}
    elif scope is Scope.REGIME:
        found = {one.regime: one.why for one in stale_regimes(look, tables)}
    elif scope is Scope.WORKLOAD:
        found = {one.partition: one.why for one in stale_histories(look)}
    else:
        why = explain_published(look)
        found = {} if why is None else {published.COLLECTION: why}
    return {name: why for name, why in found.items() if partitions is None or name in partitions}


def assess_gone(lake: Lake, run_ids: Collection[str], margin: float = MARGIN) -> dict[str, str]:
    """Of runs that are in the lake alone: those whose pairs are stale, and why."""
    return find_stale(Look(lake), gold.PAIR_TABLES, run_ids, margin)


def assess_comparisons(
    lake: Lake, tables: Sequence[Table] = COMPARISON_TABLES, look: Look | None = None
) -> dict[tuple[str, str], State]:
    """The state of each partition of what is measured across runs, by the table's name and the partition's."""
    look, found = look or Look(lake), {}
    for table in tables:
        stale = find_stale(look, [table])
        partitions = {*look.snapshot(table).run_ids, *stale}
        verdicts = read_verdicts(lake, look, partitions, asset_checks([table]))
        for partition in sorted(partitions):
            state = _judge(verdicts[partition], {table.full_name}, State(stale.get(partition)))
            found[table.full_name, partition] = state
    return found


def add_comparisons(look: Look, states: dict[str, State]) -> dict[str, State]:
    """The same states, where a run whose family, regime or history is stale says so."""
    stale = {member: one.why for one in stale_histories(look) for member in one.members}
    stale |= {member: one.why for one in stale_regimes(look) for member in one.members}
    stale |= {member: one.why for one in stale_families(look) for member in one.members}
    return states | {
        run_id: replace(states[run_id], comparison=why) for run_id, why in stale.items() if run_id in states
    }


def list_left_over(lake: Lake) -> list[str]:
    """One sentence for each table of the lake that no module declares any more: an earlier version wrote it."""
    known = {*TABLES, outcomes.TABLE.full_name}
    stored = lake.list_stored(sorted({name.partition(".")[0] for name in known}))
    return [
        f"{name} is left over from another version and nothing reads it: delete {lake.place}/{name.replace('.', '/')}"
        for name in stored
        if name not in known
    ]


def find_failures(lake: Lake, run_ids: Iterable[str]) -> dict[str, State]:
    """What the lake alone knows of the checks of some runs: for a page that is made from the lake alone."""
    tables = (*(table for some in TIERS.values() for table in some), *gold.PAIR_TABLES)
    names = {table.full_name for table in tables}
    verdicts = read_verdicts(lake, Look(lake), run_ids, asset_checks(tables))
    return {run_id: _judge(verdict, names, State()) for run_id, verdict in verdicts.items()}


def _assess(
    run_id: str,
    steps: dict[str, Sequence[Table]],
    stale: dict[str, dict[str, str]],
    verdict: Verdict,
    *,
    check: bool,
) -> State:
    """Walk a run's tables in the order in which they are made, as far as they are made."""
    state, judged = State(), set[str]()
    for step, tables in steps.items():
        judged |= {table.full_name for table in tables}
        if run_id in stale[step]:
            return replace(state, stale=stale[step][run_id])
        state = _judge(verdict, judged, state)
        if check and state.failed:
            return state
    return state


def _judge(verdict: Verdict, names: Collection[str], state: State) -> State:
    """What is known of the checks of these tables."""
    failed = tuple(one for one in verdict.failed if one.table_name in names)
    return replace(
        state,
        failed=tuple(one for one in failed if one.is_blocking),
        warned=tuple(one for one in failed if not one.is_blocking),
        is_checked=not any(name in names for name, _ in verdict.unchecked),
    )
