"""What times the pipeline; `python -m benchmarks` prints the numbers, and no package imports this one."""

TIERS = ("bronze", "silver", "gold")
