"""Secrets planted wherever a person may leave one: none is found in silver, nor in what commands say of it."""

from __future__ import annotations

import json
import logging
from io import BytesIO
from typing import TYPE_CHECKING

import polars as pl
import pytest
from click.testing import CliRunner

from assets import silver
from pipelines.cli import main
from tests.planted import finds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

RUN = "job-1"
CLAIMED = {name: f"planted-{name}-erika" for name in ("host", "owner", "job", "note")}
EXTRA = "planted-extra-bunker-7"
ANNOTATION, ON_GPU, STRANGE = "planted-annotation-merger", "planted-on-gpu-merger", "planted-of-no-category"
FRAME = "/home/planted-frame-erika/secret/train.py(17): forward"
REFUSED, UNREADABLE = "planted-refused-name", "planted-unreadable-name"
FILE, TRACE_FILE, CONTENT = "planted-file.txt", "planted-trace-rank0.json", "planted-content-password"
SECRETS = (
    *CLAIMED.values(),
    EXTRA,
    ANNOTATION,
    ON_GPU,
    STRANGE,
    "planted-frame-erika",
    REFUSED,
    UNREADABLE,
    FILE,
    TRACE_FILE,
)
FORMS = ("table", "csv", "json", "parquet")


def span(category: str, name: str, length: float = 1) -> str:
    return json.dumps({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": 5, "dur": length})


@pytest.fixture
def teetotal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, in this process, with a keyring beside the lake."""
    for name in ("TEETOTAL_KEYRING", "TEETOTAL_KEYRING_SECRET"):
        monkeypatch.delenv(name, raising=False)
    places = ["--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing")]
    return lambda *words: CliRunner().invoke(main, [*places, *words], catch_exceptions=False)


@pytest.fixture
def said(
    teetotal: Callable[..., Result], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> dict[tuple[str, str], Result]:
    """A run full of secrets, conformed; what `run`, and `show` of every table in every format, had to say."""
    directory = tmp_path / "landing" / RUN
    directory.mkdir(parents=True)
    events = [
        span("user_annotation", ANNOTATION),
        span("gpu_user_annotation", ON_GPU),
        span("nobody_knows", STRANGE),
        span("python_function", FRAME),
        span("user_annotation", REFUSED, -1),
        span("kernel", "a_kernel"),
        '{"name": "' + UNREADABLE + '", "ph": "X", "ts": 00x}',
    ]
    (directory / TRACE_FILE).write_text('{"traceEvents": [' + ", ".join(events) + "]}")
    (directory / FILE).write_text(f"{CONTENT} is what this file, which is no trace, begins with")
    claims = "".join(f'{name} = "{value}"\n' for name, value in CLAIMED.items())
    (directory / "run.toml").write_text(f'regime = "cc_off"\n{claims}[extra]\ncluster = "{EXTRA}"\n')
    with caplog.at_level(logging.DEBUG):
        found = {("run", ""): teetotal("run")}
        for table in silver.TABLES:
            for form in FORMS:
                found[table.full_name, form] = teetotal("show", table.full_name, "--format", form, "--limit", "0")
    assert [result.output for result in found.values() if result.exit_code] == []
    return found


def leaks(result: Result, form: str, *secrets: str) -> list[str]:
    """Those of the secrets that a command's output holds, in whatever form."""
    texts = [result.stderr]
    if form == "parquet":
        texts.append(str(pl.read_parquet(BytesIO(result.stdout_bytes)).to_dicts()))
    else:
        texts.append(result.stdout)
    return [secret for secret in secrets if any(secret in text for text in texts)]


def test_no_secret_is_stored_in_silver(said: dict[tuple[str, str], Result], tmp_path: Path) -> None:
    assert finds(tmp_path / "lake" / "silver", *SECRETS) == []
    # The search itself finds what is there.
    bronze = " ".join(finds(tmp_path / "lake" / "bronze", *SECRETS))
    assert [secret for secret in SECRETS if secret not in bronze] == []


def test_the_beginning_of_a_refused_file_is_not_stored_in_silver(
    said: dict[tuple[str, str], Result], tmp_path: Path
) -> None:
    assert finds(tmp_path / "lake" / "silver", CONTENT[:15]) == []


def test_no_secret_is_printed_or_logged_by_commands_for_silver(
    said: dict[tuple[str, str], Result], caplog: pytest.LogCaptureFixture
) -> None:
    assert {place: found for place, result in said.items() if (found := leaks(result, place[1], *SECRETS))} == {}
    assert [secret for secret in SECRETS if secret in caplog.text] == []
    drawn = said["silver.runs", "table"].output
    assert "sealed" in drawn


def test_status_tells_no_secret_but_the_names_of_files_as_bronze_has_them(
    said: dict[tuple[str, str], Result], teetotal: Callable[..., Result]
) -> None:
    told = teetotal("status")
    assert told.exit_code == 0
    assert set(leaks(told, "table", *SECRETS)) <= {FILE, TRACE_FILE}
    assert REFUSED not in told.output
    assert "1 rejected: A negative duration is a clock fault" in told.output


def test_reveal_gives_every_secret_back(said: dict[tuple[str, str], Result], teetotal: Callable[..., Result]) -> None:
    def revealed(table: str) -> list[dict[str, str]]:
        rows: list[dict[str, str]] = json.loads(teetotal("show", table, "--reveal", "--format", "json").stdout)
        return rows

    (run,) = revealed("silver.runs")
    assert {name: run[name] for name in CLAIMED} == CLAIMED
    assert json.loads(run["extra"]) == {"cluster": EXTRA}
    labels = {row["label"] for row in revealed("silver.spans") if row["label"]}
    assert labels == {ANNOTATION, ON_GPU, STRANGE, FRAME}
    refused = {row["level"]: row["label"] for row in revealed("silver.rejects")}
    assert refused["event"] == REFUSED
    assert refused["file"].startswith(f"{FILE}: ")
    assert UNREADABLE in refused["stretch"]
    drawn = teetotal("show", "silver.runs", "--reveal").output
    assert all(value in drawn for value in CLAIMED.values())


def test_without_its_keyring_nothing_is_revealed_and_nothing_is_told(
    said: dict[tuple[str, str], Result], teetotal: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "keyring.json").unlink()
    for table in ("silver.runs", "silver.spans", "silver.rejects"):
        shown = teetotal("show", table, "--reveal", "--format", "csv")
        assert shown.exit_code == 1
        assert leaks(shown, "csv", *SECRETS, CONTENT) == []
        assert teetotal("show", table, "--format", "csv").exit_code == 0
