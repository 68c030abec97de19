"""`python -m benchmarks.summary EXPECTED.csv DIR`: gold.trace_summary against what others computed, value by value."""

from __future__ import annotations

import csv
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from assets.build import bronze, gold, silver
from bronze import source_files
from gold import trace_summary
from lake.engines import engine
from lake.landing_zone import LandingZone
from lake.store import Lake
from pipelines.settings import settings

_NAMES = ("set", "file", "rank")
_SLACK_PCT = 0.0001  # the expected percentages have four decimals


def main(expected_path: str, folder: str) -> None:
    """Land the files of each set as one run, measure it, and print every value that differs."""
    sets: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in csv.DictReader(Path(expected_path).read_text("utf-8").splitlines()):
        sets[row["set"]].append(row)
    compared = differing = 0
    with tempfile.TemporaryDirectory(prefix="summary-") as home:
        places = settings(f"{home}/lake", f"{home}/landing")
        lake, zone = Lake(places.lake, places.keyring), LandingZone(places.landing)
        for run_id, rows in sets.items():
            land_files(Path(folder), places.landing.directory / run_id, [row["file"] for row in rows])
            bronze.materialise(lake, zone, run_id, places.limits)
            silver.materialise(lake, run_id, engine("polars"))
            gold.materialise(lake, run_id, engine("polars"))
            ranks = dict(lake.scan(source_files.TABLE, [run_id]).select("file_name", "rank").collect().iter_rows())
            found = {row["rank"]: row for row in lake.scan(trace_summary.TABLE, [run_id]).collect().to_dicts()}
            for row in rows:
                ours = found[next(rank for name, rank in ranks.items() if name.startswith(row["file"]))]
                for name in row.keys() - _NAMES:
                    compared += 1
                    slack = _SLACK_PCT if name.endswith("pct") else 0
                    if abs(float(row[name]) - (ours[name] or 0)) > slack:
                        differing += 1
                        print(f"{row['file']} {name}: expected {row[name]}, found {ours[name]}")
    print(f"{sum(map(len, sets.values()))} ranks, {compared} values, {differing} differ")
    raise SystemExit(differing > 0)


def land_files(folder: Path, directory: Path, names: list[str]) -> None:
    """Lay files of a folder, by how their names begin, into the landing directory of one run."""
    directory.mkdir(parents=True)
    for name in names:
        (path,) = folder.rglob(f"{name}*")
        shutil.copyfile(path, directory / path.name)
    (directory / "run.toml").write_text('regime = "cc_off"\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
