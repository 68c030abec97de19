"""A command ends as Python would end it, without the slow part; a launch does not wait for pandas, and can have it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

END = """
import atexit, sys, threading, time
from pipelines.process_costs import end_process

class Kept:
    def __del__(self):
        print("taken down")

kept = Kept()
atexit.register(print, "called at the end")
threading.Thread(target=lambda: (time.sleep(0.2), print("a thread's last word"))).start()
print("written", end="")
end_process({code})
"""
ASK_ARROW = """
import sys
{first}
from pipelines.process_costs import start_without_pandas
start_without_pandas()
import pyarrow as pa
made = pa.array([1, None]).fill_null(0).to_pylist()
print(made, "pandas" in sys.modules)
import pandas
print(pa.array([1, None], pa.float64()).to_pandas().isna().tolist(), pa.array(pandas.Series([1, None])).null_count)
"""


def end(code: object) -> subprocess.CompletedProcess[str]:
    """What a process says that ends with this code."""
    program = END.format(code=repr(code))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("code", "status"), [(None, 0), (0, 0), (3, 3), (True, 1), ("no such lake", 1)])
def test_the_exit_status_is_the_one_that_python_would_give(code: object, status: int) -> None:
    assert end(code).returncode == status


def test_threads_registered_calls_and_streams_are_seen_to_and_objects_are_left_alone() -> None:
    assert end(0).stdout == "writtena thread's last word\ncalled at the end\n"


def test_a_reason_given_as_text_is_told() -> None:
    assert end("no such lake").stderr == "no such lake\n"


def test_output_that_cannot_be_written_is_a_failure() -> None:
    program = END.format(code=0)
    with Path("/dev/full").open("w") as full:
        assert subprocess.run([sys.executable, "-c", program], stdout=full, check=False).returncode == 1


def ask_arrow(first: str = "") -> list[str]:
    """What a process says that has started Arrow so."""
    done = subprocess.run(
        [sys.executable, "-c", ASK_ARROW.format(first=first)], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_arrow_makes_values_without_pandas_and_pandas_comes_when_it_is_asked_for() -> None:
    assert ask_arrow() == ["[1, 0] False", "[False, True] 1"]


def test_a_process_that_has_pandas_keeps_it() -> None:
    assert ask_arrow("import pandas") == ["[1, 0] True", "[False, True] 1"]


KEEP = """
import gc, weakref
from pipelines.process_costs import collect_garbage_rarely, keep_objects

class Node:
    def __init__(self):
        self.itself = self

{first}
with keep_objects():
    kept = weakref.ref(Node())
    print(gc.isenabled())
new = weakref.ref(Node())
gc.collect()
print(gc.isenabled(), kept() is None, new() is None)
"""


@pytest.mark.parametrize(
    ("first", "told"),
    [("collect_garbage_rarely()", "False\nTrue False True\n"), ("", "True\nTrue True True\n")],
    ids=["a command's own process", "another's process"],
)
def test_no_garbage_is_looked_for_among_what_imports_have_made(first: str, told: str) -> None:
    program = KEEP.format(first=first)
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == told
