"""How much of a source is believed before it is taken for hostile, and how much is in memory at once."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """All bounds that readers keep; each can be set from outside."""

    max_inflated_bytes: int = 256 * GIB
    # Traces inflate to 30 times their size, an idle machine's counters to 250 times; kept from 16 MiB on.
    max_inflation_ratio: int = 1_000
    # Rows and unreadable byte ranges of one file together.
    max_file_rows: int = 1_000_000_000
    # A database that landed sealed is opened in memory, whole.
    max_sealed_database_bytes: int = 2 * GIB
    max_event_bytes: int = 16 * MIB
    shard_bytes: int = 16 * MIB
    bytes_in_flight: int = 64 * MIB
    workers: int = 2
