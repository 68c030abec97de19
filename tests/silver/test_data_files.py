"""The two data files are held to their words: closed sets, the portable part of regular expressions, every regime."""

from __future__ import annotations

import hashlib
import re
import tomllib
from itertools import product
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa
import pytest

from bronze.manifest import REGIMES
from silver import collectives, crossings, policy, spans
from silver.patterns import _FILE as KINDS_FILE
from silver.patterns import KINDS, OWN_NAMES, PATTERNS, SITE_IDS
from silver.policy import _FILE as POLICY_FILE
from silver.policy import BOUNDARIES, POLICY, SEALERS
from tests.silver.test_patterns import CALLS, NOTES, ON_GPU, OWN

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

DOCUMENT: dict[str, Any] = tomllib.loads(KINDS_FILE.read_text("utf-8"))
WORDS = ("direction", "memory", "library", "collective")
EXPRESSIONS = [
    *((entry["id"], entry["name"]) for entry in DOCUMENT["pattern"] if "name" in entry),
    *((f"{what} {entry['is']}", entry["name"]) for what in WORDS for entry in DOCUMENT[what]),
]
NAMES = [name for table in (ON_GPU, CALLS, NOTES, OWN) for _, name in table]
WORD_EXAMPLES = {
    "direction": {
        "host_to_gpu": "Memcpy HtoD (Pinned -> Device)",
        "gpu_to_host": "Memcpy DtoH (Device -> Pinned)",
        "gpu_to_gpu": "Memcpy PtoP (Device -> Device)",
        "on_gpu": "Memcpy DtoD (Device -> Device)",
        "on_host": "Memcpy HtoH (Pinned -> Pinned)",
    },
    "memory": {
        "managed": "Memcpy DtoD (Managed -> Device)",
        "pinned": "Memcpy DtoH (Device -> Pinned)",
        "pageable": "Memcpy HtoD (Pageable -> Device)",
    },
    "library": {
        "hook": "tee::all_reduce#5",
        "gloo": "gloo:all_reduce",
        "rccl": "void rcclGenericKernel<1>",
        "nccl": "record_param_comms",
        "oneccl": "xccl:all_reduce",
        "nvshmem": "void deep_ep::dispatch",
    },
    "collective": {
        "all_reduce": "allreduce",
        "reduce_scatter": "reducescatterbase",
        "all_gather": "allgatherbase",
        "all_to_all": "alltoallbase",
        "send_recv": "nccldevkernelsendrecv",
        "broadcast": "broadcast",
        "barrier": "barrier",
        "gather": "gather",
        "scatter": "scatter",
        "reduce": "reduce",
        "send": "send",
        "recv": "recv",
    },
}
ODD = [
    "",
    "\n",
    "tee::",
    "Ⅳ nccl",
    "ﬁnal",
    "nccl\u2028x",
    "a\x00b",
    "tee::x#1\r",
    "tee::x#1\u0085",
    "🙂" * 50,
    "TEE::x#1",
]
CORPUS = [
    *dict.fromkeys([*NAMES, *(name for table in WORD_EXAMPLES.values() for name in table.values()), *ODD]),
    *(f"{name}\n" for name in NAMES[::3]),
    *(f" {name}" for name in NAMES[::5]),
    *(name.upper() for name in NAMES[::4]),
]


def _python(expression: str) -> re.Pattern[str]:
    r"""The same for Python 3.11, which has `\Z` for the `\z` of the others."""
    return re.compile(expression.replace(r"\z", r"\Z"))


# -- regular expressions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS, ids=[name for name, _ in EXPRESSIONS])
def test_an_expression_keeps_to_the_part_that_all_engines_read_alike(name: str, expression: str) -> None:
    bare = re.sub(r"\[\^?[^\[\]&~-]*(?:[A-Za-z0-9]-[A-Za-z0-9][^\[\]&~-]*)*\]", "", expression.replace(r"\z", ""))
    assert not re.search(r"[\\$.\[\]]|\(\?|[*+?}][*+?]", bare), bare
    _python(expression)


def test_every_expression_gives_the_same_answer_everywhere(engine: Bench) -> None:
    names = engine.wrap(pa.table({"name": CORPUS}))
    hits = {f"_{place}": nw.col("name").str.contains(expression) for place, (_, expression) in enumerate(EXPRESSIONS)}
    found = engine.rows(names.select("name", **hits)).to_pylist()
    assert len(found) == len(CORPUS)
    wrong = [
        (name, row["name"])
        for row in found
        for place, (name, expression) in enumerate(EXPRESSIONS)
        if row[f"_{place}"] != bool(_python(expression).search(row["name"]))
    ]
    assert wrong == []


def test_categories_are_told_apart_by_ascii_letters_alone(engine: Bench) -> None:
    # The Kelvin sign and the dotted capital I become ASCII letters under some rules of lower case and not under others.
    strange = ["\u212aernel", "dr\u0130ver", "gpu_memcpy\u0307", "KERNEL", "\uff2bernel"]
    frame = engine.wrap(pa.table({"category": strange}))
    found = engine.rows(frame.select("category", meant=PATTERNS.category("category"))).to_pylist()
    assert {row["category"]: row["meant"] for row in found} == {
        "\u212aernel": "\u212aernel",
        "dr\u0130ver": "dr\u0130ver",
        "gpu_memcpy\u0307": "gpu_memcpy\u0307",
        "KERNEL": "kernel",
        "\uff2bernel": "\uff2bernel",
    }


# -- span_kinds.toml ---------------------------------------------------------------------------------------


def test_pattern_ids_are_distinct_and_none_is_a_name_of_ours() -> None:
    ids = [pattern.id for pattern in PATTERNS.patterns]
    assert len(set(ids)) == len(ids)
    assert not set(ids) & set(OWN_NAMES)
    assert spans.TABLE.column("pattern").one_of == (*ids, *OWN_NAMES)


def test_every_kind_is_declared_and_used() -> None:
    assert {pattern.kind for pattern in PATTERNS.patterns} | {"compute"} == set(KINDS)
    assert spans.TABLE.column("kind").one_of == KINDS


def test_every_pattern_is_reached_by_an_example_of_its_own() -> None:
    known = {what: entry for table in (ON_GPU, CALLS, NOTES, OWN) for entry, (_, what) in table.items()}
    assert set(known) == set(PATTERNS.ids) - set(SITE_IDS)
    spellings = {
        **DOCUMENT["categories"],
        **{name: name for entry in DOCUMENT["pattern"] for name in entry["categories"]},
    }
    for what, (category, name) in known.items():
        meant = spellings.get(category.lower(), category)
        first = next(
            (
                entry["id"]
                for entry in DOCUMENT["pattern"]
                if meant in entry["categories"] and _python(entry.get("name", "")).search(name)
            ),
            None,
        )
        assert first == what or (first is None and what in OWN_NAMES), (what, name)


@pytest.mark.parametrize("what", WORDS)
def test_every_word_is_reached_by_an_example_of_its_own(what: str) -> None:
    assert tuple(WORD_EXAMPLES[what]) == PATTERNS.words(what)
    for word, name in WORD_EXAMPLES[what].items():
        assert next(entry["is"] for entry in DOCUMENT[what] if _python(entry["name"]).search(name)) == word


def test_only_categories_of_the_gpu_make_a_row_a_gpu_row() -> None:
    assert DOCUMENT["gpu"]["categories"] == ["kernel", "gpu_memcpy", "gpu_memset"]
    gpu = set(DOCUMENT["gpu"]["categories"])
    assert all(set(entry["categories"]) <= gpu or not set(entry["categories"]) & gpu for entry in DOCUMENT["pattern"])


def test_spellings_of_categories_are_lower_case_and_mean_known_ones() -> None:
    known = {name for entry in DOCUMENT["pattern"] for name in entry["categories"]}
    assert set(DOCUMENT["categories"].values()) <= known
    assert all(spelling == spelling.lower() for spelling in [*DOCUMENT["categories"], *known])


def test_a_path_is_a_memory_a_library_or_between_peers() -> None:
    ways = {*PATTERNS.words("memory"), *PATTERNS.words("library"), "peer", "other"}
    assert set(crossings.PATHS) == ways
    assert len(crossings.PATHS) == len(ways)
    assert collectives.TABLE.column("library").one_of == (*PATTERNS.words("library"), "other")


def test_bytes_of_an_element_are_a_power_of_two() -> None:
    assert set(DOCUMENT["element_bytes"].values()) == {1, 2, 4, 8, 16}


# -- sealing_policy.toml -----------------------------------------------------------------------------------


def test_every_regime_says_once_what_it_promises_at_every_boundary() -> None:
    said = [(promise.regime, promise.boundary) for promise in POLICY.promises]
    assert sorted(said) == sorted(product(REGIMES, BOUNDARIES))


def test_a_regime_that_must_not_seal_does_not_and_only_the_network_is_left_to_others() -> None:
    for promise in POLICY.promises:
        assert promise.sealed_by in {*SEALERS, None}
        assert (promise.sealed_by == "none") is (not promise.must_seal)
        assert promise.sealed_by is not None or promise.boundary == "gpu_to_network"


def test_what_a_promise_leaves_out_are_collectives() -> None:
    exempt = {name for promise in POLICY.promises for name in promise.except_collectives}
    assert exempt == {"broadcast"}
    assert exempt <= set(collectives.COLLECTIVES)


def test_a_message_is_longer_by_nonce_and_tag_and_a_key_serves_as_many_as_nist_allows() -> None:
    assert (POLICY.message_overhead_bytes, POLICY.messages_per_key) == (12 + 16, 2**32)
    assert (policy.CIPHER, policy.KEY_BITS) == ("AES-GCM", 256)


def test_the_fingerprints_are_those_of_the_whole_files() -> None:
    assert PATTERNS.sha256 == hashlib.sha256(KINDS_FILE.read_bytes()).hexdigest()
    assert POLICY.sha256 == hashlib.sha256(POLICY_FILE.read_bytes()).hexdigest()
