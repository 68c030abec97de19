from __future__ import annotations

from typing import Any

import pytest

from report.sentences import describe_other_source, headline, is_concluded, lead, tell_verdict


def step(**fields: Any) -> dict[str, Any]:
    """An answer of gold.step_overhead, by the log unless it says otherwise."""
    known = {"source": "log", "slowdown_ratio": 1.2, "verdict_class": "slower", "verdict": "1.20x slower"}
    others = {f"other_slowdown_{end}ratio": None for end in ("", "low_", "high_")}
    return {**known, **others, "evidence": "measured", "other_source": None, "disagreement": None, **fields}


def log(**fields: Any) -> dict[str, Any]:
    """An answer of gold.throughput_overhead."""
    known = {"slowdown_ratio": 1.3, "verdict_class": "slower", "verdict": "1.30x slower", "evidence": "measured"}
    return {**known, **fields}


@pytest.mark.parametrize(
    ("of_steps", "of_log", "is_log_leading"),
    [
        (step(), None, False),
        (step(), log(), False),
        (step(source="trace"), log(), True),
        (step(source="trace"), log(slowdown_ratio=None, evidence="unobservable"), False),
        (step(evidence="modelled"), log(), True),
        (step(source="trace"), log(evidence="modelled"), False),
        (step(source=None, slowdown_ratio=None, evidence="unobservable"), log(evidence="modelled"), True),
    ],
)
def test_the_best_evidence_leads(of_steps: dict[str, Any], of_log: dict[str, Any] | None, is_log_leading: bool) -> None:
    assert lead(of_steps, of_log) is (of_log if is_log_leading else of_steps)


@pytest.mark.parametrize("kind", ["not_shown", "inconclusive"])
def test_no_number_stands_in_large_letters_beside_no_conclusion(kind: str) -> None:
    assert headline(step(verdict_class=kind)) == kind.replace("_", " ")
    assert not is_concluded(step(verdict_class=kind))
    assert headline(step()) == "1.20×"  # noqa: RUF001


def test_a_disagreement_is_said_first_and_else_the_source_is() -> None:
    assert tell_verdict(step()) == "by its training log: 1.20x slower"
    assert tell_verdict(step(source="trace")) == "by its trace: 1.20x slower"
    said = "the sources disagree: 1.20x by the log, 1.40x by the trace; by the log: 1.20x slower"
    assert tell_verdict(step(disagreement="the sources disagree", verdict=said)) == said


def test_the_weaker_source_stands_beside_the_one_that_leads() -> None:
    both = step(other_source="trace", other_slowdown_ratio=1.4)
    assert describe_other_source(both, both) == "by its trace: 1.40x, no interval"
    both |= {"other_slowdown_low_ratio": 1.3, "other_slowdown_high_ratio": 1.5}
    assert describe_other_source(both, both) == "by its trace: 1.40x, 1.30 to 1.50"
    traced = step(source="trace")
    assert describe_other_source(traced, log()) == "by its trace: 1.20x slower"
    assert describe_other_source(traced, traced) is None
