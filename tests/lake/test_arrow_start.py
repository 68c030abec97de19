"""A launch does not wait for pandas, and whoever wants pandas has it."""

from __future__ import annotations

import subprocess
import sys

ASK = """
import sys
{first}
from lake.arrow_start import start_without_pandas
start_without_pandas()
import pyarrow as pa
made = pa.array([1, None]).fill_null(0).to_pylist()
print(made, "pandas" in sys.modules)
import pandas
print(pa.array([1, None], pa.float64()).to_pandas().isna().tolist(), pa.array(pandas.Series([1, None])).null_count)
"""


def ask(first: str = "") -> list[str]:
    done = subprocess.run([sys.executable, "-c", ASK.format(first=first)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_arrow_makes_values_without_pandas_and_pandas_comes_when_it_is_asked_for() -> None:
    assert ask() == ["[1, 0] False", "[False, True] 1"]


def test_a_process_that_has_pandas_keeps_it() -> None:
    assert ask("import pandas") == ["[1, 0] True", "[False, True] 1"]
