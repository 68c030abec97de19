"""Dagster's records for one lake: set up on first use, and freed of launches whose process is gone."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import yaml

from assets.processes import PROCESS_TAG
from lake.errors import ContractBroken, SourceUnavailable
from pipelines.settings import POSTGRES_URL

if TYPE_CHECKING:
    from pipelines.settings import Home


def instance(home: Home) -> dg.DagsterInstance:
    """Open the records; nobody else's are touched."""
    prepare(home)
    opened = _on_server(home) if home.is_postgres else dg.DagsterInstance.from_config(str(home.directory))
    _bury(opened)
    return opened


def _on_server(home: Home) -> dg.DagsterInstance:
    """The records on a server; one that is not there, or refuses us, is told by its own words."""
    try:
        from dagster_postgres.utils import DagsterPostgresException
    except ImportError:
        raise ContractBroken(f"{POSTGRES_URL} is set, and no driver is here", "install teetotal[postgres]") from None
    from sqlalchemy.exc import DBAPIError

    try:
        return dg.DagsterInstance.from_config(str(home.directory))
    except (DBAPIError, DagsterPostgresException) as error:
        reason: BaseException = error
        while reason.__cause__ is not None:
            reason = reason.__cause__
        said = str(reason).partition("\n")[0]
        raise SourceUnavailable(f"Dagster's records cannot be opened: {said}", f"see {POSTGRES_URL}") from None


def prepare(home: Home) -> None:
    """Write down how Dagster keeps its records, where nobody else has."""
    if home.source is None:
        if not home.directory.is_dir():
            raise ContractBroken(f"DAGSTER_HOME is {home.directory}, which is no directory", "make it, or unset it")
        return
    home.directory.mkdir(parents=True, exist_ok=True)
    settings = yaml.safe_load(home.source.read_text("utf-8"))
    if home.is_postgres:
        settings["storage"] = {"postgres": {"postgres_url": {"env": POSTGRES_URL}}}
    text = yaml.safe_dump(_absolute(settings, home.directory.parent), sort_keys=True)
    path = home.directory / "dagster.yaml"
    if path.is_file() and path.read_text("utf-8") == text:
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=home.directory, delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


def _absolute(settings: Any, root: Path) -> Any:
    """The same settings, every directory in full: Dagster takes them from where a process happens to start."""
    if not isinstance(settings, dict):
        return settings
    return {
        name: str(root / value) if name == "base_dir" and isinstance(value, str) else _absolute(value, root)
        for name, value in settings.items()
    }


def _bury(opened: dg.DagsterInstance) -> None:
    """Fail launches of commands that were killed: they would hold the writer's place for ever."""
    for run in opened.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING])):
        host, _, number = run.tags.get(PROCESS_TAG, "").partition("/")
        if host != socket.gethostname() or not number.isdecimal() or _lives(int(number)):
            continue
        opened.report_run_failed(run, f"process {number} is gone; what it had committed stays")
        opened.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
