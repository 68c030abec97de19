"""`python -m benchmarks.fleet_page FOLDER`: seconds until the web interface shows an asset of a lake of many runs.

FOLDER is what `benchmarks.fleet` left. Every run is made a partition of Dagster's, and recorded as materialised for one
asset; then `teetotal ui` serves it, and a headless browser opens the asset's page and its partitions, three times each.
"""

from __future__ import annotations

import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
from playwright.sync_api import sync_playwright

from assets.specs import TRAINING_RUNS, asset_key
from gold import step_times
from lake.landing_zone import LandingZone
from pipelines.instance import open_instance
from pipelines.settings import settings

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run")
_PAGES = {"asset page": "", "its partitions": "?view=partitions"}
_PATIENCE_MS = 120_000
_TIMES = 3


def main(folder: str) -> None:
    """Record the runs, serve them, and time the pages."""
    root = Path(folder)
    run_ids = record_runs(root)
    words = ["-m", "teetotal", "--lake", str(root / "lake"), "--landing", str(root / "landing"), "ui", "--port", "0"]
    log = root / "ui.log"
    with log.open("w") as file:
        served = subprocess.Popen([sys.executable, *words], cwd=root, stdout=file, stderr=subprocess.STDOUT)
    try:
        found = time_pages(wait_for_address(log), run_ids[0])
    finally:
        served.send_signal(signal.SIGTERM)
        served.wait(90)
    for name, seconds in found.items():
        print(f"{len(run_ids):,} runs, {name}: {statistics.median(seconds):.1f} s ({', '.join(map(str, seconds))})")


def record_runs(root: Path) -> list[str]:
    """Make every run of the landing zone a partition, and its steps materialised, as a launch would have."""
    chosen = settings(str(root / "lake"), str(root / "landing"))
    run_ids = LandingZone(chosen.landing).run_ids()[0]
    key = asset_key(step_times.TABLE.full_name)
    with open_instance(chosen.home) as instance:
        instance.add_dynamic_partitions(TRAINING_RUNS.name or "", run_ids)
        known = instance.get_materialized_partitions(key)
        for run_id in run_ids:
            if run_id not in known:
                instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=run_id))
    return run_ids


def wait_for_address(log: Path) -> str:
    """What `teetotal ui` says that it serves on."""
    for _ in range(600):
        found = re.search(r"^(http://127\.0\.0\.1:\d+) ", log.read_text(), re.MULTILINE)
        if found:
            return found[1]
        time.sleep(0.1)
    raise SystemExit(log.read_text())


def time_pages(address: str, first_run: str) -> dict[str, list[float]]:
    """Seconds from the first request until a page says what is asked of it, in a browser that has its scripts."""
    browser_path = next(filter(None, map(shutil.which, _BROWSERS)))
    found: dict[str, list[float]] = {name: [] for name in _PAGES}
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=browser_path, args=_FLAGS) as browser,
    ):
        context = browser.new_context(base_url=address, viewport={"width": 1500, "height": 1100})
        context.set_default_timeout(_PATIENCE_MS)
        for count in range(_TIMES + 1):
            for name, query in _PAGES.items():
                with context.new_page() as page:
                    begun = time.perf_counter()
                    page.goto(f"/assets/gold/step_times{query}")
                    text = first_run if query else "Latest materialization"
                    page.get_by_text(text).first.wait_for()
                    page.wait_for_load_state("networkidle")
                    if count:  # the first one fetches the scripts
                        found[name].append(round(time.perf_counter() - begun, 2))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
