"""The declared key of every bronze table is one: no two rows of a run share it, whatever the run held."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from assets.build.catalogue import TABLES
from tests.support.recording_statements import envelop
from tests.support.traces import GOOD

if TYPE_CHECKING:
    from tests.conftest import LandFiles


def test_keys_are_unique_in_every_bronze_table(land_files: LandFiles) -> None:
    traces = {"good.json": GOOD, "second.json": GOOD, "cut.json.gz": gzip.compress(GOOD)[:-40], "notes.txt": b"hello"}
    records = {
        "calls.csv": b"Start (ns),Duration (ns),Name,Tid\n" + b"1,2,f,9\n" * 3,
        "epochs.csv": b"epoch,img/s\n1,2\n1,2\n",
        "stdout.log": b"h:1:2 [0] NCCL INFO CC On, workFifoBytes 0\n" * 2 + b":::MLLOG {}\n" * 2,
        "sweep.csv": b"size,bw\n64,1.5\n64,1.5\n",
        "scrape.txt": b"DCGM_FI_X 1\n" * 2,
        "token.json": b'[["JWT", "a"], {"GPU-0": "a"}]',
        "span_kinds.toml": b'[[pattern]]\nid = "a"\nkind = "collective"\nname = "all_to_all"\n',
        "recording.intoto.json": envelop(),
    }
    land_files({**traces, **records})
    for table in (table for table in TABLES.values() if table.tier == "bronze"):
        rows = land_files.lake.scan(table).collect()
        assert len(rows), table.full_name
        assert rows.select(table.row_key).is_unique().all(), table.full_name
