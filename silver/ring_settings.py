"""What the manifest's `[extra]` says of the ring that sealed: how many chains, which options, which transport."""

from __future__ import annotations

import narwhals as nw

# As collector/ring.py writes them; each is part of what a family of runs has in common.
OPTIONS = ("ring_chains", "ring_pipelined", "ring_direct", "ring_transport")
CONSTRUCTIONS = ("counted", "random", "unknown")
_VALUE = "[A-Za-z0-9_. -]{0,40}"
_CHAINS = '"ring_chains": [1-9][0-9]?[,}]'


def has_ring() -> nw.Expr:
    """Whether the run names our ring as what carried its gradients, so that its frames are known to the byte."""
    return nw.col("extra").str.contains('"ring_mode": "', literal=True).fill_null(False)


def count_chains() -> nw.Expr:
    """Keys, and so threads, that seal one message together: 1 where the manifest does not say."""
    extra = nw.when(nw.col("extra").str.contains(_CHAINS)).then(nw.col("extra"))
    digits = extra.str.replace_all('^.*"ring_chains": ', "").str.replace_all("[^0-9].*", "")
    return digits.cast(nw.Int64).fill_null(1)


def describe_option(name: str) -> nw.Expr:
    """An option of the ring as text; empty where the manifest does not have it or it is no plain word."""
    is_there = nw.col("extra").str.contains(f'"{name}": "?{_VALUE}["]?[,}}]')
    found = nw.when(is_there).then(nw.col("extra"))
    found = found.str.replace_all(f'^.*"{name}": "?', "").str.replace_all('["},].*', "")
    return found.fill_null("")


def name_construction() -> nw.Expr:
    """How the sealer makes nonces: our ring counts; another hook may say `seal_nonces` in `[extra]`."""
    is_random = nw.col("extra").str.contains('"seal_nonces": "random"', literal=True).fill_null(False)
    other = nw.when(is_random).then(nw.lit("random")).otherwise(nw.lit("unknown"))
    return nw.when(has_ring()).then(nw.lit("counted")).otherwise(other)
