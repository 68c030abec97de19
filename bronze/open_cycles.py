"""Which traces of an open run count: where its manifest asks for it, those of the last cycles of each rank."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bronze.file_report import FileReport


def find_earlier_cycles(reports: Iterable[FileReport], most: int) -> frozenset[str]:
    """The names of the traces that began before the last `most` of their rank; of equal starts the digest decides."""
    by_rank: dict[int, list[FileReport]] = defaultdict(list)
    for report in reports:
        if report.is_trace:
            by_rank[report.rank or 0].append(report)
    earlier = (
        sorted(traces, key=lambda one: (one.first_ns is not None, one.first_ns or 0, one.sha256 or ""))[:-most]
        for traces in by_rank.values()
    )
    return frozenset(report.name for traces in earlier for report in traces)
