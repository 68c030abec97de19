"""When, where and with which settings it runs, and the commands that a person types."""

import os

# Arrow asks for this once, at its first import: its own allocator keeps what was freed, the system's gives it back.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
