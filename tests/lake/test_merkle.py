"""The log's tree against RFC 9162 written down naively, and its proofs against the verifier that shares no code."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.lineage.check_evidence import compute_root as recompute_root
from lake.lineage.check_evidence import follow_path, is_consistent
from lake.lineage.merkle import (
    compute_root,
    extend_peaks,
    fold_peaks,
    hash_leaf,
    prove_consistency,
    prove_inclusion,
)

SIZES = st.integers(1, 70)


def lines(size: int) -> list[bytes]:
    return [f"statement {number}".encode() for number in range(size)]


def hash_tree(entries: list[bytes]) -> bytes:
    """Section 2.1.1, word for word."""
    if not entries:
        return hashlib.sha256().digest()
    if len(entries) == 1:
        return hashlib.sha256(b"\x00" + entries[0]).digest()
    split = max(2**power for power in range(8) if 2**power < len(entries))
    return hashlib.sha256(b"\x01" + hash_tree(entries[:split]) + hash_tree(entries[split:])).digest()


@pytest.mark.parametrize(
    ("entries", "root"),
    [
        ([], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ([b""], "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
        ([b"", b"\x00"], "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"),
    ],
)
def test_small_trees_have_the_roots_that_certificate_transparency_publishes(entries: list[bytes], root: str) -> None:
    assert compute_root([hash_leaf(entry) for entry in entries]).hex() == root


@given(size=st.integers(0, 70))
def test_the_root_is_that_of_the_rfc_and_of_the_independent_verifier(size: int) -> None:
    root = compute_root([hash_leaf(line) for line in lines(size)])
    assert root == hash_tree(lines(size)) == recompute_root(lines(size))


@given(size=SIZES, data=st.data())
def test_a_tree_that_grows_in_batches_has_the_root_of_one_made_at_once(size: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, size))
    hashes = [hash_leaf(line) for line in lines(size)]
    peaks = extend_peaks(cut, extend_peaks(0, (), hashes[:cut]), hashes[cut:])
    assert fold_peaks(peaks) == compute_root(hashes)
    assert len(peaks) == size.bit_count()


@given(size=SIZES, data=st.data())
def test_inclusion_is_proved_for_the_leaf_and_the_place_alone(size: int, data: st.DataObject) -> None:
    entries = lines(size)
    place = data.draw(st.integers(0, size - 1))
    hashes = [hash_leaf(line) for line in entries]
    proof, root = prove_inclusion(hashes, place), compute_root(hashes)
    assert follow_path(entries[place], place, size, proof) == root
    assert follow_path(b"another", place, size, proof) != root
    if size > 1:
        other = (place + 1) % size
        assert follow_path(entries[place], other, size, proof) != root
        assert follow_path(entries[place], place, size, proof[:-1]) != root


@given(size=SIZES, data=st.data())
def test_consistency_is_proved_for_every_beginning_and_for_no_other_log(size: int, data: st.DataObject) -> None:
    before = data.draw(st.integers(0, size))
    hashes = [hash_leaf(line) for line in lines(size)]
    proof, old, root = prove_consistency(hashes, before), compute_root(hashes[:before]), compute_root(hashes)
    assert is_consistent(before, size, proof, old, root)
    if before:
        changed = [hash_leaf(b"changed"), *hashes[1:before]]
        assert not is_consistent(before, size, proof, compute_root(changed), root)
    if 0 < before < size:
        assert not is_consistent(before, size, proof[:-1], old, root)
