"""What times the pipeline; `python -m benchmarks` prints the numbers, and no room imports this one."""

# Here, since whoever measures a process must not hold what the process holds: its peak starts with its parent's.
TIERS = ("bronze", "silver", "gold")
