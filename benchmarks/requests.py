"""Requests and bytes of commands on a lake in an object store, counted by a proxy before moto's server."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import CACHE, ROOT, table
from benchmarks.object_store import StoreProxy, make_bucket, serve_s3

# The first makes all tables; the second is one more run in a lake that is there.
_RUNS = ("bert-base-plain-w2-again1", "resnet50-native-w2")
_KINDS = ("LIST", "GET", "HEAD", "PUT", "POST")


def count_requests() -> str:
    """What each command asks of the store."""
    steps: list[tuple[str, tuple[str, ...]]] = []
    for place, run_id in enumerate(_RUNS):
        what = "one more run" if place else "into an empty lake"
        steps.append((f"land {run_id}", ("land", str(ROOT / "samples" / run_id), "--run-id", run_id)))
        steps.append((f"run, {what}", ("run", run_id)))
    steps += [
        ("run again, nothing new", ("run",)),
        ("status", ("status",)),
        ("query", ("query", "SELECT count(*) FROM gold.step_times")),
        ("verify", ("verify",)),
    ]
    rows = []
    with (
        serve_s3() as port,
        StoreProxy(port).serving() as proxy,
        tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE if CACHE.exists() else None) as folder,
    ):
        bucket = make_bucket(port, "counted")
        known = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TEETOTAL_", "DAGSTER_"))},
            **proxy.options,
            "TEETOTAL_LAKE": f"{bucket}/site/lake",
            "TEETOTAL_LANDING": f"{bucket}/site/landing",
            "TEETOTAL_KEYRING": f"{folder}/keyring.json",
            "TEETOTAL_SIGNING_KEY": f"{folder}/signing-key.pem",
        }
        _run(Path(folder), known, "keys", "create")
        _run(Path(folder), known, "signing", "create")
        for name, words in steps:
            proxy.reset_counts()
            _run(Path(folder), known, *words)
            counts = [f"{proxy.requests[kind]:,}" for kind in _KINDS]
            total = sum(proxy.requests.values())
            rows.append(
                [name, f"{total:,}", *counts, f"{proxy.sent_bytes / 1e6:.1f}", f"{proxy.received_bytes / 1e6:.1f}"]
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return "\n".join(
        ["Requests to an object store:", "", table(("command", "requests", *_KINDS, "MB sent", "MB received"), rows)]
    )


def _run(folder: Path, known: dict[str, str], *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "teetotal", *words], cwd=folder, env=known, check=True, stdout=subprocess.DEVNULL
    )
