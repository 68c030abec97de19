from __future__ import annotations

import re

from gold.strategy_checks import check_steps, read_sets
from gold.strategy_question import MODEL_ERROR

# What the model misses, and docs/plan.md says why: hardly any memory left, and ZeRO-3 without today's overlap.
MISSED = {("mpt-70b-a100", 64), ("gpt-3-zero-3-2021", 1536)}


def test_every_public_step_is_met_with_the_utilisation_that_its_authors_state() -> None:
    found = {(row["set"], row["gpus"]): row["stated_error_fraction"] for row in check_steps()}
    assert len(found) > 20
    assert {name for name, error in found.items() if abs(error) > 0.15} == set()


def test_other_gpu_counts_are_met_with_what_kernels_reach_on_one_but_for_those_that_are_named() -> None:
    rows = [row for row in check_steps() if not row["is_given"]]
    missed = {(row["set"], row["gpus"]) for row in rows if abs(row["error_fraction"]) > MODEL_ERROR}
    assert missed == MISSED
    met = {row["set"] for row in rows} - {name for name, _ in MISSED}
    assert len(met) >= 3


def test_the_margin_of_a_tie_is_no_smaller_than_what_was_met() -> None:
    errors = [abs(row["error_fraction"]) for row in check_steps() if (row["set"], row["gpus"]) not in MISSED]
    assert 0.05 < max(errors) < MODEL_ERROR


def test_every_set_says_where_it_is_from_and_has_one_row_that_is_given() -> None:
    for one in read_sets():
        assert re.fullmatch(r"https://\S+", one["url"])
        assert sum(bool(row.get("is_given")) for row in one["rows"]) == 1


def test_that_gathers_hide_behind_compute_is_what_mpt_13b_shows() -> None:
    errors = [abs(row["error_fraction"]) for row in check_steps() if row["set"] == "mpt-13b-h100"]
    assert max(errors) < 0.05, "without overlap its step would grow with the nodes, which it did not"
