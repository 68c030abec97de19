"""Checkpoints of a lake's log, and bundles with everything that it takes to check one run offline."""

from __future__ import annotations

import base64
import json
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.exceptions import NotFoundError

from assets.build.catalogue import TABLES
from lake.cut_off import fetch_object
from lake.errors import EvidenceRejected, LakeError
from lake.lineage import check_evidence
from lake.lineage.history import read_history
from lake.lineage.keys import load_trust
from lake.lineage.log import StatementLog
from lake.lineage.merkle import prove_consistency, prove_inclusion
from lake.lineage.notes import read_checkpoint
from lake.lineage.statements import ROWS, name_partition
from lake.locations import report_unreachable
from lake.tables import Scope
from pipelines.cli.session import open_signed_lake, require_runs
from pipelines.cli.verification import SIGNED_TABLES
from pipelines.cli.whole_files import open_whole
from pipelines.witnesses import countersign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lake.lineage.history import History
    from lake.store import Lake
    from pipelines.settings import Settings


def find_checkpoint(lake: Lake, chosen: Settings) -> str:
    """The signed checkpoint of a lake's log, with all commits in it; as it stands where nobody signs here."""
    can_sign = chosen.signing is not None and (
        chosen.signing.command or (chosen.signing.key_path or chosen.trust).exists()
    )
    state = open_signed_lake(chosen).log_statements() if can_sign else None
    state = state or StatementLog(lake.place).read_state([one.key for one in load_trust(chosen.trust).keys])
    if not state.size:
        raise EvidenceRejected(
            f"no signed statement in {lake.place}", "`teetotal run --full` makes and signs what is there again"
        )
    return state.checkpoint


def countersign_checkpoint(
    lake: Lake, chosen: Settings, checkpoint: str, urls: Sequence[str], tell_failure: Callable[[LakeError], object]
) -> str:
    """The checkpoint with what witnesses add to it; one that adds nothing is told, and the others are asked."""
    hashes, trust = StatementLog(lake.place).read().hashes, load_trust(chosen.trust)
    for url in urls:
        try:
            checkpoint = countersign(checkpoint, hashes, url, trust)
        except LakeError as error:
            tell_failure(error)
    return checkpoint


def write_bundle(
    lake: Lake,
    chosen: Settings,
    run_id: str,
    out: Path,
    tiers: Sequence[str],
    *,
    only_run: bool,
    since: str | None = None,
) -> int:
    """Write all that it takes to check one run offline; gives the number of its statements.

    What the lake holds is written as it is: whether that is what was signed is for the verifier to say.
    """
    require_runs(lake, [run_id], TABLES.values())
    checkpoint = find_checkpoint(lake, chosen)
    history = read_history(lake.place, load_trust(chosen.trust), [table.full_name for table in SIGNED_TABLES])
    held = [
        (table, [f"{table.path}/{path}" for path in snapshot.files(run_id)])
        for table, snapshot in ((table, lake.snapshot(table)) for table in SIGNED_TABLES)
        if table.scope in {Scope.RUN, Scope.PAIR}
    ]
    size = int(checkpoint.split("\n")[1])
    hashes = history.leaves.hashes[:size]
    places = sorted(place for place in _find_places(history, run_id) if place < size)
    content = {
        "version": 1,
        "run": run_id,
        "checkpoint": checkpoint,
        "data": list(tiers),
        "since": None if since is None else _prove_since(hashes, since),
        "partitions": [
            {"name": name_partition(table.full_name, run_id), "files": files} for table, files in held if files
        ],
        "statements": [
            {
                "index": place,
                "line": history.leaves.lines[place].decode(),
                "proof": [base64.b64encode(node).decode() for node in prove_inclusion(hashes, place)],
            }
            for place in places
        ],
    }
    with _open_bundle(out) as add:
        add("evidence.json", json.dumps(content, indent=1).encode())
        add("check_evidence.py", Path(check_evidence.__file__).read_bytes())
        if not only_run:
            add("log.jsonl", b"".join(line + b"\n" for line in history.leaves.lines[:size]))
        for path in (path for table, files in held if table.tier in tiers for path in files):
            try:
                add(f"data/{path}", fetch_object(lake.place.store, path))
            except (FileNotFoundError, NotFoundError):
                continue  # the verifier says so
    return len(places)


def _prove_since(hashes: Sequence[bytes], since: str) -> dict[str, object]:
    """What shows that the log goes on from a checkpoint that somebody kept."""
    checkpoint, _ = read_checkpoint(since, (), "the kept checkpoint")
    before = min(checkpoint.size, len(hashes))
    proof = prove_consistency(hashes, before)
    return {"size": checkpoint.size, "proof": [base64.b64encode(node).decode() for node in proof]}


def _find_places(history: History, run_id: str) -> set[int]:
    """The statements of a run's partitions, and of all that they were made from."""
    waiting = [entry for table in SIGNED_TABLES for entry in history.list_said(table.full_name, run_id)]
    found = set() if history.inventory_place is None else {history.inventory_place}
    while waiting:
        entry = waiting.pop()
        if entry.place is None or entry.place in found:
            continue
        found.add(entry.place)
        links = (material for material in entry.statement.materials if material.algorithm == ROWS)
        names = ((*material.name.split("/", 1), material.digest) for material in links)
        waiting += [one for table, partition, rows in names if (one := history.find_said(table, partition, rows))]
    return found


@contextmanager
def _open_bundle(out: Path) -> Iterator[Callable[[str, bytes], object]]:
    """A way to add files: to a zip where the name says so, else to a directory that is not there yet."""
    if out.suffix == ".zip":
        with open_whole(out, "the bundle") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            yield archive.writestr
        return
    if out.exists():
        raise EvidenceRejected(f"{out} is there already", "name a directory that is not, or a file that ends in .zip")

    def add(name: str, data: bytes) -> None:
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    with report_unreachable(f"{out} could not be written"):
        yield add
