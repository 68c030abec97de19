"""What tests have checked on Spark, in a process of its own: a client of Spark Connect shares none with a driver."""

from __future__ import annotations

import json
import sys

from assets.build.catalogue import table
from assets.checks.expectations import check_tables
from lake.store import Lake
from pipelines.settings import settings


def main(run_id: str, names: list[str]) -> None:
    """Hold some tables of a run to their word on both engines, and print what each found."""
    chosen = settings()
    lake = Lake(chosen.lake, chosen.keyring)
    for spark in (None, chosen.spark):
        found = [one for name in names for one in check_tables(lake, table(name), [run_id], spark=spark)]
        answer = [[one.check.name, one.engine, one.rows_count, one.broken_count] for one in found]
        print(json.dumps(answer))  # noqa: T201 - for the test that started us


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
