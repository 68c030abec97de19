"""`import teetotal`: the answers that commands give, the examples of its page, and a notebook in a real kernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner

import teetotal
from assets.build import silver
from lake.engines import engine
from lake.keyring import KeyringFile
from pipelines.cli.main import main
from tests.support.installed_wheel import ROOT
from tests.support.small_runs import trace

if TYPE_CHECKING:
    from pathlib import Path

    from lake.store import Lake
    from tests.conftest import LandFiles

PAGE = ROOT / "docs" / "python.md"
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
_BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
_OUTPUT = "output_type"
COLUMNS = ["run_id", "source", "step_ns"]


@pytest.fixture
def opened(compared_lake: Lake) -> teetotal.Lake:
    return teetotal.open(str(compared_lake.place))


def type_command(lake: Lake, *words: str) -> Any:
    """What a command says as JSON."""
    done = CliRunner().invoke(main, ["--lake", str(lake.place), *words, "--format", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def place_lake(lake: Lake, directory: Path) -> Path:
    """A directory in which the lake is `data/lake`, as the page and the notebook have it."""
    (directory / "data").symlink_to(lake.place.directory.parent)
    return directory


# -- what the commands say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gold.step_overhead", "silver.runs", "bronze.source_files"])
def test_a_table_has_the_rows_that_show_prints(compared_lake: Lake, opened: teetotal.Lake, name: str) -> None:
    assert opened.table(name).to_dicts() == type_command(compared_lake, "show", name)
    assert len(opened.table(name)) == len(opened.table(name).to_dicts()) > 0


def test_every_form_has_the_same_rows(opened: teetotal.Lake) -> None:
    rows = opened.table("gold.step_times", runs=["before", "after"], columns=COLUMNS)
    expected = rows.to_dicts()
    assert {row["run_id"] for row in expected} == {"before", "after"}
    assert rows.columns == COLUMNS
    assert rows.to_polars().to_dicts() == expected
    assert rows.to_arrow().to_pylist() == expected
    assert rows.to_pandas().to_dict("records") == expected
    assert rows.to_duckdb().fetchall() == [tuple(row.values()) for row in expected]
    assert [row for batch in rows.read_batches() for row in batch.to_pylist()] == expected


def test_a_limit_is_the_first_rows_by_the_key(opened: teetotal.Lake) -> None:
    everything = opened.table("silver.steps").to_dicts()
    assert opened.table("silver.steps", limit=2).to_dicts() == everything[:2]
    assert opened.table("silver.steps", limit=0).to_dicts() == []


def test_a_statement_is_answered_as_by_query(compared_lake: Lake, opened: teetotal.Lake) -> None:
    sql = "SELECT run_id, count(*) AS n FROM silver.spans WHERE run_id = $run OR rank > $rank GROUP BY 1 ORDER BY 1"
    typed = type_command(compared_lake, "query", sql, "--param", "run=before", "--param", "rank=99")
    assert opened.query(sql, run="before", rank=99).to_dicts() == typed
    assert typed[0]["run_id"] == "before"


def test_predictions_are_those_of_what_if(compared_lake: Lake, opened: teetotal.Lake) -> None:
    assert opened.what_if("sealed").to_dicts() == type_command(compared_lake, "what-if", "sealed")
    changed = type_command(compared_lake, "what-if", "sealed", "--set", "chains=4", "--set", "pipelined=true")
    assert opened.what_if("sealed", chains=4, pipelined=True).to_dicts() == changed
    assert changed[0]["change"] == "chains=4 pipelined=true"
    assert opened.what_if().to_dicts() == type_command(compared_lake, "what-if")


def test_a_comparison_is_that_of_compare(compared_lake: Lake, opened: teetotal.Lake) -> None:
    answer = type_command(compared_lake, "compare", "before", "after")
    found = opened.compare("before", ["after", "after-again1", "after-again2"])
    assert (found.baseline, found.candidate) == (answer["baseline"], answer["candidate"])
    assert (found.step, found.memory, found.notes) == (answer["step"], answer["memory"], answer["notes"])
    for name in ("differences", "parts", "kernels", "operations", "collectives"):
        assert getattr(found, name).to_dicts() == answer[name]
    assert found.verdict == "by its training log: 1.20x slower, 95 % 1.19 to 1.21, over 3 and 3 runs"


def test_a_verdict_is_one_row_per_pair_with_its_interval_and_evidence(opened: teetotal.Lake) -> None:
    (row,) = (one for one in opened.verdicts().to_dicts() if one["run_id"] == "sealed")
    assert len(opened.verdicts()) == len(opened.table("gold.step_overhead")) > 1
    (step,) = opened.table("gold.step_overhead", runs="sealed").to_dicts()
    assert row["verdict"].startswith("by its training log: nothing can be concluded from 1 and 3 runs")
    assert {name: row[name] for name in row.keys() & step.keys() - {"verdict"}} == {
        name: step[name] for name in row.keys() & step.keys() - {"verdict"}
    }
    assert (row["evidence"], row["interval_over"]) == ("measured", "within_run")
    assert opened.verdicts("sealed").to_dicts() == [row]


# -- sealed columns -----------------------------------------------------------------------------------------------


def test_sealed_columns_stay_tokens_unless_revealed(lake: Lake, land_files: LandFiles) -> None:
    land_files({"rank0.json": trace(100)}, "one", 'regime = "cc_off"\nhost = "node-7"\n')
    silver.materialise(lake, "one", engine("polars"))
    opened = teetotal.open(str(lake.place))
    rows = opened.table("silver.runs", columns=["run_id", "host"])
    assert rows.sealed == ("host",)
    assert "node-7" not in str(rows.to_dicts())
    asked = opened.query("SELECT run_id, host FROM silver.runs")
    assert (asked.sealed, asked.to_dicts()) == (("host",), rows.to_dicts())
    revealed = opened.table("silver.runs", columns=["run_id", "host"], reveal=True)
    assert (revealed.sealed, revealed.to_dicts()) == ((), [{"run_id": "one", "host": "node-7"}])
    assert opened.table("silver.runs", columns="host", reveal=True).to_dicts() == [{"host": "node-7"}]


def test_nothing_is_revealed_without_the_keyring(lake: Lake, land_files: LandFiles, tmp_path: Path) -> None:
    land_files({"rank0.json": trace(100)}, "one", 'regime = "cc_off"\nhost = "node-7"\n')
    silver.materialise(lake, "one", engine("polars"))
    KeyringFile(tmp_path / "other.json").create()
    other = teetotal.open(str(lake.place), keyring=tmp_path / "other.json")
    assert other.table("silver.runs", columns="host").sealed == ("host",)
    with pytest.raises(teetotal.LakeError, match="was sealed with key"):
        other.table("silver.runs", columns="host", reveal=True).to_dicts()


# -- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda lake: lake.table("gold.step_overhed"), "there is no table 'gold.step_overhed' (did you mean 'gold.st"),
        (lambda lake: lake.table("silver.runs", columns="hots"), "silver.runs has no column 'hots' (did you mean 'ho"),
        (lambda lake: lake.table("silver.runs", runs=["befor"]), "no run 'befor' in "),
        (lambda lake: lake.table("silver.runs", limit=-1), "limit is -1 (expected a number of rows, or None for all)"),
        (lambda lake: lake.verdicts(["seald"]), "no run 'seald' in "),
        (lambda lake: lake.compare("before", "aftr"), "no run 'aftr' with gold tables (did you mean 'after'?)"),
        (lambda lake: lake.what_if("sealed", chain=4), "'chain': no such setting (did you mean 'chains'?)"),
        (lambda lake: lake.what_if("sealed", chains=True), "chains=true: expected a number of threads"),
        (lambda lake: lake.what_if(chains=4), "no run is named (name a run to change: "),
        (lambda lake: lake.query("SELECT 1 WHERE $a"), "no value for $a (give --param a=…)"),
        (lambda lake: lake.query("DELETE FROM gold.step_times"), "a query only reads, and this is DELETE"),
        (lambda lake: lake.query("SELECT $a", a=[1]), "$a is a list (expected a text, a number, True or False)"),
    ],
)
def test_an_error_is_the_sentence_of_the_command(opened: teetotal.Lake, ask: Any, said: str) -> None:
    with pytest.raises(teetotal.EvidenceRejected) as error:
        ask(opened)
    assert str(error.value).startswith(said)


def test_a_lake_that_is_not_there_is_named_with_the_nearest(compared_lake: Lake) -> None:
    with pytest.raises(teetotal.EvidenceRejected, match=r"there is no lake in .*lak \(did you mean '.*lake'\?\)"):
        teetotal.open(str(compared_lake.place)[:-1])


def test_a_query_ends_at_its_time(compared_lake: Lake) -> None:
    lake = teetotal.open(str(compared_lake.place), timeout_s=0.5)
    with pytest.raises(teetotal.LimitReached, match=r"no answer within 0.5 s"):
        lake.query(
            "SELECT count(*) FROM range(1000000000000) a, range(1000000000000) b WHERE a.range % 7 = b.range % 5"
        )


# -- the interface ------------------------------------------------------------------------------------------------


def test_the_interface_is_what_it_says_it_is() -> None:
    assert teetotal.__all__ == [
        *("Comparison", "ContractBroken", "DataDamaged", "EvidenceRejected", "Lake", "LakeError", "LimitReached"),
        *("Rows", "SourceUnavailable", "open"),
    ]
    methods = {name for name in vars(teetotal.Lake) if not name.startswith("_")}
    assert methods == {"compare", "list_runs", "list_tables", "query", "table", "verdicts", "what_if"}


def test_importing_it_imports_no_engine() -> None:
    program = "import sys, teetotal; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not set(done.stdout.split()) & {"dagster", "deltalake", "duckdb", "narwhals", "pandas", "polars", "pyarrow"}


def test_rows_are_shown_in_a_notebook_without_reading_all(opened: teetotal.Lake) -> None:
    rows = opened.table("silver.spans")
    assert "shape: (20, " in repr(rows)
    assert "<table" in rows._repr_html_()


# -- the page and the notebook ------------------------------------------------------------------------------------


def test_every_example_of_the_page_runs_and_prints_what_the_page_says(
    compared_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place_lake(compared_lake, tmp_path))
    names: dict[str, Any] = {}
    blocks = _BLOCK.findall(PAGE.read_text("utf-8"))
    assert len(blocks) > 10
    for kind, text in blocks:
        if kind == "text":
            assert capsys.readouterr().out == text
            continue
        assert capsys.readouterr().out == "", "what an example prints stands on the page"
        exec(compile(text, str(PAGE), "exec"), names)  # noqa: S102 - the examples of our own page
    assert isinstance(names["frame"], pl.DataFrame)


def read_notebook() -> Any:
    import nbformat  # brings two seconds of grammars of JSON's schemas

    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_notebook_runs_in_a_kernel_and_shows_tables(
    compared_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbclient import NotebookClient  # here: every process of the tests collects this file, and one runs this

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = read_notebook()
    place = {"metadata": {"path": str(place_lake(compared_lake, tmp_path))}}
    NotebookClient(notebook, timeout=300, resources=place).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output for output in shown if output[_OUTPUT] == "error"] == []
    assert "text/html" in next(output.data for output in shown if "inconclusive" in str(output.get("data")))
    assert any("1.20x slower, 95 % 1.19 to 1.21" in output.get("text", "") for output in shown)


def test_the_notebook_is_committed_without_outputs() -> None:
    notebook = read_notebook()
    assert [cell.outputs for cell in notebook.cells if cell.cell_type == "code" and cell.outputs] == []
    assert str(ROOT) not in NOTEBOOK.read_text("utf-8")
