from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from benchmarks.measuring import ROOT
from benchmarks.standalone import free_port
from lake.errors import ContractBroken
from pipelines.cli.main import main
from pipelines.definitions import build_context
from pipelines.settings import settings

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_word_spark_is_what_its_own_settings_say() -> None:
    cluster = settings(environment={}).spark
    assert (cluster.url, cluster.is_connect, cluster.archive, cluster.python, cluster.shuffle_partitions) == (
        None,
        False,
        None,
        None,
        8,
    )


@pytest.mark.parametrize(
    ("url", "is_connect"),
    [("local", False), ("local[*]", False), ("spark://a:7077", False), ("sc://a:15002/;token=x", True)],
)
def test_one_setting_says_where_spark_is(url: str, is_connect: bool) -> None:
    cluster = settings(environment={"TEETOTAL_SPARK": url}).spark
    assert (cluster.url, cluster.is_connect) == (url, is_connect)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TEETOTAL_SPARK", "yarn!", r"TEETOTAL_SPARK is 'yarn!' \(expected local\[\*\], spark://"),
        ("TEETOTAL_SPARK_SHUFFLE_PARTITIONS", "many", "expected a whole number of at least 1"),
        ("TEETOTAL_CHECKS", "Spark", r"^TEETOTAL_CHECKS is 'Spark' \(expected duckdb or spark\)$"),
        ("TEETOTAL_SPARK_CONF", "executor.memory=1g", r"holds 'executor.memory' \(expected spark.name=value"),
    ],
)
def test_a_setting_that_is_none_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(ContractBroken, match=said):
        settings(environment={name: value})


@pytest.mark.parametrize(
    ("word", "chosen"), [(None, "duckdb"), ("", "duckdb"), ("duckdb", "duckdb"), (" spark ", "spark")]
)
def test_one_setting_says_what_looks_at_the_rows_in_checks(word: str | None, chosen: str) -> None:
    found = settings(environment={} if word is None else {"TEETOTAL_CHECKS": word})
    assert (found.checks, build_context(found).checks) == (chosen, chosen)


def test_a_wrong_word_for_checks_is_one_line_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEETOTAL_CHECKS", "pandas")
    said = CliRunner().invoke(main, ["status"])
    assert (said.exit_code, said.output) == (1, "teetotal: TEETOTAL_CHECKS is 'pandas' (expected duckdb or spark)\n")


def test_what_is_handed_on_to_spark_is_not_shown() -> None:
    words = "spark.hadoop.fs.s3a.secret.key=hush spark.executor.cores=2"
    cluster = settings(environment={"TEETOTAL_SPARK_CONF": words, "TEETOTAL_SPARK_MEMORY": "3g"}).spark
    assert cluster.conf == {"spark.hadoop.fs.s3a.secret.key": "hush", "spark.executor.cores": "2"}
    assert cluster.executor_memory == "3g"
    assert "hush" not in repr(cluster)
    assert "hush" not in repr(settings(environment={"TEETOTAL_SPARK": "sc://a:1/;token=hush"}).spark)


@pytest.mark.parametrize("url", ["sc://127.0.0.1:{port}/;token=hush", "spark://127.0.0.1:{port}"])
def test_a_cluster_that_is_not_there_is_told_of_at_once(url: str) -> None:
    url = url.format(port=free_port())
    script = f"from lake.cluster import Cluster; Cluster(url={url!r}).session()"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)  # noqa: PLW1510
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "SourceUnavailable: no Spark at" in last
    assert "check TEETOTAL_SPARK" in last
    assert "hush" not in last


def test_an_executor_is_told_addresses_and_no_secret(tmp_path: Path) -> None:
    known = {
        "AWS_SECRET_ACCESS_KEY": "hush-storage",
        "TEETOTAL_KEYRING_SECRET": "hush-keys",
        "TEETOTAL_LAKE": "s3://bucket/lake",
    }
    sent = pickle.dumps(settings(environment=known).spark.reach)
    assert b"s3://bucket/lake" in sent
    assert b"hush" not in sent
    named = settings(str(tmp_path / "lake"), keyring=str(tmp_path / "keyring.json"), environment={}).spark.reach
    assert str(tmp_path / "keyring.json").encode() in pickle.dumps(named)


def test_an_executor_opens_the_same_lake_with_its_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = settings("s3://bucket/lake", str(tmp_path / "landing"), environment={}).spark.reach
    assert reach is not None
    monkeypatch.setenv("AWS_REGION", "of-the-executor")
    site = pickle.loads(pickle.dumps(reach))()  # noqa: S301 - what was just pickled here
    assert str(site.lake.place) == "s3://bucket/lake"
    assert site.lake.place.options["AWS_REGION"] == "of-the-executor"
    assert str(site.zone.place) == str(tmp_path / "landing")
