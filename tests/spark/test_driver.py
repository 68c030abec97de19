from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.support.spark_lakes import ASKED, check_asked, of

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.standalone import Cluster
    from tests.support.installed_wheel import Installation
    from tests.support.spark_lakes import Bench


def test_a_driver_that_is_killed_leaves_the_lake_as_it_was_and_the_next_run_repairs_it(
    bench: Bench, standalone: Cluster, installed: Installation, tmp_path: Path
) -> None:
    # A home of its own: others read the run that loses a file here.
    shutil.copytree(bench.home / "polars", tmp_path / "killed")
    shutil.copytree(bench.home / "landing", tmp_path / "landing")
    shutil.copy2(bench.home / "keyring.json", tmp_path)
    bench = replace(bench, home=tmp_path)
    (bench.home / "landing" / bench.many / "r3.json.gz").unlink()
    before = bench.state("killed")
    setting = {
        "TEETOTAL_SPARK": standalone.url,
        "TEETOTAL_SPARK_MEMORY": "1g",
        "TEETOTAL_SPARK_PYTHON": str(installed.python),
    }
    words = ("run", "--engine", "spark", "--no-check", *ASKED, bench.many)
    running = bench.start("killed", *words, **setting)
    bench.await_spooled("killed", "bronze.trace_events", running)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=30)
    assert bench.state("killed") == before

    bench.teetotal("killed", *words, **setting)
    bench.teetotal("fewer", "run", "--no-check", *ASKED, bench.many)
    wanted = of(bench.state("fewer"), bench.many)
    found = {name: digest for name, digest in of(bench.state("killed"), bench.many).items() if name in wanted}
    assert found == wanted != {name: digest for name, digest in before.items() if name in wanted}
    check_asked(wanted, of(before, bench.many) | wanted)
    assert bench.spooled("killed", "bronze.trace_events") == []
