"""A sensitive field of `run.toml` that is malformed is named with what is wrong, never with its value."""

from __future__ import annotations

import pytest

from bronze.manifest import CLAIMS, parse
from lake.errors import EvidenceRejected

SENSITIVE = [claim.name for claim in CLAIMS if claim.sensitive]


@pytest.mark.parametrize("name", SENSITIVE)
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("424242", "a whole number"),
        ("4242.42", "a number"),
        ('["424242"]', "a list"),
        ('{ at = "424242" }', "a table"),
        ("4242-04-24", "another kind of value"),
    ],
)
def test_a_malformed_sensitive_value_is_told_by_its_kind_alone(name: str, value: str, kind: str) -> None:
    with pytest.raises(EvidenceRejected) as refused:
        parse(f"{name} = {value}\n".encode(), "a/run.toml")
    assert f"{name}: expected a text, found {kind}" in str(refused.value)
    assert "4242" not in repr(vars(refused.value))


def test_a_malformed_value_that_is_not_sensitive_is_still_shown() -> None:
    assert SENSITIVE
    with pytest.raises(EvidenceRejected, match="model: expected a text, found 424242"):
        parse(b"model = 424242\n", "a/run.toml")
