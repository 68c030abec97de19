from __future__ import annotations

import re
import subprocess
import sys

import pytest

from assets.build.catalogue import TABLES
from assets.checks.expectations import checks
from assets.checks.rules import list_rules, list_sample_columns
from lake.tables import RUN_ID, Table, float64, int64, text

COLUMNS = (
    RUN_ID,
    int64("ordinal", "Place.", minimum=0),
    text("source_sha256", "Digest.", nullable=True),
    text("outcome", "What became of it.", nullable=True, one_of=("kept", "lost")),
    float64("share_fraction", "Share.", nullable=True, minimum=0, maximum=1),
    text("host", "Where.", nullable=True, sensitive=True),
)
READINGS = Table("silver", "readings", "One row per reading.", ("ordinal",), COLUMNS)


def test_a_declaration_becomes_rules_that_read_as_sentences() -> None:
    assert [(rule.name, rule.sentence, rule.severity) for rule in list_rules(READINGS)] == [
        ("columns_are_as_declared", "the 6 columns are those declared, in order and kind", "critical"),
        ("key_is_unique", "no two rows have the same run_id and ordinal", "critical"),
        ("run_id_is_never_null", "run_id is never null", "critical"),
        ("run_id_is_an_id", "run_id is plain enough to be an id", "warning"),
        ("ordinal_is_never_null", "ordinal is never null", "critical"),
        ("ordinal_is_in_its_range", "ordinal is at least 0", "critical"),
        ("source_sha256_is_a_digest", "source_sha256 is 64 hexadecimal digits", "warning"),
        ("outcome_is_of_its_set", "outcome is one of kept, lost", "critical"),
        ("share_fraction_is_in_its_range", "share_fraction is at least 0 and at most 1", "critical"),
        ("share_fraction_is_finite", "share_fraction is a number and finite", "critical"),
        ("host_is_sealed", "host holds nothing but tokens: no plaintext", "critical"),
    ]


def test_bronze_repeats_the_source_and_seals_nothing() -> None:
    repeated = Table("bronze", "readings", "One row per reading.", ("ordinal",), COLUMNS)
    assert {rule.name for rule in list_rules(READINGS)} - {rule.name for rule in list_rules(repeated)} == {
        "host_is_sealed"
    }


@pytest.mark.parametrize(
    ("tier", "samples"),
    [
        (
            "silver",
            {"outcome_is_of_its_set": ("run_id", "ordinal", "outcome"), "host_is_sealed": ("run_id", "ordinal")},
        ),
        ("bronze", {"outcome_is_of_its_set": ("run_id", "ordinal")}),
    ],
)
def test_samples_show_nothing_sensitive_and_of_bronze_no_text(tier: str, samples: dict[str, tuple[str, ...]]) -> None:
    table = Table(tier, "readings", "One row per reading.", ("ordinal",), COLUMNS)
    found = {rule.name: list_sample_columns(table, rule) for rule in list_rules(table)}
    assert {name: found[name] for name in samples} == samples


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_checks_have_names_that_the_orchestrator_takes_and_each_only_once(table: Table) -> None:
    names = [check.name for check in checks(table)]
    assert len(names) == len(set(names))
    assert [name for name in names if not re.fullmatch("[A-Za-z0-9_]+", name)] == []


def test_what_is_promised_is_known_without_the_seconds_that_the_validator_takes_to_import() -> None:
    program = (
        "import sys\nfrom assets.build.catalogue import TABLES\nfrom assets.checks.expectations import checks\n"
        "assert all(map(checks, TABLES.values()))\nassert 'great_expectations' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
