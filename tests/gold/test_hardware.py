from __future__ import annotations

import re

import pytest

from bronze.manifest import REGIMES
from gold.hardware import CLASSES, HARDWARE, Gpu, Link, PublicModel, read_hardware
from gold.strategy_links import must_seal
from lake.errors import ContractBroken

LINK = """
[[link]]
name = "{name}"
scope = "{scope}"
bytes_per_second = {rate}
achieved_fraction = 0.9
latency_ns = 1000
source = "Us"
url = "https://us.example/link"
evidence_class = "assumed"
"""


def test_every_entry_says_where_it_is_from() -> None:
    entries: list[Gpu | Link | PublicModel] = [
        *HARDWARE.gpus.values(),
        *HARDWARE.links.values(),
        *HARDWARE.models.values(),
    ]
    assert len(entries) > 20
    assert all(one.source and re.fullmatch(r"https://\S+", one.url) for one in entries)
    assert {one.evidence_class for one in entries} <= set(CLASSES)


def test_every_regime_that_a_run_may_claim_has_its_costs_and_its_sources() -> None:
    assert set(HARDWARE.regimes) == set(REGIMES)
    assert all(one.note and one.constants for one in HARDWARE.regimes.values())
    assert {regime for gpu in HARDWARE.gpus.values() for regime in gpu.regimes} == set(REGIMES)


def test_a_regime_seals_or_copies_between_nodes_where_its_policy_says_that_it_must() -> None:
    for name, regime in HARDWARE.regimes.items():
        is_costly = bool(regime.network.copies or regime.network.cipher_bytes_per_second)
        assert is_costly == must_seal(name, "network"), name


def test_constants_are_the_published_ones_in_our_units() -> None:
    spt = HARDWARE.regime("hopper_spt_cc")
    assert spt.launch_ns == 9_880
    assert HARDWARE.regime("cc_off").launch_ns == 4_900
    assert [copy.bytes_per_second for copy in spt.network.copies] == [2.82e9, 2.82e9]
    assert HARDWARE.regime("hopper_ppcie").node.operation_ns == pytest.approx(11_000)
    assert HARDWARE.regime("blackwell_mpt_nvle").node.kept_fraction == 0.89
    assert spt.attestation_ns == pytest.approx(1.161e9)
    assert HARDWARE.regime("hopper_ppcie").published_slowdowns["tinfoil-h200-gemma-sft"] == pytest.approx(1 / 0.82)


def test_a_file_of_a_user_adds_entries_and_replaces_those_of_the_same_name() -> None:
    text = LINK.format(name="ours", scope="network", rate="7e9") + LINK.format(name="nvlink4", scope="node", rate="1e9")
    found = read_hardware(text.encode(), HARDWARE)
    assert found.link("ours").achieved_bytes_per_second == pytest.approx(6.3e9)
    assert found.link("nvlink4").bytes_per_second == 1e9
    assert found.links.keys() == {*HARDWARE.links, "ours"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[link", "mine.toml is no TOML"),
        ("[[links]]\nname = 'a'", "mine.toml says 'links' (did you mean 'link'?)"),
        ("link = 3", "mine.toml: link is no list of tables (write [[link]])"),
        ("[[link]]\nname = 'a'", "mine.toml: link 'a' does not say 'scope'"),
        (
            LINK.format(name="a", scope="rack", rate="1e9"),
            "mine.toml: link 'a': scope is 'rack', not one of node, network",
        ),
        (LINK.format(name="a", scope="node", rate="-1"), "bytes_per_second is -1, not a number above 0"),
        (LINK.format(name="a", scope="node", rate="true_"), "mine.toml is no TOML"),
        (
            "[[regime]]\nname = 'r'\nnote = 'n'\nhost_bytes_per_second = 1\nlaunch_ns = { published = ['launch'] }",
            "no published number 'launch'",
        ),
        (
            "[[regime]]\nname = 'r'\nnote = 'n'\nhost_bytes_per_second = 1\nlaunch_ns = { seen = 3 }",
            "is neither a number nor { published = [ids] }",
        ),
    ],
)
def test_a_file_that_is_not_of_this_shape_is_refused_with_what_was_expected(text: str, said: str) -> None:
    with pytest.raises(ContractBroken) as raised:
        read_hardware(text.encode(), HARDWARE, name="mine.toml")
    assert said in str(raised.value)


def test_a_name_that_is_not_known_is_answered_with_the_nearest() -> None:
    with pytest.raises(ContractBroken, match=r"no link 'infiniband-ndx' \(did you mean 'infiniband-ndr'\?\)"):
        HARDWARE.link("infiniband-ndx")
