"""Dagster's records for one lake: set up on first use, and freed of launches whose process is gone."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import yaml

from assets.launch_locks import fail_dead_launches
from assets.pool_wait import POOL
from lake.errors import ContractBroken, SourceUnavailable
from lake.locations import make_private, report_unreachable
from lake.locks import hold_lock
from lake.scarcity import next_step
from pipelines.deferred_imports import import_dagster_storage
from pipelines.process_costs import keep_objects
from pipelines.settings import POSTGRES_URL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipelines.settings import Home


def open_instance(home: Home) -> dg.DagsterInstance:
    """Open the records; nobody else's are touched."""
    prepare_home(home)
    # Dagster makes its tables on first use, and two that do so at once leave tables that nobody can open.
    with (
        report_unreachable(f"{home.directory} could not be written to"),
        hold_lock(home.directory / "setup.lock", f"{home.directory}, where Dagster keeps its records,"),
    ):
        opened = _on_server(home) if home.is_postgres else _in_files(home)
    fail_dead_launches(opened, POOL)
    return opened


@contextmanager
def report_unreachable_records(home: Home) -> Iterator[None]:
    """Turn what SQLite says of a full or read-only disk into one line that names the place."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:
        step = next_step(error)
        if step is None:
            raise
        raise SourceUnavailable(
            f"Dagster's records in {home.directory} could not be used: {error.orig}", step
        ) from error


def _in_files(home: Home) -> dg.DagsterInstance:
    """The records in files; such as cannot be read are told with the way out."""
    try:
        with report_unreachable_records(home), keep_objects():
            import_dagster_storage()
            return dg.DagsterInstance.from_config(str(home.directory))
    except Exception as error:
        if not isinstance(error, _list_unreadable()):
            raise
        said = str(getattr(error, "orig", error)).partition("\n")[0]
        raise ContractBroken(
            f"Dagster's records in {home.directory} cannot be opened: {said}",
            f"the lake is not affected: move {home.directory} away, and the next command makes new records",
        ) from error


def _list_unreadable() -> tuple[type[Exception], ...]:
    """What is said of records that cannot be read; asked when something was said."""
    from alembic.util import CommandError
    from sqlalchemy.exc import DBAPIError

    return CommandError, DBAPIError


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


def prepare_home(home: Home) -> None:
    """Write down how Dagster keeps its records, where nobody else has."""
    if home.source is None:
        if not home.directory.is_dir():
            raise ContractBroken(f"DAGSTER_HOME is {home.directory}, which is no directory", "make it, or unset it")
        return
    with report_unreachable(f"{home.directory} could not be written to"):
        _write_settings(home, home.source)


def _write_settings(home: Home, source: Path) -> None:
    make_private(home.directory)  # logs of launches and reasons of failures lie there
    settings = yaml.safe_load(source.read_text("utf-8"))
    if home.is_postgres:
        settings["storage"] = {"postgres": {"postgres_url": {"env": POSTGRES_URL}}}
    text = yaml.safe_dump(_complete(settings, home.directory.parent), sort_keys=True)
    path = home.directory / "dagster.yaml"
    if path.is_file() and path.read_text("utf-8") == text:
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=home.directory, delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


def _complete(settings: Any, root: Path) -> Any:
    """The same settings, every directory in full and every module of ours by the name that it has here.

    Dagster takes directories from where a process happens to start; a wheel holds our packages inside another.
    """
    if not isinstance(settings, dict):
        return settings
    return {name: _complete_one(name, value, root) for name, value in settings.items()}


def _complete_one(name: str, value: Any, root: Path) -> Any:
    if name == "base_dir" and isinstance(value, str):
        return str(root / value)
    if name == "module" and isinstance(value, str) and value.startswith("pipelines."):
        return __name__.removesuffix("pipelines.instance") + value
    return _complete(value, root)
