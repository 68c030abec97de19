"""The command `teetotal-collector`, also as `python -m`: it says what is missing before it imports what needs it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0 when all went well, 1 when something failed, 2 for wrong usage or without torch."""
    if find_spec("torch") is None:
        sys.stderr.write("collector: torch is not installed: install it in the environment that you train in\n")
        return 2
    from .command import run_command

    called = Path(sys.argv[0]).name
    return run_command(arguments, f"python -m {__package__}" if called == "__main__.py" else called)


if __name__ == "__main__":
    sys.exit(main())
