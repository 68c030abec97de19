"""Places that people type: before or after the command, and an error with the nearest name where nothing is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from pipelines.cli.main import main
from tests.support.traces import trace

if TYPE_CHECKING:
    from pathlib import Path

_WORDS = (
    ["show", "bronze.runs"],
    ["query", "SELECT 1"],
    ["report"],
    ["verify"],
    ["what-if"],
    ["what-if", "job"],
    ["validate"],
    ["compare", "a", "b"],
    ["gate"],
    ["export", "job", "--perfetto", "trace.json"],
    ["history"],
    ["release", "--epsilon", "0.5", "--budget", "2"],
)


def invoke(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with bronze of one run, and what it landed from; only to be read."""
    home = tmp_path_factory.mktemp("home")
    source = home / "rank0.json"
    source.write_bytes(trace('{"ph": "X", "name": "a", "ts": 1, "dur": 2}'))
    places = ("--lake", home / "lake", "--landing", home / "landing")
    assert invoke(*places, "land", source, "--run-id", "job").exit_code == 0
    assert invoke("run", "--to", "bronze.runs", "--no-check", *places).exit_code == 0
    return home


@pytest.mark.parametrize("words", _WORDS, ids=" ".join)
def test_a_lake_that_is_not_there_is_an_error_and_not_an_empty_answer(tmp_path: Path, words: list[str]) -> None:
    done = invoke("--lake", tmp_path / "nothing", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"teetotal: there is no lake in {tmp_path / 'nothing'} (`teetotal run` makes it from what has landed; "
        "--lake or TEETOTAL_LAKE names another)\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["lkae", "lake/bronze", "lake/data"])
def test_a_lake_nearby_is_the_one_that_was_meant(home: Path, name: str) -> None:
    done = invoke("show", "bronze.runs", "--lake", home / name)
    assert (done.exit_code, done.stderr) == (
        2,
        f"teetotal: there is no lake in {home / name} (did you mean '{home / 'lake'}'?)\n",
    )


def test_a_run_that_is_not_there_is_an_error_with_the_nearest_name(home: Path) -> None:
    done = invoke("--lake", home / "lake", "show", "bronze.runs", "--run", "jov")
    assert (done.exit_code, done.stderr) == (2, f"teetotal: no run 'jov' in {home / 'lake'} (did you mean 'job'?)\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--columns", "regim"), "did you mean 'regime'?"),
        (("--run", "x' OR '1'='1"), "no run \"x' OR '1'='1\" in "),
        (("--run", "job", "--run", "../job"), "no run '../job' in "),
    ],
)
def test_a_wrong_name_is_one_line_that_says_what_to_do(home: Path, words: tuple[str, ...], said: str) -> None:
    done = invoke("--lake", home / "lake", "show", "bronze.runs", *words)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_a_run_that_has_landed_has_no_rows_in_a_table_that_is_not_made_yet(home: Path) -> None:
    done = invoke("--lake", home / "lake", "show", "gold.step_overhead", "--run", "job")
    assert (done.exit_code, done.output) == (0, "no rows\n")
    done = invoke("--lake", home / "lake", "show", "gold.step_overhead", "--format", "json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])


def test_a_place_may_follow_the_command_and_the_last_one_counts(home: Path, tmp_path: Path) -> None:
    words = ["show", "bronze.runs", "--columns", "run_id", "--format", "csv"]
    before = invoke("--lake", home / "lake", *words)
    after = invoke(*words, "--lake", home / "lake")
    both = invoke("--lake", tmp_path / "nothing", *words, "--lake", home / "lake")
    assert before.exit_code == 0
    assert "job" in before.stdout
    assert after.stdout == both.stdout == before.stdout


def test_a_place_may_follow_a_command_of_a_group(home: Path) -> None:
    places = ("--lake", home / "lake", "--keyring", home / "keyring.json")
    assert invoke("keys", "list", *places).output == invoke(*places, "keys", "list").output
    assert invoke("keys", *places, "list").output == invoke(*places, "keys", "list").output


def test_a_value_that_is_none_is_refused_wherever_it_stands() -> None:
    before, after = invoke("--margin", "2", "status"), invoke("status", "--margin", "2")
    assert before.exit_code == after.exit_code == 1
    assert before.stderr == after.stderr
    assert before.stderr.startswith("teetotal: ")
    assert "margin" in before.stderr.lower()


def test_status_of_a_lake_beside_another_is_taken_for_mistyped(home: Path) -> None:
    done = invoke("status", "--lake", home / "lkae", "--landing", home / "landing")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"teetotal: there is no lake in {home / 'lkae'} (`teetotal run` makes a new one; did you mean "
        f"'{home / 'lake'}'?)\n"
    )


def test_run_makes_a_lake_beside_another_and_says_which_one_may_have_been_meant(home: Path, tmp_path: Path) -> None:
    places = ("--lake", tmp_path / "lkae", "--landing", tmp_path / "landing")
    assert "note" not in invoke("run", *places).stderr
    (tmp_path / "lake").symlink_to(home / "lake")
    assert f"note: there is no lake in {tmp_path / 'lkae'} yet, and this run makes it (did you mean " in (
        invoke("run", *places).stderr
    )


def test_status_before_the_first_run_shows_what_has_landed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data" / "another" / "bronze").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    unnamed = invoke("status", "--landing", home / "landing")
    named = invoke("status", "--lake", tmp_path / "lake", "--landing", home / "landing")
    assert (unnamed.exit_code, named.exit_code) == (0, 0)
    assert unnamed.output == named.output
    assert "job" in named.output


def test_a_pipe_gets_the_result_and_no_sign_of_life(home: Path) -> None:
    done = invoke("verify", "--lake", home / "lake", "--landing", home / "landing")
    assert (done.exit_code, done.stderr) == (0, "")


def test_status_of_nothing_names_both_places(tmp_path: Path) -> None:
    done = invoke("status", "--lake", tmp_path / "lake", "--landing", tmp_path / "landing")
    assert done.exit_code == 0
    assert done.output.startswith(f"nothing in {tmp_path / 'landing'} and no lake in {tmp_path / 'lake'} yet: ")
