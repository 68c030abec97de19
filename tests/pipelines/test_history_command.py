"""`teetotal history` as a person types it."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from benchmarks.change_points import NOISES, draw_nights, make_history
from gold.history import TABLE, partition
from pipelines.cli.main import main

if TYPE_CHECKING:
    from click.testing import Result

    from lake.store import Lake


def ask(lake: Lake, *words: str) -> Result:
    return CliRunner().invoke(main, ["--lake", str(lake.place), "history", *words], env={"COLUMNS": "160"})


@pytest.fixture
def kept(lake: Lake) -> Lake:
    """A workload whose driver changed with its level, and one of a single run."""
    nights = draw_nights(np.random.default_rng(7), NOISES[0], 12, 0.2)
    rows = make_history(nights, ["570"] * 6 + ["575"] * 6)
    lone = {**rows[0], "workload_id": partition("model=n", None), "workload": "model=n", "regime": None}
    lone |= {"run_id": "lone", "recorded_at": None, "session_number": None, "reason": "it does not say when"}
    for some in (rows, [lone]):
        lake.replace(TABLE, some[0]["workload_id"], pa.Table.from_pylist(some, schema=TABLE.arrow_schema), "a" * 64)
    return lake


def test_a_person_sees_each_run_and_what_changed_with_the_level(kept: Lake) -> None:
    done = ask(kept, "--workload", "MODEL=M")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("m, cc_off (workload-")
    (marked,) = [line for line in lines if "◀ change" in line]
    assert marked.startswith("night006-0")
    (told,) = [line for line in lines if line.startswith("  night006-0: slower from here")]
    assert told.endswith("over 6 and 6 days; driver_version 570 to 575")
    assert sum(line.startswith("night") for line in lines) == 36


def test_a_run_names_its_workload_and_one_that_does_not_count_says_why(kept: Lake) -> None:
    done = ask(kept, "--run", "lone")
    assert "lone does not count: it does not say when" in done.stdout
    assert "night" not in done.stdout


def test_other_programs_get_all_columns(kept: Lake) -> None:
    rows = json.loads(ask(kept, "--format", "json").stdout)
    assert len(rows) == 37
    assert [row["run_id"] for row in rows if row["is_change_point"]] == ["night006-0"]
    header = next(csv.reader(io.StringIO(ask(kept, "--format", "csv").stdout)))
    assert header == list(TABLE.column_names)


def test_a_name_that_nothing_bears_is_refused_with_the_nearest(kept: Lake) -> None:
    wrong = ask(kept, "--run", "night006-9")
    assert wrong.exit_code == 2
    assert "no run 'night006-9' has a history" in wrong.stderr
    assert "night006-" in wrong.stderr.split("has a history")[1]
    none = ask(kept, "--workload", "bert")
    assert none.exit_code == 2
    assert "no workload holds 'bert'" in none.stderr
    assert "model=m, model=n" in none.stderr
