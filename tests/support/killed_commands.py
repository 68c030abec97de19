"""What a test may kill: `teetotal run --no-check` up to silver, each a fork of a process of this module."""

from __future__ import annotations

import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pipelines.cli.run  # noqa: F401 - the command imports it when it runs: each fork would
from assets.build import silver
from pipelines.cli.main import main
from pipelines.process_costs import start_without_pandas
from tests.support.forks import serve_jobs

_TO_SILVER = [word for table in silver.TABLES for word in ("--to", table.full_name)]


def run_there(lake: str, landing: str) -> None:
    """The command, which says nothing here: what a job says tells the other end that it is done."""
    for name in [name for name in os.environ if name.startswith("TEETOTAL_")]:
        del os.environ[name]
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        main(["--lake", lake, "--landing", landing, "run", "--no-check", *_TO_SILVER], standalone_mode=False)


if __name__ == "__main__":
    start_without_pandas()
    serve_jobs({run_there.__name__: run_there})
