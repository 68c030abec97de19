"""Which limits a run passes: overhead, violations, spent nonces, a contradicted claim; one sentence each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gold.gate import decide

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gold.alert_limits import AlertLimits

    Row = Mapping[str, Any]

KINDS = ("overhead", "violation", "nonce_budget", "contradiction")


@dataclass(frozen=True)
class Alert:
    """One limit that one run has passed; `value` and `limit` are in the unit of the kind."""

    run_id: str
    kind: str
    sentence: str
    value: float | None = None
    limit: float | None = None

    @property
    def key(self) -> str:
        """What the alert is about: while it lasts it is told once."""
        return f"{self.run_id}:{self.kind}"


def find_alerts(
    runs: Iterable[Row], overheads: Iterable[Row], budgets: Iterable[Row], limits: AlertLimits
) -> list[Alert]:
    """All limits that are passed, by run and kind."""
    found = [*_list_overheads(overheads, limits), *_list_findings(runs, limits), *_list_budgets(budgets, limits)]
    return sorted(found, key=lambda alert: (alert.run_id, KINDS.index(alert.kind)))


def _list_overheads(overheads: Iterable[Row], limits: AlertLimits) -> Iterator[Alert]:
    """Pairs whose whole interval lies above the limit: a few slow steps of a short recording are no alarm."""
    limit = limits.slowdown_ratio
    for row in overheads if limit is not None else ():
        is_open = row["verdict_class"] == "inconclusive"
        low, high = (None if is_open else row[f"slowdown_{end}_ratio"] for end in ("low", "high"))
        if limit is not None and decide(low, high, limit) == "exceeded":
            sentence = f"{row['run_id']} against {row['baseline_run_id']}: {row['verdict']}; limit {limit:g}x"
            yield Alert(row["run_id"], "overhead", sentence, row["slowdown_ratio"], limit)


def _list_findings(runs: Iterable[Row], limits: AlertLimits) -> Iterator[Alert]:
    for row in runs:
        run_id, count, limit = row["run_id"], row["found_violations_count"], limits.violations_count
        if limit is not None and count > limit:
            crossings = "1 crossing breaks" if count == 1 else f"{count:,} crossings break"
            sentence = f"{run_id}: {crossings} the promise of {row['regime']}; limit {limit:,}"
            yield Alert(run_id, "violation", sentence, count, limit)
        if limits.has_contradictions and row["contradictions"] is not None:
            yield Alert(run_id, "contradiction", f"{run_id}: its claim is contradicted: {row['contradictions']}")


def _list_budgets(budgets: Iterable[Row], limits: AlertLimits) -> Iterator[Alert]:
    """The key of each run that has spent most of its messages, where that is more than the limit."""
    limit = limits.nonce_fraction
    worst: dict[str, Row] = {}
    for row in budgets if limit is not None else ():
        if row["run_id"] not in worst or row["used_fraction"] > worst[row["run_id"]]["used_fraction"]:
            worst[row["run_id"]] = row
    for run_id, row in worst.items():
        if limit is not None and row["used_fraction"] > limit:
            used, most = (f"{fraction * 100:.3g}%" for fraction in (row["used_fraction"], limit))
            sentence = f"{run_id}: a key of rank {row['rank']} has sealed {used} of what it may; limit {most}"
            yield Alert(run_id, "nonce_budget", sentence, row["used_fraction"], limit)
