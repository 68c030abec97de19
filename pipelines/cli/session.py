"""What commands open before they do anything: the lake, and the terminal that they write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from lake.store import Lake
    from pipelines.settings import Settings


def open_lake(chosen: Settings) -> Lake:
    """The lake that was chosen."""
    from lake.store import Lake

    return Lake(chosen.lake, chosen.keyring)


def print_lines(text: str, *, err: bool = False) -> None:
    """Write one line to the terminal; what would steer it (in a name, a path, a reason) is shown as its escape."""
    from report.terminal_text import make_printable

    click.echo(make_printable(text), err=err)


def console() -> Console:
    """The terminal; a pipe or a file has no edge to cut at."""
    from rich.console import Console

    found = Console()
    if not found.is_terminal:
        found.width = 200
    return found
