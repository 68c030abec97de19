from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assets.build import chunking, gold, silver
from lake.engines import engine
from tests.support.campaigns import pick_engines

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.conftest import LandFiles

TRACE = Path(__file__).parents[2] / "samples" / "resnet50-sealed-w2" / "resnet50-sealed-w2-r0.json.gz"


@pytest.mark.parametrize("name", pick_engines())
def test_a_rank_in_slices_gives_what_it_gives_as_a_whole(
    lake: Lake, land_files: LandFiles, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_files({"rank0.json.gz": TRACE.read_bytes()}, "run-1", 'regime = "cc_off"\n')
    silver.materialise(lake, "run-1", engine("polars"))
    whole = gold.materialise(lake, "run-1", engine(name))
    for most_spans in (5_000, 2_000):
        monkeypatch.setattr(chunking, "SLICE_SPANS", most_spans)
        slices = gold.GoldBuild(lake, "run-1", engine(name)).slices()
        assert len(slices) > 1
        # Few slices read the spans again, many share them out.
        assert (len(slices) > gold.READ_AGAIN) == (most_spans == 2_000)
        parted = gold.materialise(lake, "run-1", engine(name))
        assert [one.content_sha256 for one in parted] == [one.content_sha256 for one in whole]
        assert not any(one.is_changed for one in parted)
