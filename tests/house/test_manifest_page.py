"""The page on `run.toml` names every field, with its meaning and what it may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from bronze.manifest import CLAIMS
from lake.tables import Column

PAGE = (Path(__file__).parent.parent.parent / "docs" / "manifest.md").read_text("utf-8")


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_field_is_on_the_page_with_its_meaning(claim: Column) -> None:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{claim.name}` | {claim.kind} |")]
    assert claim.meaning in line
    assert all(f"`{value}`" in line for value in claim.one_of)


def test_the_page_names_no_field_that_is_none() -> None:
    named = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert named == [claim.name for claim in CLAIMS]
