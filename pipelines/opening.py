"""What commands open before they do anything: the lake, and the terminal that they write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from lake.store import Lake
    from pipelines.settings import Settings


def lake(chosen: Settings) -> Lake:
    """The lake that was chosen."""
    from lake.store import Lake

    return Lake(chosen.lake, chosen.keyring)


def console() -> Console:
    """The terminal; a pipe or a file has no edge to cut at."""
    from rich.console import Console

    found = Console()
    if not found.is_terminal:
        found.width = 200
    return found
