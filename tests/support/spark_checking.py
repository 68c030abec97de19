"""What tests have checked on Spark, by the installed wheel, in a process of its own: that of a Connect client."""

from __future__ import annotations

import json
import sys
from importlib import import_module


def main(run_id: str, names: list[str]) -> None:
    """Hold some tables of a run to their word on both engines, and print what each found."""
    chosen = import_module("teetotal.pipelines.settings").settings()
    lake = import_module("teetotal.lake.store").Lake(chosen.lake, chosen.keyring)
    table = import_module("teetotal.assets.build.catalogue").table
    check_tables = import_module("teetotal.assets.checks.expectations").check_tables
    for spark in (None, chosen.spark):
        found = [one for name in names for one in check_tables(lake, table(name), [run_id], spark=spark)]
        answer = [[one.check.name, one.engine, one.rows_count, one.broken_count] for one in found]
        print(json.dumps(answer))  # noqa: T201 - for the test that started us


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
