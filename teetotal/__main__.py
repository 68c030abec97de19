"""The command `teetotal`, also as `python -m teetotal`."""

import sys


def main(name: str | None = None) -> None:
    """Run the command line; `name` is what the command says has to be typed next."""
    try:
        from pipelines.allocators import spare_memory
        from pipelines.cli.main import main as command
        from pipelines.process_costs import collect_garbage_rarely, end_process
    except KeyboardInterrupt:  # after an installation, importing takes seconds
        sys.stderr.write("teetotal: stopped; nothing had begun\n")
        sys.exit(130)
    spare_memory()
    collect_garbage_rarely()
    try:
        command(prog_name=name)
    except SystemExit as ended:
        end_process(ended.code)


if __name__ == "__main__":
    sys.argv[0] = "python -m teetotal"
    main(sys.argv[0])
