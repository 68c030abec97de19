"""The reader of a metric of MLflow's file store (`mlruns/…/metrics/NAME`): a line is time in ms, value, step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bronze import training_log
from bronze.decimals import parse_integer, parse_nanoseconds
from bronze.line_reader import LineReader
from bronze.lines import as_text
from bronze.scalars import make_scalar
from bronze.tolerant_parser import make_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits

VERSION = 1
_MOST_LINE_BYTES = 1 << 16
_MS_NS = 1_000_000
# Later versions name the model and the dataset behind the step.
_LINE = re.compile(
    r"([0-9]{12,14}) ([+-]?(?:nan|inf|[0-9][0-9.eE+-]{0,40})) (-?[0-9]{1,19})(?: (\S.{0,1000}))?", re.ASCII
)


def is_metric(head: bytes) -> bool:
    """Whether the first line is one of such a file."""
    return _LINE.fullmatch(as_text(head.partition(b"\n")[0].removesuffix(b"\r")[:_MOST_LINE_BYTES])) is not None


class MlflowMetricReader(LineReader):
    """One pass over one metric; its name is that of the file, which `bronze.source_files` keeps."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(blocks, limits, training_log.TABLE, most_bytes=_MOST_LINE_BYTES)

    def _take(self, offset: int, data: bytes) -> None:
        found = _LINE.fullmatch(as_text(data))
        if found is None:
            if data.strip():
                self.report(make_range(offset, len(data), "it is no line of time in ms, value and step", data))
            else:
                self.passed_count += 1
            return
        try:
            value = float(found[2])
        except ValueError:
            self.report(make_range(offset, len(data), "its value is no number", data))
            return
        row = make_scalar(parse_nanoseconds(found[1], _MS_NS)[0], parse_integer(found[3]), None, value)
        self.add(training_log.TABLE, {**row, "record_value": found[2], "offset_bytes": offset}, len(data) + 128)
