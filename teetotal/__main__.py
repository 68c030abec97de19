"""The command `teetotal`, also as `python -m teetotal`."""

import sys

from pipelines.allocators import spare_memory
from pipelines.cli.main import main as command
from pipelines.process_costs import end_process, search_cycles_rarely


def main(name: str | None = None) -> None:
    """Run the command line; `name` is what the command says has to be typed next."""
    spare_memory()
    search_cycles_rarely()
    try:
        command(prog_name=name)
    except SystemExit as ended:
        end_process(ended.code)


if __name__ == "__main__":
    sys.argv[0] = "python -m teetotal"
    main(sys.argv[0])
