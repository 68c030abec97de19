"""A small signed lake with a past, and the attacks of someone who may write to it."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from assets.build.catalogue import list_required
from assets.build.context import BuildContext
from assets.build.provenance import make_lineage
from assets.build.tiers import build_tier, select_tables
from bronze.limits import Limits
from gold import kernel_breakdown
from lake.engines import engine
from lake.landing_zone import LandingZone
from lake.lineage import check_evidence
from lake.lineage.keys import SigningKeys
from lake.store import Lake
from pipelines.cli.main import main
from pipelines.cli.session import open_signed_lake
from pipelines.settings import Settings, settings
from silver import runs
from tests.support.build_runs import record_passed
from tests.support.small_runs import OFF, TEE, trace

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

TABLE = kernel_breakdown.TABLE
PARTITIONS = {"plain": OFF, "tee": TEE}


def choose(root: Path, **environment: str) -> Settings:
    """The settings of a lake there."""
    return settings(str(root / "lake"), str(root / "landing"), environment=environment)


def land(root: Path, run_id: str, step_us: int) -> None:
    """Put a small run into the landing zone, or change it."""
    directory = root / "landing" / run_id
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "rank0.json").write_bytes(trace(step_us))
    (directory / "run.toml").write_text(PARTITIONS[run_id])


def build(root: Path, lake: Lake | None = None, *, full: bool = False) -> Lake:
    """Bring both runs up to one gold table, and log what was signed."""
    chosen = choose(root)
    lake = lake or open_signed_lake(chosen)
    tables = select_tables(list_required([TABLE.full_name, runs.TABLE.full_name]))
    for tier in tables:
        context = BuildContext(lake, LandingZone(chosen.landing), Limits())
        made = build_tier(context, tier, list(PARTITIONS), partial(engine, "polars"), tables=tables, full=full)
        assert [one.fault for one in made if one.fault] == []
    record_passed(lake, PARTITIONS, [TABLE])
    lake.log_statements()
    return lake


def build_both(root: Path) -> None:
    """A signed lake of two runs, a plain one and one in a TEE."""
    land(root, "plain", 100)
    land(root, "tee", 130)
    build(root)


def teetotal(root: Path, *words: str) -> Result:
    """One command, for that lake."""
    places = ["--lake", str(root / "lake"), "--landing", str(root / "landing")]
    return CliRunner().invoke(main, [*places, *words], catch_exceptions=False)


def check_bundle(bundle: Path, trust: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The independent verifier, in a process that sees nothing of ours."""
    script = [sys.executable, "-I", str(check_evidence.__file__), str(bundle), "--trust", str(trust), *words]
    return subprocess.run(script, capture_output=True, text=True, check=False, cwd="/")


def open_unsigned(root: Path) -> Lake:
    """The lake as someone opens it who may write to it and has no key."""
    chosen = choose(root)
    return Lake(chosen.lake, chosen.keyring)


def _rows(lake: Lake, run_id: str) -> Any:
    return lake.scan(TABLE, [run_id]).collect()


def change_number(root: Path) -> None:
    """Write another number, as carefully as the product itself would."""
    halve_numbers(open_unsigned(root))


def halve_numbers(lake: Lake) -> None:
    """Replace the answers of a run by better ones."""
    rows = _rows(lake, "tee")
    lake.replace(TABLE, "tee", rows.with_columns(total_ns=rows["total_ns"] // 2).to_arrow(), "0" * 64)


def swap_partitions(root: Path) -> None:
    """Give each run the rows of the other."""
    import polars as pl

    lake = open_unsigned(root)
    rows = {run_id: _rows(lake, run_id) for run_id in PARTITIONS}
    for run_id, other in (("plain", "tee"), ("tee", "plain")):
        taken = rows[other].with_columns(run_id=pl.lit(run_id)).select(TABLE.column_names)
        lake.replace(TABLE, run_id, taken.to_arrow(), "0" * 64)


def replay_table(root: Path) -> None:
    """Put a table back to what it was before the last run."""
    shutil.rmtree(root / "lake" / TABLE.path)
    shutil.copytree(root / "before" / TABLE.path, root / "lake" / TABLE.path)


def replay_lake(root: Path) -> None:
    """Put the whole lake back, its log too."""
    shutil.rmtree(root / "lake")
    shutil.copytree(root / "before", root / "lake")


def drop_run(root: Path) -> None:
    """Take a run out of a table."""
    open_unsigned(root).replace(TABLE, "tee", TABLE.arrow_schema.empty_table(), "0" * 64)


def add_run(root: Path) -> None:
    """Add a run that nobody recorded, to all tables."""
    import polars as pl

    lake = open_unsigned(root)
    rows = _rows(lake, "plain").with_columns(run_id=pl.lit("forged")).select(TABLE.column_names)
    lake.replace(TABLE, "forged", rows.to_arrow(), "0" * 64)


def forge_statement(root: Path) -> None:
    """Change a number, and add a statement that says so to the log, with the signature of another."""
    change_number(root)
    found = open_unsigned(root).snapshot(TABLE).content_sha256("tee")
    lines = read_log(root)
    place = max(number for number, line in enumerate(lines) if name_subject(line) == f"{TABLE.full_name}/tee")
    envelope = json.loads(lines[place])
    payload = json.loads(base64.b64decode(envelope["payload"]))
    payload["subject"][0]["digest"]["rowsSha256"] = found
    envelope["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()
    append_line(root, json.dumps(envelope).encode())


def sign_with_another_key(root: Path) -> None:
    """Change a number, and sign it, the log and its end with a key of one's own."""
    chosen = choose(root)
    keys = SigningKeys(root / "own-trust.txt", root / "own-key.pem", is_made_on_first_use=True)
    lake = Lake(chosen.lake, chosen.keyring, make_lineage(chosen.lake, keys, {}))
    halve_numbers(lake)
    lake.log_statements()


def drop_statement(root: Path) -> None:
    """Take one statement out of the middle of the log."""
    first = list_log(root)[0]
    first.write_bytes(b"".join(line + b"\n" for line in first.read_bytes().splitlines()[1:]))


def reorder_log(root: Path) -> None:
    """Let two statements of the log change places."""
    first = list_log(root)[0]
    one, two, *rest = first.read_bytes().splitlines()
    first.write_bytes(b"".join(line + b"\n" for line in (two, one, *rest)))


def flip_bit(root: Path) -> None:
    """Flip one bit of a data file."""
    lake = open_unsigned(root)
    (path,) = lake.snapshot(TABLE).files("tee")
    file = root / "lake" / TABLE.path / path
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 4
    file.write_bytes(data)


def list_log(root: Path) -> list[Path]:
    """The files of the log, in order."""
    return sorted((root / "lake" / "_lineage").glob("*.jsonl"))


def read_log(root: Path) -> list[bytes]:
    """The statements of the log."""
    return [line for path in list_log(root) for line in path.read_bytes().splitlines()]


def append_line(root: Path, line: bytes) -> None:
    """Add a line to the log by hand."""
    (root / "lake" / "_lineage" / f"{len(read_log(root)):020}.jsonl").write_bytes(line + b"\n")


def name_subject(line: bytes) -> str:
    """The partition that a statement is of."""
    name: str = json.loads(base64.b64decode(json.loads(line)["payload"]))["subject"][0]["name"]
    return name
