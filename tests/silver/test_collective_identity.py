from __future__ import annotations

from typing import TYPE_CHECKING, Any

from silver import collectives
from silver.collective_identity import identify_collectives
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench


def _part(case: str, rank: int, ts_ns: int = 1000, **fields: Any) -> dict[str, Any]:
    """A rank's part in a collective; the case is its library, which is part of what makes two the same."""
    known = {"run_id": RUN, "rank": rank, "ts_ns": ts_ns, "library": case, "collective": "all_reduce"}
    return {**known, "source_sha256": f"source-{rank}", **fields}


PARTS = [
    _part("same communicator and number", 0, communicator_id="x", collective_sequence=7),
    _part("same communicator and number", 1, 9000, communicator_id="x", collective_sequence=7),
    _part("another number", 0, communicator_id="x", collective_sequence=7),
    _part("another number", 1, communicator_id="x", collective_sequence=8),
    _part("another communicator", 0, communicator_id="x", collective_sequence=7),
    _part("another communicator", 1, communicator_id="y", collective_sequence=7),
    _part("same group and number", 0, process_group_name="p", collective_sequence=7),
    _part("same group and number", 1, process_group_name="p", collective_sequence=7),
    _part("another group", 0, process_group_name="p", collective_sequence=7),
    _part("another group", 1, process_group_name="q", collective_sequence=7),
    _part("another collective", 0, communicator_id="x", collective_sequence=7),
    _part("another collective", 1, communicator_id="x", collective_sequence=7, collective="all_gather"),
    _part("equal counts", 0, 1000),
    _part("equal counts", 0, 2000),
    _part("equal counts", 1, 7000),
    _part("equal counts", 1, 5000),
    _part("different counts", 0, 1000),
    _part("different counts", 0, 2000),
    _part("different counts", 1, 1000),
    _part("a number that repeats", 0, 1000, communicator_id="x", collective_sequence=7),
    _part("a number that repeats", 0, 2000, communicator_id="x", collective_sequence=7),
    _part("a number that repeats", 1, 2000, communicator_id="x", collective_sequence=7),
    _part("a name like another's parts", 0, communicator_id="x/-", collective_sequence=7),
    _part("a name like another's parts", 1, communicator_id="x", process_group_name="-", collective_sequence=7),
    _part("absent is not a text", 0, communicator_id="x", process_group_name="-", collective_sequence=7),
    _part("absent is not a text", 1, communicator_id="x", collective_sequence=7),
    _part("one has no number", 0, communicator_id="x", collective_sequence=7),
    _part("one has no number", 1, communicator_id="x"),
]


def test_ranks_share_a_collective_where_ids_say_so_or_the_order_must(engine: Bench) -> None:
    rows = [{"ordinal": place, **part} for place, part in enumerate(PARTS)]
    frame = identify_collectives(engine.wrap(rows_of(collectives.TABLE, rows)))
    found = engine.rows(frame.select("library", "rank", "ts_ns", "match_id", "matched_by")).to_pylist()
    groups: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for row in found:
        groups.setdefault((row["library"], row["match_id"]), set()).add((row["rank"], row["ts_ns"]))
    together = sorted((case, *sorted(parts)) for (case, _), parts in groups.items() if len(parts) > 1)
    assert together == [
        ("a number that repeats", (0, 1000), (1, 2000)),
        ("equal counts", (0, 1000), (1, 5000)),
        ("equal counts", (0, 2000), (1, 7000)),
        ("same communicator and number", (0, 1000), (1, 9000)),
        ("same group and number", (0, 1000), (1, 1000)),
    ]
    by = {row["library"]: row["matched_by"] for row in found}
    assert [by[case] for case in ("same communicator and number", "same group and number", "equal counts")] == [
        "communicator",
        "sequence",
        "order",
    ]
