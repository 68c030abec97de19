"""The command `teetotal`, also as `python -m teetotal`."""

import sys

from pipelines.cli.main import main

if __name__ == "__main__":
    sys.argv[0] = "python -m teetotal"  # the command says by it what to type next
    main(prog_name=sys.argv[0])
