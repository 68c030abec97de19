"""The web interface in a browser, on a real server and daemon; every test leaves a screenshot in .artifacts/ui/."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
import polars as pl
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from assets.build.comparisons import COMPARISON_TABLES
from assets.specs import asset_key
from assets.training_runs import TABLES
from gold import attested_runs, overhead_breakdown
from lake.identity import MANIFEST
from pipelines.cli.progress import ProgressListener
from pipelines.cli.run import run
from tests.support.build_runs import record_passed
from tests.support.foreign_page import ATTEMPTS, TRY_ALL, serve_elsewhere
from tests.support.tampered_tables import change
from tests.support.web_interface import ROOT, House, Serving, eventually
from tests.support.webhook_receiver import TOKEN, Receiver, find_secrets, serve_receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import BrowserContext

PLAIN, TEE, OTHER, BROKEN = "run-plain", "run-sealed", "run-native", "no-manifest-of-ours"
# Both name the plain run as their baseline, one of them without a TEE.
PAIRED = (TEE, OTHER)
# Every page is the same for a run of a few events as for a recording of hours, and comes as many times sooner.
STEP_US, SEALING_US = 1000, 220
MACHINE = 'model = "m"\nworld_size = 1\nbatch_size = 8\n'
BASELINE = f'baseline = "{PLAIN}"\n{MACHINE}'
# The last run that lands claims it of itself: an alert that the daemon tells.
CONTRADICTION = "it claims regime cc_off and cc_mode on"
REASON = "schema: expected 1, found 99"
CHECK = "parts_sum_to_the_overhead"
ARTEFACTS = ROOT / ".artifacts" / "ui"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# No sandbox, since tests also run as root in a container; nothing else than the page is to use the network.
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE_MS = 240_000
SENSORS = {"landing_sensor", "automation"}
_MANY = 1000


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """What the daemon's alerts are sent to."""
    with serve_receiver() as server:
        yield server


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> House:
    """A lake with a pair of runs in it, recorded as checked: tests/assets/test_expectations.py holds their checks."""
    # Sensors that look every second compete for the cores with the launches that tests wait for.
    made = House(tmp_path_factory.mktemp("house"), TEETOTAL_SENSOR_SECONDS="12", **receiver.variables)
    land(made, PLAIN, f'regime = "cc_off"\n{MACHINE}')
    # Sealing takes more than all that a step is longer.
    land(made, TEE, f'regime = "sw_per_hop_aesgcm"\n{BASELINE}', STEP_US + SEALING_US - 20, SEALING_US)
    assert [one.fault for one in run(made.settings, ProgressListener(), check=False)] == [None, None]
    record_passed(made.lake, (PLAIN, TEE))
    for table in COMPARISON_TABLES:
        record_passed(made.lake, made.lake.snapshot(table).run_ids, [table])
    return made


@pytest.fixture(scope="module")
def serving(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The server and the daemon; at the end a SIGTERM leaves nothing of them, and Ctrl-C on top changes nothing."""
    with Serving(house, tmp_path_factory.mktemp("said") / "log") as served:
        served.wait_for_line(r"^(http://127\.0\.0\.1:\d+) ")
        yield served
        assert served.stop(signal.SIGTERM, signal.SIGINT, signal.SIGINT) == 0, served.said()
        assert served.said().endswith("stopped\n")
        assert house.left() == []


@pytest.fixture(scope="module")
def context(serving: Serving) -> Iterator[BrowserContext]:
    """A headless browser that finds the server by paths alone."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, f"no browser: install one of {', '.join(BROWSERS)} (`make system-packages`)"
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    address = serving.wait_for_line(r"^(http://127\.0\.0\.1:\d+) ")
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=found, args=FLAGS) as browser:
        made = browser.new_context(base_url=address, viewport={"width": 1500, "height": 1100})
        made.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        yield made
        made.close()


@pytest.fixture
def page(context: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page, whose last sight is kept whether the test fails or not."""
    with context.new_page() as opened:
        yield opened
        # A dialog that is still fading in is shown as it will be.
        opened.screenshot(path=ARTEFACTS / f"{request.node.name.removeprefix('test_')}.png", animations="disabled")


@pytest.fixture
def records(house: House) -> Iterator[dg.DagsterInstance]:
    """What Dagster knows."""
    with house.records() as opened:
        yield opened


@dataclass(frozen=True)
class Arrived:
    """Two runs that landed under the daemon's eyes, one of them broken: how long gold waited, and all launches."""

    seconds_to_gold: float
    launches: dict[str, dg.DagsterRun]


@pytest.fixture(scope="module")
def arrived(house: House, serving: Serving) -> Arrived:
    """What became of them, once no launch works and the sensors see nothing more to do."""
    directory = house.zone.place.directory / BROKEN
    directory.mkdir()
    (directory / "rank0.json").write_text('{"traceEvents": []}', "utf-8")
    (directory / MANIFEST).write_text("schema = 99\n", "utf-8")
    land(house, OTHER, f'regime = "cc_off"\ncc_mode = "on"\n{BASELINE}', STEP_US + 100)
    begun = time.monotonic()
    eventually(lambda: OTHER in house.lake.snapshot(attested_runs.TABLE).run_ids, "gold has the run")
    seconds = time.monotonic() - begun
    with house.records() as opened:
        return Arrived(seconds, wait_for_launches(opened, time.time()))


def count_materialisations(records: dg.DagsterInstance, name: str) -> Counter[str]:
    """How often each partition of a table was made."""
    found = records.fetch_materializations(asset_key(name), limit=_MANY).records
    return Counter(str(one.partition_key) for one in found)


def wait_for_launches(records: dg.DagsterInstance, since: float) -> dict[str, dg.DagsterRun]:
    """All launches, once none works and both sensors have looked again after the last of them."""

    def all_ended() -> dict[str, dg.DagsterRun] | None:
        found = records.get_run_records()
        if not all(one.dagster_run.is_finished for one in found):
            return None
        ended = max([since, *(one.end_time or 0 for one in found)])
        looked = {
            state.instigator_name
            for state in records.all_instigator_state()
            if (getattr(state.instigator_data, "last_tick_timestamp", None) or 0) > ended
        }
        return {one.dagster_run.run_id: one.dagster_run for one in found} if looked >= SENSORS else None

    return eventually(all_ended, "no launch works, and the sensors see nothing more to do")


def contents(house: House) -> dict[tuple[str, str], str]:
    """The digest of each partition in the lake."""
    return {
        (table.full_name, run_id): snapshot.content_sha256(run_id)
        for table in TABLES
        for snapshot in [house.lake.snapshot(table)]
        for run_id in snapshot.run_ids
    }


def record_trace(step_us: int, sealing_us: int = 0) -> bytes:
    """Three steps of a launch and a kernel, each as long as the step is, and of a sealed or an open hop."""
    events: list[dict[str, Any]] = []
    for number in range(3):
        at, ids = 1000 + number * (step_us + 10), {"args": {"correlation": number, "External id": number}}
        spans = (
            ("user_annotation", f"ProfilerStep#{number}", at, step_us, 1, {}),
            ("cpu_op", "aten::mm", at + 5, 30, 1, {"args": {"External id": number}}),
            ("cuda_runtime", "cudaLaunchKernel", at + 10, step_us // 100, 1, ids),
            ("kernel", "gemm", at + 30, step_us // 3, 7, ids),
            ("user_annotation", "tee::all_reduce#1000", at + 500, 50 + sealing_us, 1, {}),
            *([("user_annotation", "tee::seal#1000", at + 510, sealing_us, 1, {})] if sealing_us else []),
            ("user_annotation", "tee::send#1000", at + 510 + sealing_us, 20, 1, {}),
        )
        for category, name, start, length, thread, more in spans:
            events.append({"ph": "X", "cat": category, "name": name, "ts": start, "dur": length, "tid": thread, **more})
    answer = {"distributedInfo": {"rank": 0, "world_size": 1}, "baseTimeNanoseconds": 10**18}
    return json.dumps({**answer, "traceEvents": events}).encode()


def land(house: House, run_id: str, manifest: str, step_us: int = STEP_US, sealing_us: int = 0) -> None:
    """Put a small run into the landing zone, whole."""
    aside = house.settings.docs.parent / run_id
    aside.mkdir(parents=True)
    (aside / "rank0.json").write_bytes(record_trace(step_us, sealing_us))
    (aside / MANIFEST).write_text(manifest, "utf-8")
    house.zone.place.directory.mkdir(exist_ok=True)
    aside.rename(house.zone.place.directory / run_id)


def lengthen_steps(house: House, run_id: str) -> None:
    """Another recording in the place of a file, each step of it a tenth of a millisecond longer."""
    aside = house.settings.docs.parent / "longer.json"
    aside.write_bytes(record_trace(STEP_US + 100))
    aside.replace(house.zone.place.directory / run_id / "rank0.json")


def test_the_graph_shows_the_three_tiers(page: Page) -> None:
    page.goto("/asset-groups")
    for tier in ("bronze", "silver", "gold"):
        # Once in the list of groups, once as a box of the graph.
        expect(page.get_by_text(tier, exact=True).filter(visible=True).nth(1)).to_be_visible()
    expect(page.get_by_text("fetching statuses")).to_have_count(0)


def test_a_gold_partition_shows_its_rows_and_its_picture(page: Page) -> None:
    page.goto(f"/assets/gold/overhead_breakdown?view=partitions&partition={TEE}")
    at_once = page.locator('img[src^="/figures/gold/overhead_breakdown/"]')
    expect(at_once).to_be_visible()
    assert at_once.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    page.screenshot(path=ARTEFACTS / "figure_without_a_click.png")
    row = page.get_by_role("row").filter(has=page.get_by_role("cell", name="crypto", exact=True)).last
    expect(row).to_contain_text("110 %")


def test_one_partition_is_launched_by_hand(page: Page, records: dg.DagsterInstance) -> None:
    before = {one.run_id for one in records.get_runs()}
    page.goto("/locations/pipelines.definitions/jobs/ingest")
    page.get_by_role("button", name="Materialize all").click()
    page.get_by_text("Select a partition or create one").click()
    page.get_by_text(PLAIN, exact=True).first.click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Launch 1 run").click()
    launched = eventually(
        lambda: next((one for one in records.get_runs() if one.run_id not in before), None), "the launch is known"
    )
    assert launched.tags["dagster/partition"] == PLAIN
    page.goto(f"/runs/{launched.run_id}")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    assert launched.job_name == "ingest"


def test_a_run_that_is_dropped_reaches_gold_without_a_hand(page: Page, house: House, arrived: Arrived) -> None:
    seconds = {"from landing zone to gold": round(arrived.seconds_to_gold, 1)}
    (ARTEFACTS / "seconds.json").write_text(json.dumps(seconds), "utf-8")
    assert {name for name, run_id in contents(house) if run_id == OTHER} >= {"gold.time_breakdown", "silver.spans"}
    page.goto("/runs")
    expect(page.get_by_text("landing_sensor").first).to_be_visible()


@pytest.mark.usefixtures("arrived")
def test_a_partition_that_failed_says_so_and_its_event_says_why(page: Page) -> None:
    page.goto(f"/assets/bronze/runs?view=partitions&partition={BROKEN}")
    expect(page.get_by_text("failed, and did not materialize this asset")).to_be_visible()
    page.screenshot(path=ARTEFACTS / "failed_partition.png")
    page.get_by_text("View all historical events").click()
    page.get_by_role("row").filter(has_text=BROKEN).get_by_role("button").click()
    expect(page.get_by_text(REASON).first).to_be_visible()


def test_a_broken_manifest_turns_no_table_red_but_the_one_that_it_is_read_into(page: Page, arrived: Arrived) -> None:
    (failed,) = [one for one in arrived.launches.values() if one.status is dg.DagsterRunStatus.FAILURE]
    assert failed.tags["partition"] == BROKEN
    # A table's page is red while the last launch that made it failed: no other table is made by this one.
    assert failed.asset_selection == {asset_key("bronze.runs")}
    page.goto("/assets/gold/step_overhead")
    expect(page.get_by_text("Latest materialization").first).to_be_visible()
    expect(page.get_by_text("Failed in")).to_have_count(0)
    page.goto("/runs")
    expect(page.get_by_text(f"partition: {BROKEN}").first).to_be_visible()


@pytest.mark.usefixtures("arrived")
def test_the_daemon_tells_an_alert_once_and_keeps_its_webhook_to_itself(
    house: House, serving: Serving, receiver: Receiver, records: dg.DagsterInstance
) -> None:
    def find_page() -> dg.EventLogRecord | None:
        found = records.fetch_observations(asset_key("silver.runs"), limit=_MANY).records
        return next((one for one in found if one.partition_key == OTHER), None)

    page = eventually(find_page, "the alert stands on the table's page")
    assert page.asset_observation is not None
    assert page.asset_observation.description == f"{OTHER}: its claim is contradicted: {CONTRADICTION}"
    ((headers, message),) = receiver.received
    assert (message["run_id"], message["kind"]) == (OTHER, "contradiction")
    assert message["sentence"] == page.asset_observation.description
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    ticks = eventually(lambda: read_ticks(records, "alert_sensor"), "the tick of the daemon is in the records")
    assert find_secrets(serving.said(), *ticks, below=house.settings.home.directory) == []


def read_ticks(records: dg.DagsterInstance, sensor: str) -> list[str]:
    """The cursor and the ticks of a sensor, as the records hold them."""
    states = [state for state in records.all_instigator_state() if state.instigator_name == sensor]
    return [
        str(told) for one in states for told in (one, *records.get_ticks(one.instigator_origin_id, one.selector_id))
    ]


def test_where_nothing_is_touched_nothing_is_launched(arrived: Arrived, records: dg.DagsterInstance) -> None:
    assert wait_for_launches(records, time.time()).keys() == arrived.launches.keys()


def test_a_changed_file_brings_its_run_and_the_pairs_of_its_run_up_to_date_and_no_other(
    page: Page, house: House, arrived: Arrived, records: dg.DagsterInstance
) -> None:
    before = contents(house)
    counts = {name: count_materialisations(records, name) for name in ("silver.spans", "gold.step_overhead")}
    lengthen_steps(house, PLAIN)
    eventually(
        lambda: {PLAIN, *PAIRED} <= list_changed_runs(before, contents(house)), "the run and its pairs are up to date"
    )
    new = [one for run_id, one in wait_for_launches(records, time.time()).items() if run_id not in arrived.launches]
    assert list_changed_runs(before, contents(house)) == {PLAIN, *PAIRED}
    for run_id in PAIRED:
        assert {key for key, digest in contents(house).items() if key[1] == run_id and digest != before[key]} == {
            ("gold.step_overhead", run_id),
            ("gold.overhead_breakdown", run_id),
            ("gold.operation_overhead", run_id),
        }
    assert [one.tags.get("dagster/asset_partition_range_start") for one in new if one.job_name == "ingest"] == [PLAIN]
    assert count_materialisations(records, "silver.spans") - counts["silver.spans"] == Counter([PLAIN])
    made = count_materialisations(records, "gold.step_overhead") - counts["gold.step_overhead"]
    assert made.keys() == {PLAIN, *PAIRED}
    page.goto(f"/assets/gold/step_overhead?view=events&partition={TEE}")
    expect(page.get_by_text("rows_shown").first).to_be_visible()


def list_changed_runs(before: dict[tuple[str, str], str], after: dict[tuple[str, str], str]) -> set[str]:
    """The runs of which a partition is another."""
    return {run_id for (name, run_id), digest in after.items() if before.get((name, run_id)) != digest}


def test_a_check_that_fails_is_seen_with_its_reason(page: Page, house: House) -> None:
    is_first = pl.int_range(pl.len()) == 0
    change(house.lake, overhead_breakdown.TABLE, TEE, lambda rows: rows.with_columns(pl.col("overhead_ns") + is_first))
    page.goto(f"/assets/gold/overhead_breakdown?view=checks&checkDetail={CHECK}")
    page.get_by_role("button", name="Execute").last.click()
    expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
    page.screenshot(path=ARTEFACTS / "failed_check.png")
    page.get_by_role("row").filter(has_text="runs").last.get_by_text("[Show JSON]").click()
    expect(page.get_by_text(f'"{TEE}"').first).to_be_visible()


def test_a_page_of_another_website_has_the_interface_do_nothing(
    page: Page, serving: Serving, records: dg.DagsterInstance
) -> None:
    target = serving.wait_for_line(r"^(http://127\.0\.0\.1:\d+) ")
    with serve_elsewhere() as foreign:
        page.goto(foreign)
        is_opened = page.evaluate(TRY_ALL, target)
        # All of them reached the server, and none was stopped by the browser alone.
        eventually(lambda: serving.said().count("refused ") >= len(ATTEMPTS), "every attempt is in the log", 30)
    assert serving.said().count("refused ") == len(ATTEMPTS), serving.said()
    assert not is_opened
    assert not [key for key in records.event_log_storage.get_concurrency_keys() if key.startswith("foreign-")]
