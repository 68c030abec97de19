"""Allocators are told to be sparing before a library is loaded, and what a person has set is left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

ASK = """
import json, os, sys
from pipelines.cli import main as cli
from teetotal.__main__ import main

def tell(**_):
    early = [name for name in ("duckdb", "polars", "pyarrow") if name in sys.modules]
    import pyarrow
    names = ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_TRIM_THRESHOLD_", "_RJEM_MALLOC_CONF")
    print(json.dumps([early, pyarrow.default_memory_pool().backend_name, [os.environ.get(name) for name in names]]))

cli.main = tell
main()
"""


def ask(**variables: str) -> list[object]:
    """What a process that begins as the command does says of its allocators."""
    plain = {name: value for name, value in os.environ.items() if "MALLOC" not in name and "ARROW" not in name}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env={**plain, **variables}, capture_output=True, text=True, check=True
    )
    found: list[object] = json.loads(done.stdout)
    return found


def test_allocators_are_told_before_a_library_is_loaded() -> None:
    assert ask() == [[], "system", ["system", "131072", "narenas:1"]]


def test_what_a_person_has_set_is_left_alone() -> None:
    own = {"ARROW_DEFAULT_MEMORY_POOL": "mimalloc", "MALLOC_TRIM_THRESHOLD_": "1", "_RJEM_MALLOC_CONF": "narenas:4"}
    assert ask(**own) == [[], "mimalloc", ["mimalloc", "1", "narenas:4"]]
