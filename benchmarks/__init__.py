"""What times the pipeline; `python -m benchmarks` prints the numbers, and no room imports this one."""

import pipelines  # noqa: F401 - what is measured is a process as the command starts it

TIERS = ("bronze", "silver", "gold")
