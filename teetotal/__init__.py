"""teetotal for Python: `open` gives a lake."""
