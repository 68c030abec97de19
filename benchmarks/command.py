"""`python -m benchmarks.command WORD…`: `teetotal` as a person types it; its last line is its peak in bytes."""

from __future__ import annotations

import atexit
import json
import sys

from benchmarks.measuring import peak_bytes
from teetotal.__main__ import main


def _print_peak() -> None:
    print(json.dumps({"peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    atexit.register(_print_peak)
    sys.argv[0] = "teetotal"
    main("teetotal")
