"""The limit beside ours: inflating, decoding into typed columns, writing Parquet, each with nothing around it."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import TIERS
from benchmarks.inputs import land_trace, trace
from benchmarks.measuring import CACHE, Cost, format_spread, measure_process, median, peak_bytes, table, tiers

# What a tight decoder must at least bring: the fields of an event that every answer needs, typed.
_COLUMNS = {
    "ph": "VARCHAR",
    "cat": "VARCHAR",
    "name": "VARCHAR",
    "pid": "VARCHAR",
    "tid": "VARCHAR",
    "ts": "DOUBLE",
    "dur": "DOUBLE",
    "args": 'STRUCT("External id" BIGINT, "correlation" BIGINT, "stream" BIGINT, "bytes" BIGINT)',
}
PARTS = ("inflate", "decode", "write")


def beside_the_limit(events: int, repeats: int) -> str:
    """A table of the three parts and of ours, and our share of inflate + decode."""
    chosen = trace(events)
    parts: dict[str, list[Cost]] = {part: [] for part in PARTS}
    ours: dict[str, list[Cost]] = {"bronze": [], "bronze, silver, gold": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder:
            for part in PARTS:
                parts[part].append(
                    measure_process([sys.executable, "-m", "benchmarks.limits", part, chosen.path, folder])
                )
            land_trace(Path(folder), chosen.path)
            for name, some in (("bronze", TIERS[:1]), ("bronze, silver, gold", TIERS)):
                ours[name].append(tiers(folder, *some, lake=f"lake-{len(some)}"))
    least = [
        one.answers["cpu_s"] + other.answers["cpu_s"]
        for one, other in zip(parts["inflate"], parts["decode"], strict=True)
    ]
    rows = [[f"{part} alone", _work(found), "", _peak(found), "", ""] for part, found in parts.items()]
    for name, found in ours.items():
        rows.append(
            [
                f"ours: {name}",
                _work(found),
                format_spread([cost.cpu_s for cost in found], 2),
                _peak(found),
                _share(least, [cost.answers["cpu_s"] for cost in found]),
                _share(least, [cost.cpu_s for cost in found]),
            ]
        )
    names = ("", "CPU s", "with Python's start", "peak MB", "speed in % of inflate + decode", "with Python's start")
    return "\n".join([f"The limit, {chosen.name}, {chosen.plain_bytes / 1e6:,.1f} MB of JSON:", "", table(names, rows)])


def _work(found: list[Cost]) -> str:
    """CPU time without the start of Python, of the parts and of ours alike."""
    return format_spread([cost.answers["cpu_s"] for cost in found], 2)


def _peak(found: list[Cost]) -> str:
    return f"{median([cost.peak_mb for cost in found]):,.0f}"


def _share(least: list[float], ours: list[float]) -> str:
    return format_spread([100 * floor / took for floor, took in zip(least, ours, strict=True)], 0)


def main(part: str, source: str, folder: str) -> None:
    """Do one part and nothing else; its CPU time is without the start of Python and the reading of what came before."""
    plain, columns = Path(folder) / "plain.json", Path(folder) / "columns.arrow"
    took = {"inflate": _inflate, "decode": _decode, "write": _write}[part](Path(source), plain, columns)
    print(json.dumps({"peak_bytes": peak_bytes(), "cpu_s": took}))


def _inflate(source: Path, plain: Path, _: Path) -> float:
    from isal import isal_zlib

    packed = source.read_bytes()
    start = time.process_time()
    data = isal_zlib.decompress(packed, wbits=31)
    took = time.process_time() - start
    opening = data.index(b'"traceEvents": [') + len(b'"traceEvents": ')
    plain.write_bytes(data[opening : data.rindex(b"]") + 1])
    return took


def _decode(_: Path, plain: Path, columns: Path) -> float:
    import duckdb
    import pyarrow as pa

    with duckdb.connect() as connection:
        start = time.process_time()
        found = connection.read_json(str(plain), format="array", columns=_COLUMNS).to_arrow_table()
        took = time.process_time() - start
    with pa.OSFile(str(columns), "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
        writer.write_table(found)
    return took


def _write(_: Path, __: Path, columns: Path) -> float:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pa.memory_map(str(columns)) as file:
        rows = pa.ipc.open_file(file).read_all()
        start = time.process_time()
        pq.write_table(rows, columns.with_suffix(".parquet"), compression="zstd")
        return time.process_time() - start


if __name__ == "__main__":
    main(*sys.argv[1:])
