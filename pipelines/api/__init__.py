"""The lake for Python programs and notebooks: what commands answer, as frames; `teetotal` re-exports it."""
