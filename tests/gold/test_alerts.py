"""Which limits a run passes: each kind fires beyond its limit, stays silent at it, and can be turned off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gold.alert_limits import AlertLimits
from gold.alerts import find_alerts

LIMITS = AlertLimits(slowdown_ratio=1.2)
RUN = {"run_id": "a", "regime": "hopper_ppcie", "found_violations_count": 0, "contradictions": None}
PAIR = {
    "run_id": "a",
    "baseline_run_id": "b",
    "verdict": "1.30x slower",
    "verdict_class": "slower",
    "slowdown_ratio": 1.3,
    "slowdown_low_ratio": 1.21,
    "slowdown_high_ratio": 1.4,
}
KEY = {"run_id": "a", "rank": 3, "used_fraction": 0.2}


def kinds(run: dict[str, Any], pair: dict[str, Any], key: dict[str, Any], limits: AlertLimits = LIMITS) -> list[str]:
    return [alert.kind for alert in find_alerts([run], [pair], [key], limits)]


def test_the_whole_interval_must_lie_beyond_the_limit() -> None:
    assert kinds(RUN, PAIR, KEY) == ["overhead"]
    assert kinds(RUN, {**PAIR, "slowdown_low_ratio": 1.2}, KEY) == []
    assert kinds(RUN, {**PAIR, "slowdown_low_ratio": None}, KEY) == []
    assert kinds(RUN, {**PAIR, "verdict_class": "inconclusive"}, KEY) == []
    assert kinds(RUN, PAIR, KEY, AlertLimits()) == []
    (alert,) = find_alerts([RUN], [PAIR], [KEY], LIMITS)
    assert alert.sentence == "a against b: 1.30x slower; limit 1.2x"
    assert (alert.key, alert.value, alert.limit) == ("a:overhead", 1.3, 1.2)


@pytest.mark.parametrize(
    ("run", "key", "kind"),
    [
        ({"found_violations_count": 1}, {}, "violation"),
        ({"contradictions": "it claims cc_off, yet …"}, {}, "contradiction"),
        ({}, {"used_fraction": 0.51}, "nonce_budget"),
    ],
)
def test_each_kind_fires_by_itself_and_can_be_turned_off(run: dict[str, Any], key: dict[str, Any], kind: str) -> None:
    quiet = {**PAIR, "slowdown_low_ratio": 1.0}
    assert kinds({**RUN, **run}, quiet, {**KEY, **key}) == [kind]
    silent = replace(LIMITS, violations_count=None, nonce_fraction=None, has_contradictions=False)
    assert kinds({**RUN, **run}, quiet, {**KEY, **key}, silent) == []


def test_of_several_keys_of_a_run_the_one_that_has_spent_most_is_told() -> None:
    keys = [{**KEY, "rank": rank, "used_fraction": used} for rank, used in ((0, 0.6), (1, 0.9), (2, 0.7))]
    (alert,) = find_alerts([], [], keys, LIMITS)
    assert alert.sentence == "a: a key of rank 1 has sealed 90% of what it may; limit 50%"
