"""The Merkle tree of RFC 9162, section 2.1: the root of some leaves, and proofs of inclusion and of consistency.

Proofs are checked by `check_evidence.py`, which shares no code with this.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def hash_leaf(data: bytes) -> bytes:
    """The hash of one entry of the log."""
    return hashlib.sha256(b"\x00" + data).digest()


def hash_children(left: bytes, right: bytes) -> bytes:
    """The hash of the node above two others."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def extend_peaks(size: int, peaks: Sequence[bytes], leaves: Iterable[bytes]) -> list[bytes]:
    """The roots of the full subtrees of a tree, largest first, after some leaves were added to one of that size."""
    found = list(peaks)
    for place, leaf in enumerate(leaves, size):
        node, mask = leaf, place
        while mask & 1:
            node, mask = hash_children(found.pop(), node), mask >> 1
        found.append(node)
    return found


def fold_peaks(peaks: Sequence[bytes]) -> bytes:
    """The root of the tree that has these full subtrees."""
    if not peaks:
        return hashlib.sha256().digest()
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = hash_children(peak, root)
    return root


def compute_root(leaves: Sequence[bytes]) -> bytes:
    """The root of the tree over the hashes of some leaves."""
    return fold_peaks(extend_peaks(0, (), leaves))


def prove_inclusion(leaves: Sequence[bytes], place: int) -> list[bytes]:
    """The nodes that lead from one leaf to the root of all (PATH, section 2.1.3.1)."""
    if len(leaves) == 1:
        return []
    middle = _split(len(leaves))
    if place < middle:
        return [*prove_inclusion(leaves[:middle], place), compute_root(leaves[middle:])]
    return [*prove_inclusion(leaves[middle:], place - middle), compute_root(leaves[:middle])]


def prove_consistency(leaves: Sequence[bytes], before: int) -> list[bytes]:
    """The nodes that show that the tree of the first leaves is the beginning of the tree of all (section 2.1.4.1)."""
    return [] if before in {0, len(leaves)} else _prove_beginning(leaves, before, is_whole=True)


def _prove_beginning(leaves: Sequence[bytes], before: int, *, is_whole: bool) -> list[bytes]:
    if before == len(leaves):
        return [] if is_whole else [compute_root(leaves)]
    middle = _split(len(leaves))
    if before <= middle:
        return [*_prove_beginning(leaves[:middle], before, is_whole=is_whole), compute_root(leaves[middle:])]
    return [*_prove_beginning(leaves[middle:], before - middle, is_whole=False), compute_root(leaves[:middle])]


def _split(size: int) -> int:
    """The largest power of two below a size."""
    return 1 << ((size - 1).bit_length() - 1)
