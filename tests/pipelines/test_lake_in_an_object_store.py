"""Landing zone and lake in an object store of which one request in twenty fails, and one of two writers is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from assets.build.catalogue import TABLES
from assets.build.context import BuildContext
from assets.build.tiers import build_tier
from benchmarks.object_store import FAULTS, StoreProxy, read_injected, renew_credentials, serve_proxy
from bronze.limits import Limits
from lake.engines import PolarsEngine
from lake.errors import LakeError
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from pipelines.cli.main import main
from pipelines.cli.session import open_lake, open_signed_lake
from pipelines.definitions import build_definitions
from pipelines.instance import open_instance
from pipelines.settings import settings
from tests.support.build_runs import build_pairs
from tests.support.campaigns import is_soak
from tests.support.lake_builders import SMALL, build_tables
from tests.support.object_stores import EMULATOR
from tests.support.processes import ROOT
from tests.support.small_runs import OFF, TEE, trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from click.testing import Result

    from lake.store import Lake
    from pipelines.settings import Settings

RUNS = {"calm-off": (100, OFF), "calm-tee": (120, f'{TEE}baseline = "calm-off"\n')}
SHARE = 0.05
SEED = 20261117
# In the middle of the tables, which are built in the order of what needs what.
COMMIT = r"PUT .*/silver/crossings/_delta_log/\d+\.json"
PATIENCE_S = 300
State = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Site:
    """A lake and a landing zone, with records and keys of their own."""

    lake: str
    landing: str
    home: Path
    variables: Mapping[str, str]

    def teetotal(self, *words: str) -> Result:
        """Run the command in this process."""
        places = ("--lake", self.lake, "--landing", self.landing)
        return CliRunner(env=dict(self.variables)).invoke(main, [*places, *words], catch_exceptions=False)

    def build(self, *run_ids: str) -> None:
        """By the command all tables with their checks; in the small form some of each tier and the pairs, alone."""
        if is_soak():
            self.ask("run")
            return
        lake = build_tables(self.chosen, run_ids, SMALL)
        build_pairs(lake)
        lake.log_statements()

    def start_build(self, run_id: str, options: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start to build the same tables of one run in a process of its own, before a store at these options."""
        places = ("--lake", self.lake, "--landing", self.landing)
        words = ("teetotal", *places, "run") if is_soak() else ("tests.support.lake_builders", self.lake, self.landing)
        return subprocess.Popen(
            [sys.executable, "-m", *words, run_id],
            cwd=ROOT,
            env={**os.environ, **self.variables, **options},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    @property
    def chosen(self) -> Settings:
        """What the command would find."""
        return settings(self.lake, self.landing, environment=self.variables)

    def ask(self, *words: str) -> str:
        """What a command that succeeds says, without the names of places."""
        found = self.teetotal(*words)
        assert found.exit_code == 0, found.output
        return re.sub(re.escape(self.lake.rpartition("/")[0]), "PLACE", found.output)

    @property
    def state(self) -> State:
        """The content digest of every table and run."""
        lake = open_lake(self.chosen)
        snapshots = [lake.snapshot(table) for table in TABLES.values()]
        return {
            (one.table.full_name, run_id): one.content_sha256(run_id) for one in snapshots for run_id in one.run_ids
        }


@dataclass(frozen=True)
class Sites:
    """The same runs on this disk and in an object store, behind what has its requests fail."""

    near: Site
    far: Site
    # The port of the latter.
    proxy: int
    # What the one in the store held when a writer had been killed, and what was told until its run was finished.
    left: State
    faults: list[str]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    root = tmp_path_factory.mktemp("sites")
    KeyringFile(root / "keyring.json").create()
    runs = {}
    for run_id, (step_us, manifest) in RUNS.items():
        runs[run_id] = root / "recorded" / run_id
        runs[run_id].mkdir(parents=True)
        (runs[run_id] / "rank0.json").write_bytes(trace(step_us))
        (runs[run_id] / "run.toml").write_text(manifest)

    def make_site(name: str, place: str, **more: str) -> Site:
        home = root / name / ".dagster"
        home.mkdir(parents=True)
        (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        own = {"DAGSTER_HOME": str(home), "TEETOTAL_DOCS": str(root / name / "docs")}
        keys = {
            "TEETOTAL_KEYRING": str(root / "keyring.json"),
            "TEETOTAL_SIGNING_KEY": str(root / name / "signing-key.pem"),
            "TEETOTAL_TRUST": str(root / name / "signing-trust.txt"),
        }
        return Site(f"{place}/lake", f"{place}/landing", home, {**own, **keys, **more})

    with EMULATOR.serve() as port, serve_proxy(port, SEED, SHARE) as proxy:
        near = make_site("near", str(root / "near"))
        far = make_site("far", f"{EMULATOR.make_bucket(port, 'fleet')}/site", **EMULATOR.options_for(proxy))
        for site in (near, far):
            assert site.teetotal("signing", "create").exit_code == 0
            for run_id, directory in runs.items():
                site.ask("land", str(directory), "--run-id", run_id)
        near.build(*RUNS)
        left = build_until_one_is_killed(far, port)
        faults = finish_though_credentials_expire(far, port)
        far.build()
        yield Sites(near, far, proxy, left, faults)


def build_until_one_is_killed(far: Site, port: int) -> State:
    """Two writers at once, one run each; one is killed when it has committed and no answer came. What is there then."""
    with StoreProxy(port, SEED, EMULATOR).serving() as proxy:
        proxy.fails, proxy.holds = SHARE, COMMIT
        killed, other = far.start_build("calm-tee", proxy.options), far.start_build("calm-off", {})
        try:
            while not proxy.held:
                assert killed.poll() is None, killed.communicate()[0]
                time.sleep(0.05)
        finally:
            killed.kill()
            said = other.communicate(timeout=PATIENCE_S)[0]
        killed.communicate()
        assert (killed.returncode, other.returncode) == (-signal.SIGKILL, 0), said
        assert proxy.injected
    return far.state


def finish_though_credentials_expire(far: Site, port: int) -> list[str]:
    """Build what the killed writer left undone, with credentials that expire again and again; what was said of it."""
    faults: list[str] = []
    with serve_proxy(port, SEED, 0.0) as proxy:
        options = {**far.variables, **EMULATOR.options_for(proxy)}
        chosen = settings(far.lake, far.landing, environment=options)
        lake, zone = open_signed_lake(chosen), LandingZone(chosen.landing)
        for turn in range(20):
            renew_credentials(proxy, 60 << turn)
            fault = build_until_fault(lake, zone, "calm-tee")
            if fault is None:
                return faults
            faults.append(str(fault))
    raise AssertionError(faults)


def build_until_fault(lake: Lake, zone: LandingZone, run_id: str) -> LakeError | None:
    """Tables of all tiers of a run, as far as they come; the error that ended it."""
    for tier in SMALL:
        try:
            (made,) = build_tier(BuildContext(lake, zone, Limits()), tier, [run_id], PolarsEngine, tables=SMALL)
        except LakeError as error:
            return error
        if made.fault is not None:
            return made.fault
    return None


def test_though_requests_fail_and_a_writer_was_killed_all_tiers_have_the_rows_of_a_local_lake(sites: Sites) -> None:
    assert set(read_injected(sites.proxy)) == set(FAULTS)  # each kind has happened
    near, left = sites.near.state, sites.left
    assert sites.far.state == near
    assert {table.partition(".")[0] for table, _ in near} == {"bronze", "silver", "gold"}
    # The one was done, the other had come to the middle; what it had committed was right.
    assert left.items() < near.items()
    assert ("gold.step_times", "calm-off") in left
    assert ("silver.steps", "calm-tee") in left
    assert ("gold.step_times", "calm-tee") not in left


ASKED = [
    ("show", "gold.step_overhead"),
    ("query", "SELECT run_id, step_ns FROM gold.step_times ORDER BY ALL", "--format", "json"),
    *([("status",), ("history",), ("compare", "calm-off", "calm-tee"), ("what-if", "calm-tee")] if is_soak() else []),
]


@pytest.mark.parametrize("words", ASKED, ids=lambda words: words[0])
def test_what_is_asked_of_the_store_is_answered_as_locally(sites: Sites, words: tuple[str, ...]) -> None:
    answers = [site.teetotal(*words) for site in (sites.near, sites.far)]
    assert answers[0].exit_code == answers[1].exit_code
    said = [re.sub(r"(s3|az)://fleet/site|/\S*/near", "PLACE", answer.output) for answer in answers]
    assert said[1] == said[0]


def test_export_writes_the_events_of_a_local_lake(sites: Sites, tmp_path: Path) -> None:
    for name, site in (("near", sites.near), ("far", sites.far)):
        site.ask("export", "calm-tee", "--perfetto", str(tmp_path / f"{name}.json"))
    near, far = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("near", "far"))
    assert far == near


def test_every_partition_in_the_store_holds_what_was_signed(sites: Sites) -> None:
    said = sites.far.ask("verify")
    assert "hold what was signed" in said
    assert "0 damaged" in said


def test_credentials_that_expire_again_and_again_are_named_and_renewed_ones_finish_the_run(sites: Sites) -> None:
    assert len(sites.faults) >= 2
    assert [one for one in sites.faults if "renew the store's credentials" not in one or "\n" in one] == []


def test_keys_are_rotated_in_the_store(sites: Sites) -> None:
    assert "sealed again" in sites.far.ask("keys", "rotate")
    assert "every partition is sealed with the active key" in sites.far.ask("keys", "rotate").lower()


def test_a_report_is_made_from_the_store(sites: Sites, tmp_path: Path) -> None:
    sites.far.ask("report", "--out", str(tmp_path / "far.html"))
    assert (tmp_path / "far.html").stat().st_size > 100_000


def land_beside(far: Site) -> Site:
    """A lake beside that in the store with the first tier of the same runs: each of its tables takes many requests."""
    beside = replace(far, lake=f"{far.lake}-landed")
    build_tables(beside.chosen, RUNS, {"bronze": SMALL["bronze"]}).log_statements()
    return beside


# The last: a forgotten run is gone from the landing zone too.
def test_maintenance_and_forgetting_work_in_the_store(sites: Sites) -> None:
    far = sites.far if is_soak() else land_beside(sites.far)
    before = far.state
    assert {run_id for name, run_id in before if name.startswith("bronze.")} == set(RUNS)
    with open_instance(far.chosen.home) as records:
        job = build_definitions(far.chosen).resolve_job_def("maintenance")
        assert job.execute_in_process(instance=records, raise_on_error=True).success
    far.ask("forget", "calm-tee", "--yes")
    after = far.state
    assert "calm-tee" not in {run_id for _, run_id in after}
    own = {key for key in before if key[1] == "calm-off" and key[0].startswith("bronze.")}
    assert {key: after[key] for key in own} == {key: before[key] for key in own}
    assert "0 damaged" in far.ask("verify")
