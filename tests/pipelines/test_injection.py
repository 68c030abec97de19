"""Hostile texts wherever a text can be typed: each is a value or a refusal, and nothing else changes."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import duckdb
import pytest
from click.testing import CliRunner

from assets.build.bronze import materialise
from bronze.limits import Limits
from lake.connections import lock, open_sandboxed
from lake.errors import EvidenceRejected
from lake.identity import MANIFEST
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from pipelines.cli import sandbox
from pipelines.cli.main import main
from pipelines.cli.query import parameters, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

_TRACE = b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2}]}'
PAYLOADS = {
    "always true": "x' OR '1'='1",
    "always true, double quotes": 'x" OR "1"="1',
    "always true, numbers": "1 OR 1=1",
    "drop": "'; DROP TABLE bronze.runs; --",
    "drop, identifier": 'runs"; DROP VIEW bronze.runs; --',
    "union": "x' UNION SELECT run_id FROM bronze.runs --",
    "stacked copy": "x'; COPY bronze.runs TO 'stolen.csv'; --",
    "copy to program": "x'; COPY (SELECT 1) TO PROGRAM 'touch stolen'; --",
    "attach": "x'; ATTACH 'stolen.db'; --",
    "line comment": "a'--",
    "block comment": "a'/**/OR/**/1=1/*",
    "nested comment": "/*/*'*/ OR 1=1 --*/",
    "file": "read_text('/etc/passwd')",
    "file name": "/etc/passwd",
    "traversal": "../../../etc/passwd",
    "traversal, windows": "..\\..\\windows\\win.ini",
    "traversal, encoded": "..%2f..%2fetc%2fpasswd",
    "hive path": "run_id=a",
    "glob": "*",
    "curly quotes": "x\N{RIGHT SINGLE QUOTATION MARK} OR \N{LEFT SINGLE QUOTATION MARK}1",
    "fullwidth quote": "x\N{FULLWIDTH APOSTROPHE} OR 1=1",
    "modifier quote": "x\N{MODIFIER LETTER APOSTROPHE}; DROP TABLE runs",
    "null byte": "a\0' OR '1'='1",
    "null byte alone": "\0",
    "backslash": "\\",
    "backslash quote": "\\' OR 1=1 --",
    "escape sequence": "\x1b[2J\x1b]0;owned\x07",
    "lines": "a\nb\r\nc\N{LINE SEPARATOR}d",
    "right to left": "\N{RIGHT-TO-LEFT OVERRIDE}nur",
    "positional parameter": "$1",
    "own parameter": "$value",
    "dollar quotes": "$$ OR 1=1 $$",
    "shell": "${HOME} $(touch stolen) `touch stolen` | touch stolen",
    "percent format": "%s%n%(name)s",
    "brace format": "{0.__class__.__mro__}",
    "template": "{{7*7}}",
    "markup": "[bold]a[/bold] <script>alert(1)</script>",
    "option": "--help",
    "not UTF-8": "\udcff",
    "very long": "a" * 100_000,
    "very long and quoted": "'" * 100_000,
}
# What moves the cursor of a terminal, or ends a text.
CONTROLS = {"\x1b", "\x07", "\0"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with one run, its landing zone, a file to land, and an empty desk to work at."""
    root = tmp_path_factory.mktemp("injection")
    (root / "landing" / "a").mkdir(parents=True)
    (root / "landing" / "a" / MANIFEST).write_text('model = "resnet50"\n')
    (root / "landing" / "a" / "rank0.json").write_bytes(_TRACE)
    (root / "trace.json").write_bytes(_TRACE)
    (root / "desk").mkdir()
    materialise(Lake(Location.of(root / "lake")), LandingZone(Location.of(root / "landing")), "a", Limits())
    return root


@pytest.mark.parametrize(
    "words",
    [
        ["query", "SELECT 1", "--param", "PAYLOAD=1"],
        ["query", "SELECT 1", "--param=PAYLOAD"],
        ["query", "--file=PAYLOAD"],
        ["show", "--", "PAYLOAD"],
        ["show", "bronze.runs", "--columns=PAYLOAD"],
        ["show", "bronze.runs", "--run=PAYLOAD"],
        ["run", "--", "PAYLOAD"],
        ["land", "TRACE", "--run-id=PAYLOAD"],
        ["land", "TRACE", "--regime=PAYLOAD"],
        ["land", "TRACE", "--baseline=PAYLOAD"],
        ["land", "TRACE", "--set=PAYLOAD"],
        ["land", "TRACE", "--set=PAYLOAD=1"],
        ["land", "TRACE", "--set=cc_mode=PAYLOAD"],
        ["land", "TRACE", "--set=batch_size=PAYLOAD"],
        ["land", "TRACE", "--set=repeat_of=PAYLOAD"],
    ],
    ids=" ".join,
)
def test_a_hostile_text_finds_no_rows_or_is_refused_and_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(root / "desk")
    before, answers = _tree(root), {}
    for name, payload in PAYLOADS.items():
        typed = [word.replace("PAYLOAD", payload).replace("TRACE", str(root / "trace.json")) for word in words]
        done = _invoke(root, typed)
        answers[name] = done.exit_code, done.stdout, bool(done.stderr.strip()), set(done.stderr) & CONTROLS
    assert {name: answer for name, answer in answers.items() if answer != (2, "", True, set())} == {}
    assert _tree(root) == before


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("SELECT * FROM bronze.runs WHERE run_id = $value OR model = $value", "value:text"),
        ("SELECT * FROM bronze.runs WHERE model LIKE $value || '.'", "value"),
    ],
)
def test_a_hostile_value_finds_no_rows_or_is_refused_and_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, sql: str, name: str
) -> None:
    monkeypatch.chdir(root / "desk")
    before, lake, refusals = _tree(root), Lake(Location.of(root / "lake")), {}
    for payload in PAYLOADS.values():
        try:
            with sandbox.ask(lake, sql, parameters([f"{name}={payload}"])) as answer:
                assert answer.rows().read_all().num_rows == 0, payload[:80]
        except EvidenceRejected as error:
            refusals[payload] = str(error)
    assert {payload[:80]: said for payload, said in refusals.items() if set(said) & CONTROLS} == {}
    assert _tree(root) == before


def test_a_hostile_statement_is_refused_or_only_reads(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "desk")
    before, lake = _tree(root), Lake(Location.of(root / "lake"))
    for payload in PAYLOADS.values():
        with (
            pytest.raises(EvidenceRejected) as refused,
            sandbox.ask(lake, text_of(payload, None, BytesIO())) as answer,
        ):
            answer.rows().read_all()
        assert "root:" not in str(refused.value)
    assert _tree(root) == before


def test_a_hostile_statement_and_a_hostile_value_leave_nothing_behind_when_typed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "desk")
    before = _tree(root)
    done = _invoke(root, ["query", "SELECT * FROM bronze.runs WHERE model = $v", f"--param=v:text={PAYLOADS['drop']}"])
    assert (done.exit_code, done.stdout) == (0, "no rows\n")
    done = _invoke(root, ["query", "--", PAYLOADS["escape sequence"]])
    assert (done.exit_code, done.stdout) == (2, "")
    assert not set(done.stderr) & CONTROLS
    assert _tree(root) == before


def test_a_hostile_text_in_a_field_for_any_text_is_kept_as_it_is(tmp_path: Path) -> None:
    """Free text may say anything: it comes back to the letter, found by its value, and no other run with it."""
    (tmp_path / "trace.json").write_bytes(_TRACE)
    lake, zone = Lake(Location.of(tmp_path / "lake")), LandingZone(Location.of(tmp_path / "landing"))
    texts = {"plain": "resnet50", **{f"hostile-{number}": text for number, text in enumerate(PAYLOADS.values())}}
    for run_id, text in texts.items():
        words = ["land", str(tmp_path / "trace.json"), f"--run-id={run_id}"]
        assert _invoke(tmp_path, [*words, f"--set=model={text}", f"--set=note={text}"]).exit_code == 0, text[:80]
        materialise(lake, zone, run_id, Limits())
    sql = "SELECT run_id, model, note FROM bronze.runs WHERE model = $model"
    for run_id, text in texts.items():
        kept = text.encode("utf-8", "replace").decode("utf-8")
        with sandbox.ask(lake, sql, parameters([f"model:text={kept}"])) as answer:
            found = answer.rows().read_all().to_pylist()
        assert found == [{"run_id": run_id, "model": kept, "note": kept}]
    assert {path.name for path in tmp_path.iterdir()} == {"trace.json", "lake", "landing"}
    assert {path.name for path in (tmp_path / "landing").iterdir()} == texts.keys()


def test_no_table_function_opens_a_file(tmp_path: Path) -> None:
    canary = tmp_path / "canary.csv"
    canary.write_text("tweet,tweet\n1,2\n")
    functions = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro')"
    repeated = {"repeat", "unnest", "json_each", "json_tree"}  # these say back what they are given
    with open_sandboxed(1 << 30) as connection:
        lock(connection)
        names = sorted(name for (name,) in connection.execute(functions).fetchall())
        assert {"read_csv", "read_text", "glob", "parquet_metadata", "sniff_csv"} <= set(names)
        for name in names:
            for arguments in (f"'{canary}'", f"['{canary}']", f"'{tmp_path}/*'", f"'{canary}', 'a', 'b'"):
                try:
                    result = str(connection.execute(f"FROM {name}({arguments})").fetchmany(50))
                except duckdb.Error:
                    connection.execute("ROLLBACK")
                    connection.execute("BEGIN TRANSACTION READ ONLY")
                    continue
                assert "tweet" not in result, name
                assert name in repeated or "canary.csv" not in result, name
    assert _tree(tmp_path) == {"canary.csv": b"tweet,tweet\n1,2\n"}


def _invoke(root: Path, words: list[str]) -> Result:
    places = ["--lake", str(root / "lake"), "--landing", str(root / "landing")]
    return CliRunner().invoke(main, [*places, *words], catch_exceptions=False)


def _tree(root: Path) -> dict[str, bytes]:
    """Every file below a directory with its bytes, and every directory."""
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"" for path in root.rglob("*")}
