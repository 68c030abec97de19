"""What tests ask by the installed wheel, in a process of its own: a client of Spark Connect shares none with a driver.

It prints three lines: where the code of executors lies, and what DuckDB and Spark find in some tables of a run.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any


def where(_site: Any, number: int) -> tuple[str, str, str]:
    """Where an executor's code comes from, and its Python."""
    return str(number), str(import_module("teetotal.silver").__file__), sys.executable


def main(tasks: int, run_id: str, names: list[str]) -> None:
    """Ask as many tasks as there are, hold the tables to their word on both engines, and print what each says."""
    chosen = import_module("teetotal.pipelines.settings").settings()
    cluster = chosen.spark
    executors = import_module("teetotal.lake.executors").Executors(cluster.session(), cluster.reach)
    tell(executors.each(where, range(tasks)))
    lake = import_module("teetotal.lake.store").Lake(chosen.lake, chosen.keyring)
    table = import_module("teetotal.assets.build.catalogue").table
    check_tables = import_module("teetotal.assets.checks.expectations").check_tables
    for spark in (None, cluster):
        found = [one for name in names for one in check_tables(lake, table(name), [run_id], spark=spark)]
        tell([[one.check.name, one.engine, one.rows_count, one.broken_count] for one in found])


def tell(answer: Any) -> None:
    """Say one answer to the test that started us."""
    print(json.dumps(answer))  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
