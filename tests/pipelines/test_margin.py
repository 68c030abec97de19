from __future__ import annotations

import pytest

from gold.margin import MARGIN
from lake.errors import ContractBroken
from pipelines.definitions import build_context
from pipelines.settings import environment, settings


def test_the_margin_is_what_was_typed_else_what_the_environment_says() -> None:
    assert settings(environment={}).margin == MARGIN
    assert settings(environment={"TEETOTAL_MARGIN": "0.05"}).margin == 0.05
    chosen = settings(environment={"TEETOTAL_MARGIN": "0.05"}, margin="0.01")
    assert chosen.margin == build_context(chosen).margin == 0.01


def test_a_process_of_its_own_finds_the_same_margin() -> None:
    chosen = settings(environment={}, margin="0.035")
    assert settings(environment=environment(chosen)).margin == chosen.margin


@pytest.mark.parametrize("text", ["2", "2 %", "0", "-0.1", "nan", "1e-2", "0.02x"])
def test_a_margin_that_is_no_fraction_is_refused(text: str) -> None:
    with pytest.raises(ContractBroken, match="the margin is"):
        settings(environment={}, margin=text)
