"""Texts of somebody's own in a trace, wherever a tool may put them: none is stored in silver as it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from assets.build import silver
from lake.engines import engine
from silver import rejects, spans
from tests.support.planted_texts import finds

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.conftest import LandFiles

THREAD, CATEGORY, REFUSED = "planted-thread-erika", "planted-category-erika", "planted-refused-erika"


def event(category: str, thread: object, length: float) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": "aten::mm", "pid": 1, "tid": thread, "ts": 5, "dur": length}


def test_no_thread_and_no_category_of_somebodys_own_is_stored_in_silver(lake: Lake, land_files: LandFiles) -> None:
    events = [event("cpu_op", THREAD, 1), event(CATEGORY, 1, 2), event(REFUSED, 1, -1), event("kernel", 7, 1)]
    land_files({"rank0.json": json.dumps({"traceEvents": events}).encode()})
    silver.materialise(lake, "run-1", engine("polars"))
    planted = (THREAD, CATEGORY, REFUSED)
    assert finds(lake.place.directory / "silver", *planted) == []
    assert len(finds(lake.place.directory / "bronze", *planted)) >= len(planted)
    kept = lake.reveal(spans.TABLE, lake.scan(spans.TABLE).collect().to_arrow()).to_pylist()
    assert {(row["category"], row["thread_id"]) for row in kept} == {
        ("cpu_op", THREAD),
        ("other", "1"),
        ("kernel", "7"),
    }
    (refused,) = lake.reveal(rejects.TABLE, lake.scan(rejects.TABLE).collect().to_arrow()).to_pylist()
    assert refused["category"] == REFUSED
