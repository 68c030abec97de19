"""The reader of a job's output: steps, progress bars, `:::MLLOG` lines, NCCL's debug lines, nccl-tests' tables."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bronze import collective_records, json_text, training_log
from bronze.decimals import fit_int64, parse_integer, parse_nanoseconds, parse_number
from bronze.line_reader import LineReader
from bronze.lines import as_text
from bronze.named_values import has_named_values, may_name_values, read_named_values
from bronze.progress_bars import ProgressBars, has_full_bar, may_be_bar
from bronze.step_lines import has_step_line, is_left_out, may_be_step, read_step_line
from bronze.tolerant_parser import make_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits

VERSION = 3
MLLOG = b":::MLLOG"
_NCCL = b"NCCL INFO "
_TESTS = re.compile(rb"^#\s+\(B\)\s+\(elements\)", re.MULTILINE)
_MOST_LINE_BYTES = 1 << 20
_RETURN = re.compile(rb"\r(?!\n)")
# A line may begin in one block and end in the next one.
_LAST_BYTES = 1 << 12
# host:pid:tid [device] NCCL INFO message; launchers put things before it, and RCCL a number behind the device.
_WHO = re.compile(
    r"(?:(?P<host>[^\s:]{1,255}):(?P<process>\d{1,10}):(?P<thread>\d{1,10}) )?\[(?P<device>\d{1,6})\](?: \d{1,20})? $"
)
_WHO_LENGTH = 320
_CALL = re.compile(r"(?P<name>[A-Z][A-Za-z]{1,40}): opCount (?P<sequence>[0-9a-fA-F]{1,16})(?P<rest> .*)")
_PAIR = re.compile(r"\[?([A-Za-z]{1,32})[ =](\(nil\)|0x[0-9a-fA-F]{1,16}|-?[0-9]{1,20})\]?")
_TUNED = re.compile(
    r"(?P<name>[A-Z][A-Za-z]{1,40}): (?P<size>[0-9]{1,19}) Bytes -> Algo (?P<algorithm>[A-Za-z0-9_]{1,32}) "
    r"proto (?P<protocol>[A-Za-z0-9_]{1,32})(?P<rest>.*)"
)
_MODE = re.compile(r"CC (?P<state>On|Off)\b,?\s*(?P<rest>.*)")
_SIZED = re.compile(r"\s*[0-9]{1,19}\s+[0-9]{1,19}\s+[a-z][a-z0-9_]{1,20}\s")
_MOST_MESSAGE = 1 << 12
_MS_NS = 1_000_000
_MICROSECOND_NS = 1_000


def is_job_log(head: bytes) -> bool:
    """Whether the output so far holds a line that this reader takes."""
    if MLLOG in head or _NCCL in head or _TESTS.search(head) is not None:
        return True
    lines = head.splitlines()
    return (
        (may_be_step(head) and has_step_line(lines))
        or (may_be_bar(head) and has_full_bar(lines))
        or (b"\x00" not in head and has_named_values(lines))
    )


def may_be_text(head: bytes) -> bool:
    """Whether a file may be a job's output whose first marked line comes late."""
    return bool(head) and b"\x00" not in head and not head.lstrip().startswith((b"{", b"["))


def has_marks(blocks: Iterator[bytes]) -> bool:
    """Whether such a line comes at all, however late: a look at every byte, at no memory."""
    last = b""
    for block in blocks:
        both = last + block
        if is_job_log(both):
            return True
        last = block[-_LAST_BYTES:]
    return False


def _read_line(data: bytes) -> dict[str, Any] | None:
    """What a line says of a step or an epoch: as a trainer prints it, else by the names of its values."""
    if may_be_step(data):
        row = read_step_line(data)
        if row is not None or is_left_out(data):
            return row
    return read_named_values(data) if may_name_values(data) and not may_be_bar(data) else None


def _break_at_returns(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, where a carriage return ends a line as well: a progress bar is drawn again behind each."""
    held = b""
    for block in blocks:
        both = held + block
        held = b"\r" if both.endswith(b"\r") else b""
        yield _RETURN.sub(b"\n", both.removesuffix(held)) if b"\r" in both else both
    if held:
        yield held


class JobLogReader(LineReader):
    """One pass over one log; a line that is marked and cannot be read is reported, any other is passed by."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        lines = _break_at_returns(blocks)
        super().__init__(lines, limits, training_log.TABLE, collective_records.TABLE, most_bytes=_MOST_LINE_BYTES)
        self._is_tests = False
        self._bars = ProgressBars()

    def _read(self) -> Iterator[None]:
        yield from super()._read()
        self._add_bars(self._bars.finish())
        yield

    def _take(self, offset: int, data: bytes) -> None:
        if MLLOG in data:
            self._mllog(offset, data)
        elif _NCCL in data:
            self._nccl(offset, data)
        elif data.startswith(b"#"):
            self._is_tests = self._is_tests or _TESTS.match(data) is not None
            self.passed_count += 1
        elif self._is_tests and _SIZED.match(as_text(data[:256])):
            self._size(offset, data)
        elif (row := _read_line(data)) is not None:
            self._add_step({**row, "offset_bytes": offset})
        else:
            self.passed_count += 1
            if may_be_bar(data):
                self._add_bars(self._bars.read(offset, data))

    # -- training ---------------------------------------------------------------------------------------------

    def _add_bars(self, rows: list[dict[str, Any]]) -> None:
        """Take in bars whose lines were passed by until it was known that they are complete."""
        for row in rows:
            self.passed_count -= 1
            self._add_step(row)

    def _add_step(self, row: dict[str, Any]) -> None:
        self.add(training_log.TABLE, row, 2 * len(row["args"]) + 128)

    def _mllog(self, offset: int, data: bytes) -> None:
        before, _, text = as_text(data).partition(MLLOG.decode())
        said = json_text.parse_object(text)
        if said is None:
            self.report(make_range(offset, len(data), "what follows :::MLLOG is no JSON object", data))
            return
        left = dict(said)
        row: dict[str, Any] = {"offset_bytes": offset, "record": "mllog"}
        row["ts_ns"] = _pop_time(left, "time_ms", _MS_NS)
        for key, column in (("namespace", "namespace"), ("event_type", "event_type"), ("key", "record_key")):
            if isinstance(left.get(key), str):
                row[column] = left.pop(key)
        value = left.pop("value", None)
        if value is not None:
            row["record_value"] = value if isinstance(value, str) else json_text.write_json(value)
        metadata = left.get("metadata")
        if isinstance(metadata, dict):
            row["epoch_number"] = fit_int64(metadata.get("epoch_num", metadata.get("first_epoch_num")))
            row["step_number"] = fit_int64(metadata.get("step_num", metadata.get("step")))
        row["samples_per_second"] = _rate(row.get("record_key"), value)
        left |= {"prefix": before} if before.strip() else {}
        row["args"] = json_text.compact_json(left)
        self.add(training_log.TABLE, row, len(data))

    # -- collectives ------------------------------------------------------------------------------------------

    def _nccl(self, offset: int, data: bytes) -> None:
        """Take calls, choices and the mode; NCCL says much else, which is passed by."""
        before, _, message = as_text(data).partition(_NCCL.decode())
        is_one = _NCCL.decode() not in message and len(message) < _MOST_MESSAGE
        row = _statement(message.rstrip()) if is_one else None
        if row is None:
            if " opCount " in message or " Bytes -> Algo " in message:
                self.report(
                    make_range(offset, len(data), "it is a line of NCCL on a collective that cannot be read", data)
                )
            else:
                self.passed_count += 1
            return
        who = _WHO.search(before[-_WHO_LENGTH:])
        if who is not None:
            row |= {"host": who["host"], "process_id": who["process"], "thread_id": who["thread"]}
            row["device_id"] = parse_integer(who["device"])
        row["offset_bytes"] = offset
        self.add(collective_records.TABLE, row, len(data) + 256)

    def _size(self, offset: int, data: bytes) -> None:
        """One line of nccl-tests' table: times are microseconds, as its header says."""
        parts = as_text(data).split()
        row: dict[str, Any] = {"offset_bytes": offset, "record": "nccl_tests"}
        row |= dict(zip(("payload_bytes", "elements_count"), map(parse_integer, parts), strict=False))
        row["dtype"] = parts[2]
        # Reduction and root are there or not, as the collective has them; the measured half begins with the time.
        measured = parts[3:]
        if measured and measured[0].isalpha():
            row["reduction"] = measured.pop(0)
        if measured and len(measured) % 4 == 1:
            row["root"] = measured.pop(0)
        if len(measured) not in {4, 8}:
            self.report(make_range(offset, len(data), "it is a line of nccl-tests with an odd number of columns", data))
            return
        out, inside = measured[:4], measured[4:]
        row["duration_ns"] = parse_nanoseconds(out[0], _MICROSECOND_NS)[0]
        row["in_place_duration_ns"] = parse_nanoseconds(inside[0], _MICROSECOND_NS)[0] if inside else None
        names = ("time_us", "algbw_gbs", "busbw_gbs", "wrong")
        args: dict[str, Any] = {"out_of_place": dict(zip(names, out, strict=True))}
        args |= {"in_place": dict(zip(names, inside, strict=True))} if inside else {}
        row["args"] = json_text.compact_json(args)
        self.add(collective_records.TABLE, row, len(data) + 256)


def _statement(message: str) -> dict[str, Any] | None:
    """What a message of NCCL says of a collective or of the mode; none where it is about something else."""
    called = _CALL.fullmatch(message)
    if called is not None:
        rest = dict(_PAIR.findall(called["rest"]))
        if _PAIR.sub("", called["rest"]).strip():
            rest["text"] = called["rest"].strip()
        return {
            "record": "nccl_log_collective",
            "collective_name": called["name"],
            "collective_sequence": fit_int64(int(called["sequence"], 16)),
            "elements_count": parse_integer(rest.pop("count", "")),
            "dtype": rest.pop("datatype", None),
            "reduction": rest.pop("op", None),
            "root": rest.pop("root", None),
            "communicator_id": rest.pop("comm", None),
            "group_size": parse_integer(rest.pop("nranks", "")),
            "args": json_text.compact_json({"opCount": called["sequence"], **rest}),
        }
    tuned = _TUNED.fullmatch(message)
    if tuned is not None:
        return {
            "record": "nccl_log_tuning",
            "collective_name": tuned["name"],
            "payload_bytes": parse_integer(tuned["size"]),
            "algorithm": tuned["algorithm"],
            "protocol": tuned["protocol"],
            "args": json_text.compact_json({"text": tuned["rest"].strip()} if tuned["rest"].strip() else {}),
        }
    mode = _MODE.fullmatch(message)
    if mode is None:
        return None
    return {"record": "nccl_log_cc", "cc_state": mode["state"], "args": json_text.compact_json({"text": message})}


def _rate(key: str | None, value: object) -> float | None:
    """The throughput that a line gives: as its value, or among the statistics in it; its digits stay in the value."""
    said = value.get("throughput") if key == "tracked_stats" and isinstance(value, dict) else None
    said = value if key == "throughput" else said
    is_number = isinstance(said, int | Decimal) and not isinstance(said, bool)
    return parse_number(str(said))[0] if is_number else None


def _pop_time(left: dict[str, Any], key: str, factor: int) -> int | None:
    """A time out of what is left, if it is exact; anything else stays there."""
    value = left.get(key)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    found, is_exact = parse_nanoseconds(str(value), factor)
    if is_exact:
        del left[key]
    return found
