"""How much of a source is believed before it is taken for hostile, and how much is in memory at once."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """All bounds that readers keep; each can be set from outside."""

    max_inflated_bytes: int = 256 * GIB
    max_event_bytes: int = 16 * MIB
    shard_bytes: int = 16 * MIB
    bytes_in_flight: int = 64 * MIB
    workers: int = 2
