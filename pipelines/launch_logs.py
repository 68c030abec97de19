"""What a launch prints: into files of its own, without the four processes with which Dagster copies it to a terminal.

Ctrl-C reaches those too, and they answer with tracebacks; a command tells by itself what a person should see.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dagster._core.execution.compute_logs import redirect_to_file
from dagster._core.storage.compute_log_manager import CapturedLogContext, ComputeIOType
from dagster._core.storage.local_compute_log_manager import IO_TYPE_EXTENSION, LocalComputeLogManager
from dagster._utils import ensure_file, touch_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dagster._serdes import ConfigurableClassData


class LaunchLogs(LocalComputeLogManager):
    """Keeps what the steps of a launch print in files, and prints none of it."""

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> LaunchLogs:
        """Made from Dagster's settings; the inherited one makes its own class."""
        return cls(inst_data=inst_data, **config_value)

    @contextmanager
    def capture_logs(self, log_key: Sequence[str]) -> Iterator[CapturedLogContext]:
        """Send standard output and standard error to files while a step works."""
        out, err = (
            self.get_captured_local_path(log_key, IO_TYPE_EXTENSION[kind])
            for kind in (ComputeIOType.STDOUT, ComputeIOType.STDERR)
        )
        ensure_file(out)
        ensure_file(err)
        with redirect_to_file(sys.stdout, out), redirect_to_file(sys.stderr, err):
            yield CapturedLogContext(log_key)
        touch_file(self.complete_artifact_path(log_key))  # type: ignore[no-untyped-call]
