"""What tests ask executors for, in a process of its own: a client of Spark Connect shares none with a driver."""

from __future__ import annotations

import json
import sys

from lake.executors import Executors, Site
from pipelines.settings import settings


def where(site: Site, number: int) -> tuple[str, str, str]:
    """Where an executor's code comes from, and its Python."""
    import silver

    return str(number), str(silver.__file__), sys.executable


def main(tasks: int) -> None:
    """Ask as many tasks as there are, and print what each says."""
    cluster = settings().spark
    assert cluster.reach is not None
    executors = Executors(cluster.session(), cluster.reach)
    print(json.dumps(executors.each(where, range(tasks))))  # noqa: T201 - for the test that started us


if __name__ == "__main__":
    main(int(sys.argv[1]))
