"""Secrets planted wherever a person may leave one: none is in silver or gold, nor in what commands say of them."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from functools import partial
from io import BytesIO, StringIO
from typing import TYPE_CHECKING

import polars as pl
import pytest
from click.testing import CliRunner

from assets.build import gold, silver
from pipelines.cli.main import main
from tests.support.campaigns import is_soak
from tests.support.planted_texts import finds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

RUN, SEALED = "job-1", "job-2"
CLAIMED = {name: f"planted-{name}-erika" for name in ("host", "owner", "job", "note")}
EXTRA = "planted-extra-bunker-7"
ANNOTATION, ON_GPU, STRANGE = "planted-annotation-merger", "planted-on-gpu-merger", "planted-of-no-category"
MODULE = "nn.Module: PlantedModuleErika_0"
FRAME = "/home/planted-frame-erika/secret/train.py(17): forward"
GPU = "GPU-planted-uuid-0815"
REFUSED, UNREADABLE = "planted-refused-name", "planted-unreadable-name"
THREAD, CATEGORY, REFUSED_CATEGORY = "planted-thread-erika", "planted-category", "planted-refused-category"
FILE, TRACE_FILE, CONTENT = "planted-file.txt", "planted-trace-rank0.json", "planted-content-password"
SECRETS = (
    *CLAIMED.values(),
    EXTRA,
    ANNOTATION,
    ON_GPU,
    STRANGE,
    GPU,
    "planted-frame-erika",
    "PlantedModuleErika",
    REFUSED,
    UNREADABLE,
    THREAD,
    CATEGORY,
    REFUSED_CATEGORY,
    FILE,
    TRACE_FILE,
)
OTHER_FORMS = ("table", "csv", "parquet")


def span(category: str, name: str, length: float = 1, thread: object = 1) -> str:
    return json.dumps({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": 5, "dur": length})


@dataclass(frozen=True)
class Said:
    """A lake that two runs full of secrets went through, what was printed and logged meanwhile, and its command."""

    home: Path
    results: dict[tuple[str, str], Result]
    log: str

    def teetotal(self, *words: str) -> Result:
        """The command, in this process, with a keyring beside the lake."""
        return teetotal(self.home, *words)


def teetotal(home: Path, *words: str) -> Result:
    places = ["--lake", str(home / "lake"), "--landing", str(home / "landing")]
    return CliRunner().invoke(main, [*places, *words], catch_exceptions=False)


def plant(directory: Path, claims: str) -> None:
    """A run with a secret wherever there may be one, and a step with readings of its device."""
    directory.mkdir(parents=True)
    events = [
        span("user_annotation", ANNOTATION),
        span("gpu_user_annotation", ON_GPU),
        span(CATEGORY, STRANGE),
        span("cpu_op", "aten::mm", thread=THREAD),
        span(REFUSED_CATEGORY, "refused", -1),
        span("python_function", FRAME),
        span("python_function", MODULE),
        span("user_annotation", REFUSED, -1),
        span("kernel", "a_kernel"),
        '{"name": "' + UNREADABLE + '", "ph": "X", "ts": 00x}',
    ]
    (directory / TRACE_FILE).write_text('{"traceEvents": [' + ", ".join(events) + "]}")
    (directory / FILE).write_text(f"{CONTENT} is what this file, which is no trace, begins with")
    (directory / "steps.csv").write_text("step,began,duration\n0,1700000000,1\n1,1700000001,1\n")
    moments = [f"2023/11/14 22:13:{second}.000, 0, {GPU}, 300 W\n" for second in range(19, 24)]
    (directory / "samples.csv").write_text("timestamp, index, uuid, power.draw [W]\n" + "".join(moments))
    claims += "".join(f'{name} = "{value}"\n' for name, value in CLAIMED.items())
    (directory / "run.toml").write_text(f'{claims}[extra]\ncluster = "{EXTRA}"\n')


@pytest.fixture(scope="module")
def command_output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Said]:
    """The runs measured; what `run`, and `show` of every table, had to say: of one that has rows in every format.

    Only to be read.
    """
    home = tmp_path_factory.mktemp("planted-nowhere")
    plant(home / "landing" / RUN, 'regime = "cc_off"\n')
    plant(home / "landing" / SEALED, f'regime = "sw_per_hop_aesgcm"\nbaseline = "{RUN}"\n')
    log, root = StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(log), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TEETOTAL_KEYRING", "TEETOTAL_KEYRING_SECRET"):
            patch.delenv(name, raising=False)
        found = {("run", ""): teetotal(home, "run")}
        for table in (*silver.TABLES, *gold.TABLES):
            name = table.full_name
            show = partial(teetotal, home, "show", name, "--limit", "0", "--format")
            found[name, "json"] = show("json")
            # A table without rows says its columns alone, in whatever format; one without a sealed column has the same
            # texts in each.
            if found[name, "json"].stdout.strip() != "[]" and (table.sealed or is_soak()):
                found |= {(name, form): show(form) for form in OTHER_FORMS}
        root.removeHandler(handler)
        root.setLevel(level)
        assert [result.output for result in found.values() if result.exit_code] == []
        yield Said(home, found, log.getvalue())


def leaks(result: Result, form: str, *secrets: str) -> list[str]:
    """Those of the secrets that a command's output holds, in whatever form."""
    texts = [result.stderr]
    if form == "parquet":
        texts.append(str(pl.read_parquet(BytesIO(result.stdout_bytes)).to_dicts()))
    else:
        texts.append(result.stdout)
    return [secret for secret in secrets if any(secret in text for text in texts)]


@pytest.mark.parametrize("tier", ["silver", "gold"])
def test_no_secret_is_stored_in_silver_or_gold(command_output: Said, tier: str) -> None:
    assert finds(command_output.home / "lake" / tier, *SECRETS) == []
    # The search itself finds what is there.
    bronze = " ".join(finds(command_output.home / "lake" / "bronze", *SECRETS))
    assert [secret for secret in SECRETS if secret not in bronze] == []


def test_gold_has_answers_in_which_a_secret_could_be(command_output: Said) -> None:
    answers = {name for name, form in command_output.results if name.startswith("gold.") and form == "json"}
    filled = {name for name in answers if json.loads(command_output.results[name, "json"].stdout)}
    assert filled >= {"gold.attested_runs", "gold.kernel_breakdown", "gold.pairs", "gold.step_energy"}
    assert {"gold.energy_overhead", "gold.throughput_overhead", "gold.step_overhead"} <= filled
    in_every_form = {name for name, form in command_output.results if form in OTHER_FORMS}
    assert in_every_form >= {"silver.runs", "silver.spans", "silver.rejects", "silver.device_samples"}


@pytest.mark.parametrize("tier", ["silver", "gold"])
def test_the_beginning_of_a_refused_file_is_not_stored(command_output: Said, tier: str) -> None:
    assert finds(command_output.home / "lake" / tier, CONTENT[:15]) == []


def test_no_secret_is_printed_or_logged_by_commands(command_output: Said) -> None:
    results = command_output.results.items()
    assert {place: found for place, result in results if (found := leaks(result, place[1], *SECRETS))} == {}
    assert command_output.log
    assert [secret for secret in SECRETS if secret in command_output.log] == []
    drawn = command_output.results["silver.runs", "table"].output
    assert "sealed" in drawn


def test_status_tells_no_secret_but_the_names_of_files_as_bronze_has_them(command_output: Said) -> None:
    answer = command_output.teetotal("status")
    assert answer.exit_code == 0
    assert set(leaks(answer, "table", *SECRETS)) <= {FILE, TRACE_FILE}
    assert REFUSED not in answer.output
    assert "2 rejected: A negative duration is a clock fault" in answer.output


def test_reveal_gives_every_secret_back(command_output: Said) -> None:
    def reveal_rows(table: str) -> list[dict[str, str]]:
        words = ("show", table, "--run", RUN, "--reveal", "--format", "json")
        rows: list[dict[str, str]] = json.loads(command_output.teetotal(*words).stdout)
        return rows

    (run,) = reveal_rows("silver.runs")
    assert {name: run[name] for name in CLAIMED} == CLAIMED
    assert json.loads(run["extra"]) == {"cluster": EXTRA}
    labels = {row["label"] for row in reveal_rows("silver.spans") if row["label"]}
    assert labels == {ANNOTATION, ON_GPU, STRANGE, FRAME, MODULE}
    assert {row["device_uuid"] for row in reveal_rows("silver.device_samples")} == {GPU}
    refused = {row["level"]: row["label"] for row in reveal_rows("silver.rejects")}
    assert refused["event"] == REFUSED
    assert refused["file"].startswith(f"{FILE}: ")
    assert UNREADABLE in refused["byte_range"]
    drawn = command_output.teetotal("show", "silver.runs", "--reveal").output
    assert all(value in drawn for value in CLAIMED.values())


def test_without_its_keyring_nothing_is_revealed_and_nothing_is_told(command_output: Said, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(command_output.home, home)
    (home / "keyring.json").unlink()
    for table in ("silver.runs", "silver.spans", "silver.rejects"):
        shown = teetotal(home, "show", table, "--reveal", "--format", "csv")
        assert shown.exit_code == 1
        assert leaks(shown, "csv", *SECRETS, CONTENT) == []
        assert teetotal(home, "show", table, "--format", "csv").exit_code == 0
