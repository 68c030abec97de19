"""What a command imports before it does anything: every start pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SLOW = ("dagster", "great_expectations", "pandas", "pyspark", "scipy.optimize", "scipy.stats", "vl_convert")


@pytest.mark.parametrize(
    "module", ["assets.build.catalogue", "pipelines.cli.forecasts", "pipelines.cli.main", "teetotal"]
)
def test_what_every_start_pays_for_holds_none_of_the_slow_libraries(module: str) -> None:
    program = "import importlib, sys; importlib.import_module(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, module], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & set(_SLOW) == set()
