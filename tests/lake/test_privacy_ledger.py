"""The ledger of releases: the budget is never exceeded, whoever pays at once and whenever one is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.errors import ContractBroken, EvidenceRejected
from lake.locations import Location
from lake.privacy_ledger import FILE_NAME, format_epsilon, parse_epsilon, pay
from tests.support.ranks import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# Pays again and again until it is refused, and says how often it was not.
PAYS = """
import sys
from lake.errors import EvidenceRejected
from lake.locations import Location
from lake.privacy_ledger import pay
paid = 0
try:
    while True:
        pay(Location.of(sys.argv[1]), 30_000, 1_000_000, {})
        paid += 1
except EvidenceRejected:
    print(paid)
"""
KILLED = """
import os, signal, sys
from lake.locations import Location
from lake.privacy_ledger import pay
pay(Location.of(sys.argv[1]), 600_000, 1_000_000, {})
os.kill(os.getpid(), signal.SIGKILL)
"""


def spent(home: Path) -> int:
    """What the ledger says is spent, in millionths."""
    ledger = json.loads((home / FILE_NAME).read_text("utf-8"))
    return sum(entry["epsilon_millionths"] for entry in ledger["releases"])


@given(budget=st.integers(1, 3_000_000), asked=st.lists(st.integers(1, 2_000_000), max_size=8))
def test_the_budget_is_never_exceeded_and_what_fits_is_paid(
    tmp_path_factory: pytest.TempPathFactory, budget: int, asked: list[int]
) -> None:
    home = tmp_path_factory.mktemp("ledger")
    lake, total = Location.of(home / "lake"), 0
    for epsilon in asked:
        if total + epsilon <= budget:
            total += epsilon
            assert pay(lake, epsilon, budget, {}).left == budget - total
        else:
            with pytest.raises(EvidenceRejected, match="the budget is spent"):
                pay(lake, epsilon, budget, {})
        if total:
            assert spent(home) == total <= budget


def test_releases_at_once_never_spend_more_than_there_is(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PAYS, str(tmp_path / "lake")]
    started = [subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    paid = [int(process.communicate(timeout=120)[0]) for process in started]
    assert sum(paid) == 1_000_000 // 30_000
    assert spent(tmp_path) == sum(paid) * 30_000


def test_a_release_that_is_killed_after_it_paid_is_spent(tmp_path: Path) -> None:
    words = [sys.executable, "-c", KILLED, str(tmp_path / "lake")]
    assert subprocess.run(words, cwd=ROOT, check=False).returncode < 0
    assert spent(tmp_path) == 600_000
    with pytest.raises(EvidenceRejected, match=r"0\.6 of 1 are, and this release would cost 0\.5 .*at most 0\.4"):
        pay(Location.of(tmp_path / "lake"), 500_000, None, {})


def test_a_budget_is_set_once(tmp_path: Path) -> None:
    lake = Location.of(tmp_path / "lake")
    with pytest.raises(EvidenceRejected, match=r"it has no budget .*--budget"):
        pay(lake, 1, None, {})
    pay(lake, 1, 1_000_000, {})
    with pytest.raises(EvidenceRejected, match=r"the budget of this lake is 1, .*bounds nothing"):
        pay(lake, 1, 2_000_000, {})
    assert spent(tmp_path) == 1
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version": 1, "budget_millionths": 5, "releases": [{"epsilon_millionths": -9}]}']
)
def test_what_is_no_ledger_lets_nothing_out(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text, "utf-8")
    with pytest.raises(ContractBroken, match="is no ledger of releases"):
        pay(Location.of(tmp_path / "lake"), 1, 5, {})
    assert (tmp_path / FILE_NAME).read_text("utf-8") == text


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e-9", "101", "much", "0.1234567"])
def test_what_is_no_epsilon_is_refused(text: str) -> None:
    with pytest.raises(ContractBroken, match=r"--epsilon is .* above 0 and up to 100"):
        parse_epsilon(text, "--epsilon")


@given(st.integers(1, 100_000_000))
def test_an_epsilon_is_read_back_as_it_was_written(micro: int) -> None:
    assert parse_epsilon(format_epsilon(micro), "--epsilon") == micro
