"""`teetotal ui` with lake and landing zone in an object store: what lands there is built without a hand."""

from __future__ import annotations

import json
import signal
import urllib.request
from typing import TYPE_CHECKING

from click.testing import CliRunner

from assets.build.catalogue import TABLES
from lake.keyring import KeyringFile
from pipelines.cli.main import main
from tests.support.campaigns import is_soak
from tests.support.object_stores import EMULATOR
from tests.support.small_runs import OFF, trace
from tests.support.web_interface import House, Serving, eventually

if TYPE_CHECKING:
    from pathlib import Path

ASKED = "{assetsOrError {... on AssetConnection {nodes {key {path} assetMaterializations(limit: 1) {partition}}}}}"


def list_materialised(address: str) -> dict[str, str]:
    """The tables of which the interface knows a partition, each with the last one."""
    headers = {"Content-Type": "application/json", "Origin": address, "Sec-Fetch-Site": "same-origin"}
    request = urllib.request.Request(f"{address}/graphql", json.dumps({"query": ASKED}).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - the interface, on loopback
        nodes = json.load(answer)["data"]["assetsOrError"]["nodes"]
    return {
        ".".join(one["key"]["path"]): told[0]["partition"] for one in nodes if (told := one["assetMaterializations"])
    }


def test_a_run_that_lands_in_a_store_is_built_and_shown_and_the_interface_stops_in_order(tmp_path: Path) -> None:
    KeyringFile(tmp_path / "keyring.json").create()
    (tmp_path / "recorded").mkdir()
    (tmp_path / "recorded" / "rank0.json").write_bytes(trace(100))
    (tmp_path / "recorded" / "run.toml").write_text(OFF)
    own = {"TEETOTAL_KEYRING": str(tmp_path / "keyring.json"), "TEETOTAL_SENSOR_SECONDS": "1"}
    # A launch tells of a tier when it is made: the small form waits for the first of them.
    last = "gold.attested_runs" if is_soak() else "bronze.runs"
    with EMULATOR.serve() as port:
        bucket = EMULATOR.make_bucket(port, "watched")
        house = House(tmp_path, bucket, **own, **EMULATOR.options_for(port))
        with Serving(house, tmp_path / "ui.log") as serving:
            address = serving.wait_for_line(r"^(http://127\.0\.0\.1:\d+) ")
            words = [*house.places, "land", str(tmp_path / "recorded"), "--run-id", "watched"]
            assert CliRunner(env=house.environment).invoke(main, words).exit_code == 0
            eventually(lambda: list_materialised(address).get(last) == "watched", f"{last} is shown")
            assert house.lake.snapshot(TABLES[last]).run_ids == ["watched"]
            assert serving.stop(signal.SIGTERM) == 0
            assert serving.said().endswith("stopped\n")
        assert house.left() == []
