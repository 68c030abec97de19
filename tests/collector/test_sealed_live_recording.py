"""A recording that is seen while it trains, sealed: nothing in the clear on a disk, and its lake follows it."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assets.build import silver
from assets.build.catalogue import TABLES
from assets.build.context import BuildContext
from assets.build.tiers import TIERS, build_tier
from bronze import device_samples, runs, training_log
from bronze.limits import Limits
from collector import live
from collector.live import LiveLanding
from collector.sealed_files import MAGIC, read_public_key, seal_blocks
from collector.signing import STATEMENT_FILE, make_key
from lake.engines import engine
from lake.identity import MANIFEST, OPEN
from lake.keyring import Key, Keyring
from lake.landing_zone import LandingZone
from lake.sealed_files import LandingSeals, find_recipient
from silver import recordings
from tests.conftest import LandFiles
from tests.support.campaigns import pick_size
from tests.support.planted_texts import finds
from tests.support.sample_tables import digests
from tests.support.torch_forks import Job
from tests.support.training_loops import ANNOTATION, OWNER

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.support.torch_forks import TorchForks

KEY = Key("k0000001", "2026-01-01T00:00:00Z", bytes(64))
RING = Keyring("a keyring", KEY.key_id, (KEY,))
SEALS = LandingSeals(lambda: RING, must_be_sealed=True)
RUN, DEVICE = "run-1", "planted-device-h200"
ALL = [table for tables in TIERS.values() for table in tables]
BRONZE = [table for table in TABLES.values() if table.tier == "bronze"]
LOGS = {"steps-r0.csv", "device_samples.csv"}
# A device that is read fifty times a second, each time in two writes, so that there is half a line most of the time.
DRIVER = f"""#!/bin/sh
[ "$1" = conf-compute ] && echo "    CC State : OFF
    Board : {DEVICE}" && exit
echo "timestamp, index, name, power.draw [W]"
echo $$ > "$(dirname "$0")/process"
number=0
while [ $number -lt 3000 ]; do
    printf '2026/11/19 01:02:%02d.000, 0, {DEVICE}, ' $(( (number = number + 1) % 60))
    sleep 0.02
    echo "70.25 W"
done
"""


@dataclass(frozen=True)
class Recorded:
    """What a sealed live recording left, what of it was seen at each step, and how it ended."""

    home: Path
    status: int
    said: str

    @property
    def zone(self) -> Path:
        return self.home / "zone"

    def seen(self, step: int) -> dict[str, Path]:
        return {path.name: path for path in (self.home / "seen" / f"{step:02d}").iterdir()}


@pytest.fixture(scope="module")
def public_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "lake.pem"
    path.write_text(find_recipient(RING).to_pem(), "utf-8")
    return path


@pytest.fixture(scope="module")
def recorded(
    torch_forks: TorchForks, tmp_path_factory: pytest.TempPathFactory, public_key: Path
) -> dict[str, Recorded]:
    """Loops that end well, raise, and are killed in the middle of sealing the trace of their second cycle."""
    signing_key = tmp_path_factory.mktemp("signing") / "key.pem"
    make_key(signing_key)
    homes = {ending: tmp_path_factory.mktemp("home") for ending in ("live", "live raise", "live cut")}
    jobs = []
    for ending, home in homes.items():
        (home / "tmp").mkdir()
        (home / "bin").mkdir()
        program = home / "bin" / "nvidia-smi"
        program.write_text(DRIVER, "utf-8")
        program.chmod(0o755)
        words = [str(home / "zone"), ending, str(public_key), str(signing_key)]
        found = {"PATH": f"{program.parent}:{os.environ['PATH']}", "TMPDIR": str(home / "tmp")}
        jobs.append(Job("tests.support.training_loops", words, str(home.parent / f"said {home.name}"), found))
    statuses = torch_forks.run(jobs)
    return {
        ending: Recorded(home, status, (home.parent / f"said {home.name}").read_text("utf-8"))
        for (ending, home), status in zip(homes.items(), statuses, strict=True)
    }


def open_all(folder: Path) -> dict[str, bytes]:
    """The files of a run as they were before they were sealed; one that does not open is an error."""
    return {
        path.name: b"".join(SEALS.open_blocks(BytesIO(path.read_bytes()), RUN, path.name))
        for path in sorted(folder.iterdir())
        if path.name != OPEN
    }


@pytest.mark.parametrize("ending", ["live", "live raise", "live cut"])
def test_nothing_of_a_run_that_is_seen_while_it_trains_lies_on_a_disk_in_the_clear(
    recorded: dict[str, Recorded], ending: str
) -> None:
    done = recorded[ending]
    looks = [line for line in done.said.splitlines() if " in the clear: " in line]
    assert len(looks) == {"live": 14, "live raise": 7, "live cut": 13}[ending]
    assert [look for look in looks if "in the clear: []" not in look] == []
    assert "device_samples.csv" in looks[-1].partition("in memory: ")[2], "else the search looked in the wrong place"
    names = (ANNOTATION, OWNER, DEVICE, "line", "timestamp", "began_epoch_s", "traceEvents")
    assert [found for place in ("zone", "seen", "tmp") for found in finds(done.home / place, *names)] == []
    # What a killed one was writing is sealed as far as it goes, in a directory that no reader takes for a run.
    files = [path for path in done.zone.rglob("*") if path.is_file() and path.name != OPEN]
    assert [path for path in files if not path.read_bytes().startswith(MAGIC)] == []
    hidden = [path for path in done.zone.iterdir() if path.name.startswith(".")]
    assert bool(hidden) == (ending == "live cut"), "else it was not killed while it was sealing"


def test_each_cycle_shows_its_trace_and_the_logs_up_to_it(recorded: dict[str, Recorded]) -> None:
    done = recorded["live"]
    assert done.status == 0, done.said
    traces = {"run-1-c0-r0.json.gz", "run-1-c1-r0.json.gz"}
    always = {OPEN, MANIFEST, "conf_compute.txt"}
    assert [done.seen(step).keys() for step in (0, 7, 13)] == [
        always,
        always | LOGS | {"run-1-c0-r0.json.gz"},
        always | LOGS | traces,
    ]
    closed = open_all(done.zone / RUN)
    assert closed.keys() == {MANIFEST, "conf_compute.txt", STATEMENT_FILE} | LOGS | traces
    for step, lines in ((7, 7), (13, 13)):
        opened = open_all(done.home / "seen" / f"{step:02d}")
        assert opened["steps-r0.csv"].count(b"\n") == 1 + lines
        for name in LOGS:
            assert opened[name].endswith(b"\n")
            assert closed[name].startswith(opened[name])
            assert len(closed[name]) > len(opened[name])
    assert b"recording_slowdown_ratio" in closed[MANIFEST]


@pytest.mark.parametrize("ending", ["live raise", "live cut"])
def test_a_run_that_fails_or_is_killed_leaves_whole_files(recorded: dict[str, Recorded], ending: str) -> None:
    done = recorded[ending]
    assert done.status == {"live raise": 1, "live cut": -9}[ending]
    opened = open_all(done.zone / RUN)
    assert opened.keys() == {MANIFEST, "conf_compute.txt", "run-1-c0-r0.json.gz"} | LOGS
    assert (done.zone / RUN / OPEN).exists() == (ending == "live cut"), "who is killed closes nothing"
    assert opened["steps-r0.csv"].count(b"\n") == 1 + 7


def test_nobody_reads_the_device_after_the_recorder_was_killed(recorded: dict[str, Recorded]) -> None:
    process = int((recorded["live cut"].home / "bin" / "process").read_text("utf-8"))
    deadline = time.monotonic() + 30
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < deadline, "it would write the device's readings for ever"
        time.sleep(0.02)


def replay(land_files: LandFiles, done: Recorded, step: int) -> None:
    """Let the run's directory be what it was at a step, and land it."""
    directory = land_files.zone.place.directory / RUN
    directory.mkdir(parents=True, exist_ok=True)
    for name, path in done.seen(step).items():
        shutil.copyfile(path, directory / name)
    land_files.materialise(RUN)


def build(land_files: LandFiles) -> None:
    """Make what is made of bronze: in the soak all tables, else those of silver."""
    context = BuildContext(land_files.lake, land_files.zone, Limits())
    for tier in ("silver", "gold")[: pick_size(1, 2)]:
        assert [one.fault for one in build_tier(context, tier, [RUN], partial(engine, "polars"))] == [None]


@pytest.fixture
def strict(lake: Lake, zone: LandingZone) -> LandFiles:
    """A lake that takes sealed files alone."""
    return LandFiles(lake, LandingZone(zone.place, SEALS))


def test_its_lake_follows_it_and_ends_with_the_tables_of_a_complete_landing(
    recorded: dict[str, Recorded], strict: LandFiles
) -> None:
    done, lake, directory = recorded["live"], strict.lake, strict.zone.place.directory / RUN
    shutil.copytree(done.zone / RUN, directory)
    strict.materialise(RUN)
    build(strict)
    whole = digests(lake, RUN, ALL)
    shutil.rmtree(directory)
    for step, cycles in ((7, 1), (0, 1), (13, 2), (7, 2)):  # late, out of order, an older log again
        replay(strict, done, step)
        (row,) = lake.scan(runs.TABLE, [RUN]).collect().to_dicts()
        assert (row["is_open"], row["cycles_count"], row["rejected_files_count"]) == (True, cycles, 0)
        assert lake.scan(training_log.TABLE, [RUN]).collect().height == (13 if step == 13 else 7)
        assert digests(lake, RUN, BRONZE) != {table.full_name: whole[table.full_name] for table in BRONZE}
    for path in (done.zone / RUN).iterdir():
        shutil.copyfile(path, directory / path.name)
    (directory / OPEN).unlink()
    strict.materialise(RUN)
    build(strict)
    assert digests(lake, RUN, ALL) == whole
    (row,) = lake.scan(recordings.TABLE).collect().to_dicts()
    assert (row["signature"], row["files_count"], row["finding"]) == ("signed", 5, None)
    assert lake.scan(training_log.TABLE, [RUN]).collect().height == 14
    assert lake.scan(device_samples.TABLE, [RUN]).collect().height > 14


def test_a_file_that_was_cut_or_changed_waits_and_is_rejected_with_its_reason_once_the_run_is_closed(
    recorded: dict[str, Recorded], strict: LandFiles
) -> None:
    directory = strict.zone.place.directory / RUN
    replay(strict, recorded["live"], 13)
    whole = (directory / "steps-r0.csv").read_bytes()
    sealed = (directory / "run-1-c1-r0.json.gz").read_bytes()
    (directory / "steps-r0.csv").write_bytes(whole[:-20])
    (directory / "run-1-c1-r0.json.gz").write_bytes(sealed[:-100] + bytes([sealed[-100] ^ 1]) + sealed[-99:])
    (directory / "run-1-c9-r0.json.gz").write_bytes(sealed)
    (directory / "plain.csv").write_text("step,duration_s\n0,1\n1,1\n", "utf-8")
    strict.materialise(RUN)
    assert {"run-1-c0-r0.json.gz", "device_samples.csv"} <= set(strict.read(RUN).files["file_name"])
    (directory / OPEN).unlink()
    strict.materialise(RUN)
    rejected = strict.read(RUN).files.filter(outcome="rejected")
    reasons = dict(rejected.select("file_name", "reason").rows())
    said = {
        "steps-r0.csv": "chunk 0 does not open: the file was cut, changed or reordered",
        "run-1-c1-r0.json.gz": "chunk 0 does not open: the file was cut, changed or reordered",
        "run-1-c9-r0.json.gz": "it was sealed as run-1-c1-r0.json.gz of run run-1, and lies as run-1-c9-r0.json.gz",
        "plain.csv": "it is not sealed, and this lake accepts nothing else",
    }
    assert reasons.keys() == said.keys()
    for name, reason in said.items():
        assert reason in reasons[name]


def test_what_was_changed_after_it_was_shown_is_not_what_is_signed(
    tmp_path: Path, public_key: Path, strict: LandFiles
) -> None:
    landing = LiveLanding(strict.zone.place.directory, RUN, 0, 1, 1.0, public_key)
    landing.open(lambda: 'regime = "cc_off"\n')
    log = landing.workspace / "steps-r0.csv"
    log.write_text("step,duration_s\n0,1\n1,1\n", "utf-8")
    landing.publish(log)
    other = [b"step,duration_s\n0,1\n1,1\n"]
    forged = b"".join(seal_blocks(other, read_public_key(public_key), RUN, log.name))  # whoever has the public key can
    (strict.zone.place.directory / RUN / log.name).write_bytes(forged)
    landing.finish('regime = "cc_off"\n', make_key(tmp_path / "key.pem"))
    strict.materialise(RUN)
    silver.materialise(strict.lake, RUN, engine("polars"))
    (row,) = strict.lake.scan(recordings.TABLE).collect().to_dicts()
    assert (row["signature"], row["missing_files_count"]) == ("broken", 1)


def test_ranks_that_share_a_directory_show_sealed_files_and_whole_lines_alone(
    tmp_path: Path, public_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_PORT", "29997")
    first = LiveLanding(tmp_path, RUN, 0, 2, 2.0, public_key)
    first.open(lambda: "schema = 1\n")
    late = LiveLanding(tmp_path, RUN, 1, 2, 2.0, public_key)
    log = late.workspace / "1.csv"
    for text, seen in (("a", None), ("a\nb", b"a\n"), ("a\nbc\nd", b"a\nbc\n")):
        log.write_text(text, "utf-8")
        late.publish_log(log)
        assert open_all(tmp_path / RUN).get("1.csv") == seen
    late.finish(None)
    assert not late.workspace.exists()
    first.finish('schema = 1\nmodel = "m"\n')
    assert open_all(tmp_path / RUN) == {"1.csv": b"a\nbc\nd", MANIFEST: b'schema = 1\nmodel = "m"\n'}
    assert not first.workspace.exists()
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_long_log_is_shown_again_when_it_has_grown_by_a_sixteenth_and_whole_at_the_end(
    tmp_path: Path, public_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_OFTEN_BYTES", 160)
    landing = LiveLanding(tmp_path, RUN, 0, 1, 1.0, public_key)
    landing.open(lambda: "schema = 1\n")
    log, shown = landing.workspace / "a.csv", []
    for cycle in range(1, 34):
        log.write_bytes(b"123456789\n" * cycle)
        landing.publish_log(log)
        if len(open_all(tmp_path / RUN)["a.csv"]) == 10 * cycle:
            shown.append(cycle)
    assert shown == [*range(1, 19), 20, 22, 24, 26, 28, 30, 32]
    landing.finish("schema = 1\n")
    assert len(open_all(tmp_path / RUN)["a.csv"]) == 330
