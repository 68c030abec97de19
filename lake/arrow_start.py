"""How Arrow starts: at its first value it imports pandas, half a second, to know the missing values that pandas has."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _Hidden(MetaPathFinder):
    """Lets nobody find pandas."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002 - as Python calls it
        """Nothing is found of pandas; all else is for the others to find."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def start_without_pandas() -> None:
    """Have Arrow look for pandas now, while it is hidden: for a process that hands Arrow nothing of pandas'.

    Whoever imports pandas later has it as ever; only its missing values among other Python values are then no nulls
    to Arrow.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(hidden)
