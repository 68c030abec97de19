"""The reader of what `nvidia-smi dmon` prints: a column for each reading, under a line of names and one of units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bronze.csv_records import MOST_CELLS, MOST_RECORD_BYTES
from bronze.dates import parse_date
from bronze.decimals import fit_nanoseconds, parse_integer, parse_number
from bronze.device_samples import TABLE
from bronze.line_reader import LineReader
from bronze.lines import as_text
from bronze.tolerant_parser import make_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits

VERSION = 1
# Names of which dmon prints at least one beside the GPU's number, whatever it was asked for.
_READINGS = {"pwr", "sm", "mem", "mclk", "pclk", "pviol", "fb", "sbecc", "rxpci"}
_NOTHING = "-"


def is_monitor(head: bytes) -> bool:
    """Whether the first line is dmon's line of names."""
    first = next((line for line in head.splitlines() if line.strip()), b"")
    return _names(as_text(first[:MOST_RECORD_BYTES])) is not None


class DeviceMonitorReader(LineReader):
    """One pass over one output; its lines of names and units come again every few lines."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(blocks, limits, TABLE, most_bytes=MOST_RECORD_BYTES)
        self._names: list[str] = []
        self._units: list[str | None] = []

    def _take(self, offset: int, data: bytes) -> None:
        text = as_text(data).strip()
        if not text or text.startswith("#"):
            self._take_heading(text)
            self.passed_count += 1
            return
        cells = text.split()
        if len(cells) != len(self._names):
            reason = f"it has {len(cells)} columns, and the line of names before it has {len(self._names)}"
            self.report(make_range(offset, len(data), reason, data))
            return
        said = dict(zip(self._names, cells, strict=True))
        dated = parse_date(f"{_dash(said.pop('Date', ''))} {said.pop('Time', '')}")
        identity = {
            "offset_bytes": offset,
            "tool": "nvidia_smi",
            "wall_ns": None if dated is None else fit_nanoseconds(dated[0]),
            "device_id": parse_integer(said.pop("gpu")),
        }
        units = dict(zip(self._names, self._units, strict=True))
        for name, cell in said.items():
            self.add(TABLE, {**identity, "metric": name, "unit": units[name], **_reading(cell)}, 128 + len(cell))

    def _take_heading(self, text: str) -> None:
        names = _names(text)
        if names is not None:
            self._names, self._units = names, [None] * len(names)
        elif text and len(found := text.removeprefix("#").split()) == len(self._names):
            self._units = list(found)


def _names(line: str) -> list[str] | None:
    """The names in a line of them; none for any other."""
    names = line.strip().removeprefix("#").split()
    # `nvidia-smi pmon` has rows of processes: their shares are not the device's.
    is_names = line.lstrip().startswith("#") and "gpu" in names and "pid" not in names
    is_names = is_names and not _READINGS.isdisjoint(names)
    return names if is_names and len(names) == len(set(names)) <= MOST_CELLS else None


def _dash(date: str) -> str:
    return f"{date[:4]}-{date[4:6]}-{date[6:]}"


def _reading(cell: str) -> dict[str, Any]:
    if cell == _NOTHING:
        return {"value": cell, "missing_reason": "nvidia-smi prints -"}
    return {"value": cell, "value_number": parse_number(cell)[0]}
