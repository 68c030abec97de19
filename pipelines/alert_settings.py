"""Which limits a run may not pass unnoticed, and who is told, as the environment says."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gold.alert_limits import AlertLimits
from lake.errors import ContractBroken
from pipelines.webhook import Webhook

if TYPE_CHECKING:
    from collections.abc import Mapping

WEBHOOK, TOKEN = "TEETOTAL_ALERT_WEBHOOK", "TEETOTAL_ALERT_TOKEN"


@dataclass(frozen=True)
class AlertSettings:
    """What fires, and who is told beside the page in the web interface."""

    limits: AlertLimits = field(default_factory=AlertLimits)
    webhook: Webhook | None = None


def read_alert_settings(known: Mapping[str, str]) -> AlertSettings:
    """The limits, each of which may be set to `off`, and the webhook."""
    usual = AlertLimits()
    url, token = known.get(WEBHOOK, "").strip(), known.get(TOKEN, "").strip() or None
    if token is not None and not url:
        raise ContractBroken(f"{TOKEN} is set without {WEBHOOK}", "set the address that the token is for")
    violations = _limit(known, "TEETOTAL_ALERT_VIOLATIONS", usual.violations_count, "0, or a count")
    return AlertSettings(
        AlertLimits(
            slowdown_ratio=_limit(known, "TEETOTAL_ALERT_SLOWDOWN", usual.slowdown_ratio, "a ratio such as 1.25"),
            violations_count=None if violations is None else int(violations),
            nonce_fraction=_limit(known, "TEETOTAL_ALERT_NONCES", usual.nonce_fraction, "a fraction such as 0.5"),
            has_contradictions=known.get("TEETOTAL_ALERT_CONTRADICTIONS", "").strip() != "off",
        ),
        Webhook.parse(url, token, WEBHOOK) if url else None,
    )


def _limit(known: Mapping[str, str], variable: str, default: float | None, expected: str) -> float | None:
    text = known.get(variable, "").strip()
    if not text:
        return default
    if text == "off":
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e18:
        raise ContractBroken(f"{variable} is {text[:80]!r}", f"expected {expected}, or off")
    return value
