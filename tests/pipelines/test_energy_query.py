from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assets.build import silver
from lake.engines import engine
from pipelines.cli import sandbox

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.conftest import LandFiles

PAGE = (Path(__file__).parent.parent.parent / "docs" / "landing.md").read_text("utf-8")
SECOND = 1_700_000_000
LOG = "Timestamps,Epoch,Thput (img/s)\n" + "".join(f"{SECOND + 10 * at},{at},100\n" for at in range(3))


def scrape(second: int, watts: tuple[int, int]) -> str:
    lines = [
        f'DCGM_FI_DEV_POWER_USAGE{{gpu="{gpu}",UUID="GPU-{gpu}"}} {power} {second * 1000}\n'
        for gpu, power in enumerate(watts)
    ]
    return "".join(lines)


def test_the_query_on_the_page_takes_an_epoch_to_its_energy(lake: Lake, land_files: LandFiles) -> None:
    samples = [scrape(SECOND + at, (100 + at, 200)) for at in range(0, 20, 5)]
    land_files({"log.csv": LOG.encode(), "dcgm.prom": "".join(samples).encode()})
    silver.materialise(lake, "run-1", engine("polars"))
    (text,) = re.findall(r"```sql\n(SELECT[^`]*silver\.device_samples[^`]*)```", PAGE)
    with sandbox.ask(lake, text) as answer:
        rows = answer.rows().read_all().to_pylist()
    assert [(row["period_number"], row["samples_count"]) for row in rows] == [(1, 4), (2, 4)]
    assert [row["energy_j"] for row in rows] == [pytest.approx(10 * (102.5 + 200)), pytest.approx(10 * (112.5 + 200))]
