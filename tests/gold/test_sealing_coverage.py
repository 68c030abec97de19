from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import sealing_coverage
from gold.sealing_coverage import FATES
from tests.support.gold_rows import measure_rows

if TYPE_CHECKING:
    import polars as pl

    from tests.support.silver_rows import Bench

NO_KEY = "no key sealed in software, so no nonces were counted"
SHARES = (
    "measured_messages_fraction",
    "covered_messages_fraction",
    "measured_bytes_fraction",
    "covered_bytes_fraction",
)


def crossing(**fields: Any) -> dict[str, Any]:
    """A message of 100 bytes between GPUs that a hook sealed, as it must."""
    known = {
        "boundary": "gpu_to_gpu",
        "regime": "sw_per_hop_aesgcm",
        "must_seal": True,
        "sealed_by": "software_hook",
        "seal_evidence": "measured",
        "size_evidence": "measured",
        "message_count": 1,
        "sealed_message_count": 1,
        "payload_bytes": 100,
        "seal_ns": 7,
        "open_ns": 5,
        **fields,
    }
    size, by = known["payload_bytes"], known["sealed_by"]
    wire = None if size is None or by is None else size if by == "none" else size + 28 * known["message_count"]
    return {"wire_bytes": wire, **known}


def make_claimed_copy(**fields: Any) -> dict[str, Any]:
    """A copy of which the regime says that the driver sealed it."""
    known = {"boundary": "host_to_gpu", "regime": "hopper_ppcie", "sealed_by": "bounce_buffer"}
    unseen = {"seal_evidence": "modelled", "sealed_message_count": None, "seal_ns": None, "open_ns": None}
    return crossing(**{**known, **unseen, **fields})


def plain(**fields: Any) -> dict[str, Any]:
    """A message that crossed in plaintext where it must not."""
    known = {"sealed_by": "none", "sealed_message_count": 0, "seal_ns": 0, "open_ns": 0}
    return crossing(**{**known, "violation": "It must be sealed.", **fields})


def unknown(**fields: Any) -> dict[str, Any]:
    """A message of which nothing says whether it was sealed."""
    unseen = {"sealed_by": None, "sealed_message_count": None, "seal_ns": None, "open_ns": None}
    return crossing(**{**unseen, "seal_evidence": "unobservable", **fields})


JOB = {"world_size": 1, "ranks_count": 1}


def measure_coverage(
    engine: Bench,
    *crossings: dict[str, Any],
    budgets: tuple[dict[str, Any], ...] = (),
    job: dict[str, Any] = JOB,
) -> pl.DataFrame:
    rows = [{"ordinal": place, **row} for place, row in enumerate(crossings)]
    return measure_rows(engine, sealing_coverage, crossings=rows, nonce_budgets=list(budgets), runs=[job])


def fates(answer: pl.DataFrame, what: str) -> list[tuple[int, ...]]:
    return answer.select(f"{fate}_{what}" for fate in ("promised", *FATES)).rows()


def test_what_was_recorded_as_sealed_is_covered_by_measurement(engine: Bench) -> None:
    answer = measure_coverage(engine, crossing(), crossing(message_count=3, sealed_message_count=3, payload_bytes=300))
    assert fates(answer, "message_count") == [(4, 4, 0, 0, 0, 0)]
    assert fates(answer, "bytes") == [(400, 400, 0, 0, 0, 0)]
    assert answer.select(*SHARES).rows() == [(1.0, 1.0, 1.0, 1.0)]
    assert answer.select("crossings_count", "evidence", "reason").rows() == [(2, "measured", NO_KEY)]


def test_a_claim_is_covered_and_not_measured(engine: Bench) -> None:
    answer = measure_coverage(engine, make_claimed_copy())
    assert fates(answer, "bytes") == [(100, 0, 100, 0, 0, 0)]
    assert answer.select(*SHARES).rows() == [(0.0, 1.0, 0.0, 1.0)]
    assert answer.select("seal_ns", "open_ns", "evidence", "reason").rows() == [
        (None, None, "modelled", f"what seals here leaves no span of its own, so its time is not known; {NO_KEY}")
    ]


def test_plaintext_where_it_must_not_be_is_a_violation_and_uncovered(engine: Bench) -> None:
    answer = measure_coverage(engine, crossing(), plain(payload_bytes=300))
    assert fates(answer, "bytes") == [(400, 100, 0, 0, 300, 0)]
    assert answer.select(*SHARES, "violations_count").rows() == [(0.5, 0.5, 0.25, 0.25, 1)]


def test_a_part_that_was_sealed_splits_messages_and_bytes(engine: Bench) -> None:
    answer = measure_coverage(
        engine, crossing(message_count=4, sealed_message_count=3, payload_bytes=403, violation="Only 3.")
    )
    assert fates(answer, "message_count") == [(4, 3, 0, 0, 1, 0)]
    assert fates(answer, "bytes") == [(403, 302, 0, 0, 101, 0)]


def test_more_seals_than_messages_cover_no_more_than_all(engine: Bench) -> None:
    assert fates(measure_coverage(engine, crossing(sealed_message_count=9)), "message_count") == [(1, 1, 0, 0, 0, 0)]


def test_what_nothing_shows_is_unknown(engine: Bench) -> None:
    answer = measure_coverage(engine, unknown())
    assert fates(answer, "message_count") == [(1, 0, 0, 0, 0, 1)]
    assert answer.select(*SHARES, "overhead_bytes", "evidence").rows() == [(0.0,) * 4 + (None, "unobservable")]


def test_where_nothing_must_be_sealed_there_are_no_fractions(engine: Bench) -> None:
    answer = measure_coverage(engine, plain(must_seal=False, regime="cc_off", violation=None))
    assert fates(answer, "bytes") == [(0, 0, 0, 0, 0, 0)]
    assert answer.select(*SHARES).rows() == [(None,) * 4]
    assert answer.select("evidence", "reason").rows() == [
        ("measured", f"the regime asks for nothing to be sealed here; {NO_KEY}")
    ]


def test_without_a_regime_nothing_can_be_told(engine: Bench) -> None:
    answer = measure_coverage(engine, unknown(must_seal=None, regime=None))
    assert answer.select("promised_crossings_count", *SHARES, "evidence").rows() == [(0, *(None,) * 4, "unobservable")]
    assert answer["reason"][0].split("; ") == [
        "the run claims no regime, so nothing says what must be sealed",
        "what travels on the wire is not known",
        NO_KEY,
    ]


def test_a_crossing_of_unknown_size_is_counted_and_in_no_sum(engine: Bench) -> None:
    unsized = crossing(payload_bytes=None, wire_bytes=None, size_evidence="unobservable")
    answer = measure_coverage(engine, crossing(), unsized)
    assert answer.select("promised_crossings_count", "unsized_crossings_count", "size_evidence").rows() == [
        (2, 1, "unobservable")
    ]
    assert fates(answer, "message_count") == [(1, 1, 0, 0, 0, 0)]
    alone = measure_coverage(engine, unsized)
    assert alone.select(*SHARES).rows() == [(None,) * 4]
    assert "the trace gives the size of no crossing that must be sealed" in alone["reason"][0]


def test_empty_messages_have_no_fraction_of_bytes(engine: Bench) -> None:
    answer = measure_coverage(engine, crossing(payload_bytes=0))
    assert answer.select("measured_messages_fraction", "measured_bytes_fraction", "reason").rows() == [
        (1.0, None, f"what must be sealed has no bytes; {NO_KEY}")
    ]


def test_times_and_overhead_are_summed_where_they_are_known(engine: Bench) -> None:
    answer = measure_coverage(engine, crossing(), crossing(), unknown())
    assert answer.select("seal_ns", "open_ns", "overhead_bytes").rows() == [(14, 10, 56)]


def test_the_most_used_key_and_the_first_to_run_out_speak_for_the_run(engine: Bench) -> None:
    budgets = (
        {"rank": 0, "key_scope": "a", "used_fraction": 0.5, "limit_step_number": 90, "limit_count": 1},
        {"rank": 1, "key_scope": "b", "used_fraction": 0.25, "limit_step_number": 80, "limit_count": 1},
    )
    answer = measure_coverage(
        engine, crossing(), plain(boundary="gpu_to_host", must_seal=False, violation=None), budgets=budgets
    )
    assert answer.select("boundary", "nonce_used_fraction", "nonce_limit_step_number").rows() == [
        ("gpu_to_gpu", 0.5, 80),
        ("gpu_to_host", 0.5, 80),
    ]


def test_a_key_that_sealed_outside_of_steps_has_no_pace(engine: Bench) -> None:
    budget = {"rank": 0, "key_scope": "a", "used_fraction": 0.5, "limit_step_number": None, "limit_count": 1}
    answer = measure_coverage(engine, crossing(), budgets=(budget,))
    assert answer.select("nonce_used_fraction", "nonce_limit_step_number", "reason").rows() == [
        (0.5, None, "sealing fell into no step, so it has no pace")
    ]


def test_sizes_are_as_sure_as_the_least_sure_of_what_must_be_sealed(engine: Bench) -> None:
    exempt = crossing(must_seal=False, size_evidence="unobservable")
    assert measure_coverage(engine, crossing(), exempt)["size_evidence"].to_list() == ["measured"]
    assert measure_coverage(engine, crossing(), exempt, crossing(size_evidence="modelled"))[
        "size_evidence"
    ].to_list() == ["modelled"]


# -- verdicts ----------------------------------------------------------------------------------------------------------


def make_impossible_seal(**fields: Any) -> dict[str, Any]:
    """A message with a seal that no processor could do."""
    known = {"sealed_by": None, "sealed_message_count": 0, "contradicted_message_count": 1, "violation": "Too fast."}
    return crossing(**{**known, **fields})


SEEN = "messages were seen to be sealed"
TWO = {"found_world_size": 2, "ranks_count": 2}


@pytest.mark.parametrize(
    ("rows", "job", "word", "sentence"),
    [
        ([crossing()], JOB, "sealed", f"sealed: 1 of 1 {SEEN}"),
        (
            [crossing(), make_impossible_seal(message_count=3, contradicted_message_count=2, payload_bytes=300)],
            JOB,
            "contradicted",
            f"contradicted: 1 of 4 {SEEN}, 2 have a seal that no processor could do, 1 crossed in plaintext",
        ),
        ([crossing(), plain()], JOB, "plaintext", f"plaintext: 1 of 2 {SEEN}, 1 crossed in plaintext"),
        ([crossing(), unknown()], JOB, "unknown", f"unknown: 1 of 2 {SEEN}, 1 may be sealed or not"),
        ([make_claimed_copy()], JOB, "claimed", f"claimed: 0 of 1 {SEEN}, 1 are sealed by the regime's claim alone"),
        (
            [crossing()],
            {"world_size": 4, "ranks_count": 1},
            "incomplete",
            f"incomplete: 1 of 1 {SEEN}, 3 of 4 ranks recorded no trace",
        ),
        ([crossing()], TWO, "sealed", f"sealed: 1 of 1 {SEEN}"),
        (
            [crossing()],
            {"ranks_count": 1},
            "unknown",
            f"unknown: 1 of 1 {SEEN}, how many ranks there were is not known",
        ),
        (
            [crossing(), crossing(payload_bytes=None, wire_bytes=None)],
            JOB,
            "incomplete",
            f"incomplete: 1 of 1 {SEEN}, 1 crossings have no size",
        ),
        (
            [plain(must_seal=False, regime="cc_off", violation=None)],
            JOB,
            "nothing_due",
            "nothing_due: the regime asks for nothing to be sealed here",
        ),
        (
            [unknown(must_seal=None, regime=None)],
            JOB,
            "unknown",
            "unknown: the run claims no regime, so nothing says what must be sealed",
        ),
    ],
)
def test_the_gravest_finding_and_missing_ranks_are_the_verdict(
    engine: Bench, rows: list[dict[str, Any]], job: dict[str, Any], word: str, sentence: str
) -> None:
    answer = measure_coverage(engine, *rows, job=job)
    assert answer.select("verdict_class", "verdict").rows() == [(word, sentence)]


def test_a_seal_that_cannot_be_true_is_a_fate_of_its_own(engine: Bench) -> None:
    answer = measure_coverage(
        engine, make_impossible_seal(message_count=4, contradicted_message_count=3, payload_bytes=403)
    )
    assert fates(answer, "message_count") == [(4, 0, 0, 3, 1, 0)]
    assert fates(answer, "bytes") == [(403, 0, 0, 302, 101, 0)]
    assert answer.select(*SHARES).rows() == [(0.0,) * 4]


made = st.builds(
    lambda make, messages, sealed, swift, size: make(
        message_count=messages, sealed_message_count=sealed, contradicted_message_count=swift, payload_bytes=size
    ),
    st.sampled_from([crossing, make_claimed_copy, plain, unknown, make_impossible_seal]),
    st.integers(1, 64),
    st.integers(0, 70),
    st.integers(0, 70),
    st.integers(0, 1 << 44),
)


@given(st.lists(st.lists(made, min_size=1, max_size=10), min_size=1, max_size=20))
@settings(max_examples=5)
def test_every_promised_message_and_byte_has_one_fate(engine: Bench, runs: list[list[dict[str, Any]]]) -> None:
    answer = measure_coverage(
        engine, *({**row, "run_id": f"run-{place}"} for place, rows in enumerate(runs) for row in rows)
    )
    for what in ("message_count", "bytes"):
        for promised, *parts in fates(answer, what):
            assert promised == sum(parts)
            assert min(parts) >= 0
