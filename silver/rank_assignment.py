"""Which rank each process and GPU of Nsight's recordings is: told by what they say, numbered in order, or refused."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Owner = tuple[str, str]  # host and process
Cell = tuple[Owner, int]  # a process on a GPU; -1 where no GPU is seen

RANK_SOURCES = ("nccl", "file_name", "assumed")
LAUNCHES = "cuda_kern_exec_trace"
WORK = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "cuda_gpu_trace",
)
CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER", "cuda_api_trace", LAUNCHES)
# Readings of a whole GPU, of no process: they are no intervals, and stay with their recording.
_READINGS = ("GPU_METRICS",)
_NO_ONE: Owner = ("", "")
_NO_DEVICE = -1
_SHIFT = 1 << 32
_STEM = re.compile(r"_?cuda_(api|gpu|kern_exec)_trace.*", re.DOTALL)
_UNKNOWN_HOST = "host "


@dataclass
class Recording:
    """One session of the profiler: an export, or the CSV reports of one name."""

    id: str
    run_id: str
    file_rank: int | None
    is_csv: bool
    groups: list[Row] = field(default_factory=list)
    # Where work without a process met calls: by GPU and context, the callers that have all of its ids.
    callers_of: dict[tuple[int, int], set[Owner]] = field(default_factory=dict)
    # The GPU on which each process worked most.
    main: dict[Owner, int] = field(default_factory=dict)

    def owners(self, reports: tuple[str, ...] | None = None) -> set[Owner]:
        """The processes that these reports name."""
        return {
            (row["_host_id"], row["_process_id"])
            for row in self.groups
            if row["_process_id"] and (reports is None or row["report"] in reports)
        }


def needs_ties(groups: list[Row], files: list[Row]) -> bool:
    """Whether some GPU work names no process in a recording of several: only its calls can tell whose it is."""
    return any(
        len(recording.owners(CALLS)) > 1
        and any(row["report"] in WORK and not row["_process_id"] for row in recording.groups)
        for recording in _recordings(groups, files, []).values()
    )


def assign_ranks(groups: list[Row], files: list[Row], ties: list[Row]) -> list[Row]:
    """Give every kind of row its rank; what cannot be told apart is refused with the reason, never merged."""
    placed: list[Row] = []
    by_run: dict[str, list[Recording]] = defaultdict(list)
    for recording in _recordings(groups, files, ties).values():
        by_run[recording.run_id].append(recording)
    for run_id in sorted(by_run):
        recordings = sorted(by_run[run_id], key=lambda one: one.id)
        for recording in recordings:
            _settle_owners(recording)
            _settle_cells(recording)
        _settle_ranks(
            recordings, {row["rank"] for row in files if row["format"] == "kineto" and row["run_id"] == run_id}
        )
        placed += _make_rows(recordings)
    return placed


def _recordings(groups: list[Row], files: list[Row], ties: list[Row]) -> dict[str, Recording]:
    """Files of one recording together: an export is its own, CSV reports belong together by rank and name."""
    by_source: dict[str, Recording] = {}
    found: dict[str, Recording] = {}
    for file in sorted(files, key=lambda file: str(file["source_sha256"])):
        if file["format"] == "kineto":
            continue
        is_csv = file["format"] == "nsys_csv"
        stem = _STEM.sub("", file["file_name"]) if _STEM.search(file["file_name"]) else ""
        name = _name(file["run_id"], file["rank"], stem) if is_csv else str(file["source_sha256"])
        by_source[file["source_sha256"]] = found.setdefault(name, Recording(name, file["run_id"], file["rank"], is_csv))
    totals = {file["source_sha256"]: file["rows_count"] for file in files}
    for row in sorted(groups, key=_order):
        if row["source_sha256"] in by_source:
            recording = by_source[row["source_sha256"]]
            recording.groups.append({**row, "run_id": recording.run_id, "_file_rows": totals[row["source_sha256"]]})
    for tie in ties:
        rank = None if tie["rank"] < 0 else tie["rank"]
        known = found.get(_name(tie["run_id"], rank, tie["_stem"]), found.get(tie["_stem"]))
        if known is not None and tie["met_count"] == tie["total_count"]:
            place = (tie["_device_id"], tie["_context_id"])
            known.callers_of.setdefault(place, set()).add((tie["_caller_host"], tie["_caller"]))
    return found


def _name(run_id: str, rank: int | None, stem: str) -> str:
    """A recording of CSV reports, by a digest: names of files are private."""
    return hashlib.sha256(f"{run_id}/{rank}/{stem}".encode("utf-8", "replace")).hexdigest()[:32]


def _order(row: Row) -> tuple[Any, ...]:
    return tuple(
        row[name] for name in ("source_sha256", "report", "_host_id", "_process_id", "_device_id", "_context_id")
    )


# -- whose a row is -------------------------------------------------------------------------------------------------


def _settle_owners(recording: Recording) -> None:
    """The process of each kind of row: the one it names, the only one there is, or the one whose calls it answers."""
    callers = recording.owners(CALLS) or recording.owners()
    launchers: dict[int, set[Owner]] = defaultdict(set)
    for row in recording.groups:
        if row["report"] == LAUNCHES and row["_process_id"]:
            launchers[row["_device_id"]].add((row["_host_id"], row["_process_id"]))
    for row in recording.groups:
        row["owner"], row["rule"], row["reason"] = None, None, None
        if row["_process_id"]:
            row["owner"] = (row["_host_id"], row["_process_id"])
        elif len(callers) <= 1:
            row["owner"] = next(iter(callers), _NO_ONE)
        elif row["report"] in WORK:
            place = (row["_device_id"], row["_context_id"])
            candidates = recording.callers_of.get(place, set())
            known = launchers.get(row["_device_id"], set())
            candidates = candidates if len(candidates) == 1 else known if len(known) == 1 else candidates
            if len(candidates) == 1:
                (row["owner"],) = candidates
            else:
                _refuse(row, len(callers), len(candidates))


def _refuse(row: Row, callers_count: int, candidates_count: int) -> None:
    gpu = "a GPU without a number" if row["_device_id"] == _NO_DEVICE else f"GPU {row['_device_id']}"
    found = f"{candidates_count} of them have" if candidates_count else "none of them has"
    row["rule"] = "unknown_rank"
    row["reason"] = (
        f"its work on {gpu} names no process, {callers_count} processes made calls, and {found} calls for all of it: "
        "`nsys export --type sqlite` names the process"
    )


def _settle_cells(recording: Recording) -> None:
    """The GPU of each kind of row: the one it names, that of its context, the only one of its process, or several."""
    devices, by_context = _devices(recording)
    recording.main = _main_devices(recording, devices)
    callers = recording.owners(CALLS)
    for row in recording.groups:
        row["cell"], row["is_shared"] = None, False
        owner = row["owner"]
        if row["rule"] is not None:
            continue
        if owner is None:
            if row["report"] in _READINGS:
                row["cell"] = min(recording.main.items(), default=None)
            row["rule"] = None if row["cell"] is not None else "no_process"
        elif row["report"] in (*WORK, LAUNCHES):
            _settle_work(row, owner, devices[owner], by_context)
        elif devices.get(owner):
            devices_named = by_context.get((owner, row["_context_id"]), set())
            device = min(devices_named) if len(devices_named) == 1 else recording.main[owner]
            row["cell"], row["is_shared"] = (owner, device), len(devices_named) != 1 and len(devices[owner]) > 1
        elif not devices and (owner in callers or not callers):
            row["cell"] = (owner, _NO_DEVICE)
        else:
            row["rule"] = "idle_process"


def _devices(recording: Recording) -> tuple[dict[Owner, set[int]], dict[tuple[Owner, int], set[int]]]:
    """The GPUs on which each process worked, and those of each of its contexts."""
    devices: dict[Owner, set[int]] = {}
    by_context: dict[tuple[Owner, int], set[int]] = defaultdict(set)
    for row in recording.groups:
        if row["report"] in (*WORK, LAUNCHES) and row["owner"] is not None:
            mine = devices.setdefault(row["owner"], set())
            if row["_device_id"] != _NO_DEVICE:
                mine.add(row["_device_id"])
                by_context[row["owner"], row["_context_id"]].add(row["_device_id"])
    return {owner: mine or {_NO_DEVICE} for owner, mine in devices.items()}, by_context


def _main_devices(recording: Recording, devices: dict[Owner, set[int]]) -> dict[Owner, int]:
    """The GPU on which each process ran most of its work; the lower number where two have as much."""
    counts: dict[Cell, int] = defaultdict(int)
    for row in recording.groups:
        if row["report"] in (*WORK, LAUNCHES) and row["owner"] is not None:
            counts[row["owner"], row["_device_id"]] += row["rows_count"]
    return {owner: min(mine, key=lambda one: (-counts[owner, one], one)) for owner, mine in devices.items()}


def _settle_work(row: Row, owner: Owner, devices: set[int], by_context: dict[tuple[Owner, int], set[int]]) -> None:
    device = row["_device_id"]
    devices_named = {device} if device != _NO_DEVICE else by_context.get((owner, row["_context_id"]), set())
    devices_named = devices_named if len(devices_named) == 1 else devices
    if len(devices_named) == 1:
        row["cell"] = (owner, *devices_named)
    else:
        row["rule"] = "unknown_rank"
        row["reason"] = f"its work names no GPU, and its process used {len(devices_named)} of them"


# -- which rank a process on a GPU is -------------------------------------------------------------------------------


def _settle_ranks(recordings: list[Recording], traced: set[int]) -> None:
    """Number the processes and GPUs of a run: as NCCL says, as files are named, else in their order."""
    ranks = _Ranks(recordings)
    for recording in recordings:
        reports = {row["report"] for row in recording.groups}
        for row in recording.groups:
            rank, source, reason = ranks.of(recording, row)
            row["rank"], row["rank_source"] = rank, source
            if row["rule"] is None and row["cell"] is not None:
                is_seen_elsewhere = row["report"] == LAUNCHES and reports != {LAUNCHES}
                row["rule"] = "seen_elsewhere" if is_seen_elsewhere else None
                if rank is None:
                    row["rule"], row["reason"] = "unknown_rank", reason
                elif rank in traced or ranks.is_second(recording, row["cell"]):
                    row["rule"] = "second_profile"


class _Ranks:
    """The ranks of a run's processes and GPUs."""

    def __init__(self, recordings: list[Recording]) -> None:
        self._taken: dict[tuple[Any, ...], tuple[int, str]] = {}
        self._refused: dict[tuple[Any, ...], str] = {}
        self._exported = {
            (owner[1], device)
            for one in recordings
            if not one.is_csv
            for owner, device in _cells(one)
            if owner[1] and device != _NO_DEVICE
        }
        self._later = _find_copies(recordings)
        cells = sorted(
            {_identity(one, cell): (one, cell) for one in recordings for cell in sorted(_cells(one))}.items(),
            key=lambda item: _place(*item[1]),
        )
        cells = [(key, (one, cell)) for key, (one, cell) in cells if not self.is_second(one, cell)]
        self._by_nccl(recordings, cells)
        self._by_file(recordings, cells)
        free = iter(range(len(cells) + len(self._taken) + 1))
        numbers = {rank for rank, _ in self._taken.values()}
        for key, _ in cells:
            if key not in self._taken and key not in self._refused:
                self._taken[key] = (next(rank for rank in free if rank not in numbers), "assumed")

    def of(self, recording: Recording, row: Row) -> tuple[int | None, str | None, str | None]:
        """The rank of a kind of row, where it comes from, and why there is none."""
        if row["cell"] is None:
            return None, None, None
        if self.is_second(recording, row["cell"]):
            return None, None, None
        key = _identity(recording, row["cell"])
        if (recording.id, key) in self._later:
            return None, None, "another file has the same process on the same GPU at the same time: land one of the two"
        return (*self._taken[key], None) if key in self._taken else (None, None, self._refused[key])

    def is_second(self, recording: Recording, cell: Cell) -> bool:
        """Whether a CSV tells again what an export of the same process and GPU tells better."""
        return recording.is_csv and (cell[0][1], cell[1]) in self._exported

    def _by_nccl(self, recordings: list[Recording], cells: list[tuple[Any, tuple[Recording, Cell]]]) -> None:
        """Believe NCCL where it gives every process that it names one rank, and no two the same."""
        claims: dict[tuple[Any, ...], set[int]] = defaultdict(set)
        sizes: dict[Owner, int] = {}
        named = [
            (one, row) for one in recordings for row in one.groups if row["owner"] and row["nccl_highest"] is not None
        ]
        for _, row in named:
            sizes[row["owner"]] = max(sizes.get(row["owner"], 0), row["nccl_highest"] // _SHIFT)
        cells_of = {one.id: _cells_by_owner(one) for one in recordings}
        for one, row in named:
            mine, size = cells_of[one.id].get(row["owner"], set()), sizes[row["owner"]]
            if len(mine) == 1 and row["nccl_highest"] // _SHIFT == size:
                key = _identity(one, next(iter(mine)))
                claims[key] |= {row["nccl_highest"] - size * _SHIFT, size * _SHIFT - row["nccl_lowest"]}
        ranks = [rank for claimed in claims.values() for rank in claimed]
        if len(set(sizes.values())) == 1 and len(ranks) == len(set(ranks)) == len(claims):
            known = {key for key, _ in cells}
            self._taken |= {key: (*claimed, "nccl") for key, claimed in claims.items() if key in known}

    def _by_file(self, recordings: list[Recording], cells: list[tuple[Any, tuple[Recording, Cell]]]) -> None:
        """Believe the name of a file that holds one process on one GPU; two of one rank are not told apart."""
        claims: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        alone = {one.id for one in recordings if len(_cells(one)) == 1}
        for key, (one, _) in cells:
            if one.file_rank is not None and one.id in alone and key not in self._taken:
                claims[one.file_rank].append(key)
        numbers = {rank for rank, _ in self._taken.values()}
        for rank, keys in claims.items():
            if rank not in numbers:
                self._taken[keys[0]] = (rank, "file_name")
                for key in keys[1:]:
                    self._refused[key] = (
                        f"two recordings of different processes are named rank {rank}: land them as two runs"
                    )


def _cells(recording: Recording) -> set[Cell]:
    return {row["cell"] for row in recording.groups if row["cell"] is not None}


def _cells_by_owner(recording: Recording) -> dict[Owner, set[Cell]]:
    found: dict[Owner, set[Cell]] = defaultdict(set)
    for cell in _cells(recording):
        found[cell[0]].add(cell)
    return found


def _identity(recording: Recording, cell: Cell) -> tuple[Any, ...]:
    """What makes a process on a GPU the same in several files: its host, where exports name it."""
    (host, process), device = cell
    is_named = bool(host) and not host.startswith(_UNKNOWN_HOST)
    return (host, process, device) if is_named else (recording.id, host, process, device)


def _place(recording: Recording, cell: Cell) -> tuple[Any, ...]:
    """Where a cell stands among those that are numbered in order: processes on their main GPU first."""
    (host, process), device = cell
    is_side = recording.main.get(cell[0], device) != device
    return is_side, host, device, int(process) if process.isascii() and process.isdigit() else -1, process, recording.id


def _find_copies(recordings: list[Recording]) -> set[tuple[str, tuple[Any, ...]]]:
    """The cells of which a later file tells a time that an earlier one tells too."""
    extents: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    again: set[tuple[str, tuple[Any, ...]]] = set()
    for recording in recordings:
        mine: dict[tuple[Any, ...], tuple[int, int]] = {}
        for row in recording.groups:
            if row["cell"] is None or row["report"] not in WORK or row["first_ns"] is None or row["last_ns"] is None:
                continue
            key = _identity(recording, row["cell"])
            first, last = mine.get(key, (row["first_ns"], row["last_ns"]))
            mine[key] = (min(first, row["first_ns"]), max(last, row["last_ns"]))
        for key, (first, last) in mine.items():
            if any(first < end and start < last for start, end in extents[key]):
                again.add((recording.id, key))
            else:
                extents[key].append((first, last))
    return again


def _make_rows(recordings: list[Recording]) -> list[Row]:
    """The rows as the table declares them, and as other rows are joined with them."""
    named = {row["owner"][0] for one in recordings for row in one.groups if row["owner"]}
    hosts = {host: place for place, host in enumerate(sorted(named - {""}))}
    places: dict[str, int] = defaultdict(int)
    placed = []
    for recording in recordings:
        for row in recording.groups:
            (host, process) = row["owner"] or _NO_ONE
            is_named = bool(host) and not host.startswith(_UNKNOWN_HOST)
            clock = host if is_named and not recording.is_csv and row["first_ns"] is not None else recording.id
            row |= {
                "ordinal": places[row["source_sha256"]],
                "host_ordinal": hosts.get(host),
                "process_id": process or None,
                "device_id": None if row["_device_id"] == _NO_DEVICE else row["_device_id"],
                "context_id": None if row["_context_id"] == _NO_DEVICE else row["_context_id"],
                "clock_id": hashlib.sha256(f"{recording.run_id}/{clock}".encode()).hexdigest()[:16],
                "_recording": f"{recording.id}/{host}/{process}",
                "_fate": row["rule"],
                "_is_shared": row["is_shared"],
            }
            row["rank"] = None if row["rule"] in {"unknown_rank", "idle_process", "no_process"} else row["rank"]
            places[row["source_sha256"]] += 1
            placed.append(row)
    return placed
