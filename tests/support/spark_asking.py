"""What tests ask executors for, by the installed wheel: a client of Spark Connect shares no process with a driver."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any


def where(_site: Any, number: int) -> tuple[str, str, str]:
    """Where an executor's code comes from, and its Python."""
    return str(number), str(import_module("teetotal.silver").__file__), sys.executable


def main(tasks: int) -> None:
    """Ask as many tasks as there are, and print what each says."""
    cluster = import_module("teetotal.pipelines.settings").settings().spark
    executors = import_module("teetotal.lake.executors").Executors(cluster.session(), cluster.reach)
    print(json.dumps(executors.each(where, range(tasks))))  # noqa: T201 - for the test that started us


if __name__ == "__main__":
    main(int(sys.argv[1]))
