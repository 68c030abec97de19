"""The ring between real processes: the same gradients whichever way they travel, and no way to change them unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from collector.rotation import slots_for
from tests.support.ranks import VARIANTS, spawn_ranks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.torch_forks import TorchForks

    Seen = list[dict[str, Any]]

_SIZES = 5
# Elements that the scenario reduces, and their bytes.
_BYTES = [4, 3 * 8, 4099 * 4, 50_001 * 4, 777 * 2]
SEALED = [name for name in VARIANTS if not name.startswith("plain")]
FORWARDED = [name for name, settings in VARIANTS.items() if settings.get("direct")]
WHOLE = [name for name, settings in VARIANTS.items() if not settings.get("pipelined")]


@pytest.fixture(scope="module", params=[2, 4], ids=["two ranks", "four ranks"])
def ring_results(
    request: pytest.FixtureRequest, torch_forks: TorchForks, tmp_path_factory: pytest.TempPathFactory
) -> Seen:
    """What each rank saw when all variants reduced the same tensors."""
    return spawn_ranks(torch_forks, "sums", request.param, tmp_path_factory.mktemp("sums"))


@pytest.fixture(scope="module")
def tampered_ring_results(torch_forks: TorchForks, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What each of three ranks was told when somebody meddled with the link into rank 1."""
    return spawn_ranks(torch_forks, "faults", 3, tmp_path_factory.mktemp("faults"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_gives_the_plain_rings_gradients_bit_for_bit(ring_results: Seen, variant: str) -> None:
    assert [rank[variant]["equals_plain"] for rank in ring_results] == [[True] * _SIZES] * len(ring_results)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_gives_gloos_gradients_within_rounding(ring_results: Seen, variant: str) -> None:
    assert [rank[variant]["is_near_gloo"] for rank in ring_results] == [[True] * _SIZES] * len(ring_results)


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_ranks_together_send_every_bucket_around_twice_less_one_share(ring_results: Seen, variant: str) -> None:
    sent = sum(rank[variant]["payload_bytes"] for rank in ring_results)
    assert sent == 2 * (len(ring_results) - 1) * sum(_BYTES)


@pytest.mark.parametrize("variant", SEALED)
def test_what_is_sent_is_sealed_or_relayed_and_what_comes_is_opened(ring_results: Seen, variant: str) -> None:
    for rank in ring_results:
        seen = rank[variant]
        assert seen["sealed_bytes"] + seen["relayed_bytes"] == seen["payload_bytes"]
    opened = sum(rank[variant]["opened_bytes"] for rank in ring_results)
    assert opened == sum(rank[variant]["payload_bytes"] for rank in ring_results)


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_direct_forwarding_relays_and_it_relays_all_but_the_first_hop(ring_results: Seen, variant: str) -> None:
    ranks = len(ring_results)
    relayed = sum(rank[variant]["relayed_bytes"] for rank in ring_results)
    assert relayed == ((ranks - 2) * sum(_BYTES) if variant in FORWARDED else 0)


def test_a_message_is_cut_into_chunks_only_where_transfer_and_sealing_are_to_overlap(ring_results: Seen) -> None:
    counts = {variant: ring_results[0][variant]["messages"] for variant in VARIANTS}
    assert len({counts[variant] for variant in WHOLE}) == 1
    assert all(counts[variant] > 2 * counts["plain"] for variant in VARIANTS if variant not in WHOLE)


def test_a_link_needs_little_memory_however_large_a_part_is() -> None:
    assert slots_for(1, is_direct=False) == 1
    assert slots_for(1000, is_direct=False) == slots_for(10, is_direct=False) < 10
    assert all(slots_for(chunks, is_direct=True) > chunks for chunks in (1, 10, 1000))


def test_training_with_the_hook_takes_the_course_of_gloos_training(ring_results: Seen) -> None:
    for rank in ring_results:
        losses = rank["training"]
        assert losses["all-three"] == losses["plain"]
        assert losses["plain"] == pytest.approx(losses["gloo"], rel=1e-5)
        assert losses["plain"][-1] < losses["plain"][0]


# -- somebody on the wire -----------------------------------------------------------------------------------------

_TAMPERED = "does not authenticate: it was changed on its way"
_MISPLACED = "a message was replayed, reordered, dropped or spliced"
ANSWERS = {
    "tamper": _TAMPERED,
    "tamper with the header": _MISPLACED,
    "tamper with chains": _TAMPERED,
    "tamper with what is relayed": _TAMPERED,
    "replay": _MISPLACED,
    "splice": _TAMPERED,
    "reorder": _MISPLACED,
    "drop": _MISPLACED,
    "silence": "it was dropped, or rank ",
    "drop one of many": _MISPLACED,
    "cut": " lost rank ",
    "wrong key": "the process at the other end of the link is not rank 1",
}


@pytest.mark.parametrize("way", ANSWERS)
def test_meddling_ends_training_on_every_rank_with_its_reason_within_seconds(
    tampered_ring_results: Seen, way: str
) -> None:
    for rank in tampered_ring_results:
        assert ANSWERS[way] in rank[way]["answer"]
        assert rank[way]["seconds"] < 6


def test_somebody_who_passes_everything_on_is_not_noticed(tampered_ring_results: Seen) -> None:
    assert [rank["passing"]["answer"] for rank in tampered_ring_results] == ["nothing was noticed"] * 3


def test_every_way_of_meddling_was_tried(tampered_ring_results: Seen) -> None:
    assert {*tampered_ring_results[0]} == {*ANSWERS, "passing"}


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_rank_that_dies_ends_the_others_backward_with_its_name_within_seconds(
    torch_forks: TorchForks, tmp_path: Path, transport: str
) -> None:
    first, dead, last = spawn_ranks(torch_forks, "death", 3, tmp_path, RING_TRANSPORT=transport)
    assert dead == {"status": 9, "said": ""}
    for rank in (first, last):
        assert "rank 2 lost rank 1" in rank["answer"] or "rank 0 lost rank 1" in rank["answer"]
        assert rank["seconds"] < 5
        assert rank["step"] == 3
