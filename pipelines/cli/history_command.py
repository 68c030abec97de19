"""The command `teetotal history`; what it needs is imported when it runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lake.store import Lake
    from pipelines.settings import Settings

    Row = dict[str, Any]


@click.command()
@click.option("--workload", metavar="TEXT", help="Only workloads that hold this: a model, a regime, gpu=…, their id.")
@click.option("--run", "run_id", metavar="RUN", help="Only the workload of this run.")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.pass_obj
def history(chosen: Settings, workload: str | None, run_id: str | None, form: str) -> None:
    """Show each workload over time: its step, its versions, where the level changed and what else changed there."""
    session.announce_work(f"reading {chosen.lake}")
    import pyarrow as pa

    from gold.history import TABLE
    from pipelines.cli import show

    rows = find_rows(session.open_built_lake(chosen), workload, run_id)
    if form == "table":
        print_histories(rows, session.console())
    else:
        show.write_rows(pa.Table.from_pylist(rows, schema=TABLE.arrow_schema).to_reader(), form, sys.stdout.buffer)


def find_rows(lake: Lake, workload: str | None = None, run_id: str | None = None) -> list[Row]:
    """The rows of some workloads, each in the order of recording; a name that none has is refused."""
    from gold.history import TABLE
    from lake.errors import EvidenceRejected, nearest

    rows = lake.scan(TABLE).collect().to_dicts()
    if not rows:
        raise EvidenceRejected(
            "the lake has no history yet: no run that names a model has its gold tables",
            "land runs whose run.toml says `model` and `recorded_at`, then `teetotal run`",
        )
    rows.sort(key=lambda row: (row["workload_id"], row["session_number"] is None, row["session_number"] or 0))
    if run_id is not None:
        known = {row["run_id"]: row["workload_id"] for row in rows}
        if run_id not in known:
            raise EvidenceRejected(f"no run {run_id[:160]!r} has a history", nearest(run_id[:160], known))
        rows = [row for row in rows if row["workload_id"] == known[run_id]]
    if workload is not None:
        asked = workload.casefold()
        held = [row for row in rows if asked in f"{row['workload_id']}|{row['regime']}|{row['workload']}".casefold()]
        if not held:
            names = sorted({part for row in rows for part in row["workload"].split("|") if part.startswith("model=")})
            raise EvidenceRejected(f"no workload holds {workload[:160]!r}", f"there are {', '.join(names)[:400]}")
        rows = held
    return rows


def print_histories(rows: Sequence[Row], console: Console) -> None:
    """Each workload for a person: a line per run, then what is concluded."""
    from itertools import groupby

    from pipelines.cli.show import format_grid
    from report.histories import name_workload
    from report.terminal_text import make_printable
    from report.units import format_change, format_duration

    for _, of in groupby(rows, key=lambda row: row["workload_id"]):
        members = list(of)
        console.print(
            f"{make_printable(name_workload(members[0]))} ({members[0]['workload_id']})", style="bold", markup=False
        )
        cells = [
            {
                "run": row["run_id"],
                "recorded": (row["recorded_at"] or "not said")[:16],
                "step": format_duration(row["step_ns"]),
                "overhead": format_change(row["overhead_ns"]) if row["baseline_run_id"] else "",
                **{name: row[f"{name}_version"] or "" for name in ("driver", "vbios", "cuda", "torch", "nccl")},
                "": "◀ change" if row["is_change_point"] else "",
            }
            for row in members
        ]
        filled = [name for name in cells[0] if any(row[name] for row in cells)]
        format_grid(console, filled, cells, ("step", "overhead"))
        for line in _list_conclusions(members):
            console.print(f"  {make_printable(line)}", highlight=False, markup=False, soft_wrap=True)
        console.print()
    console.print("steps are measured; docs/history.md says how changes are found and how often wrongly", style="dim")


def _list_conclusions(members: Sequence[Row]) -> list[str]:
    changes = [f"{row['run_id']}: {row['verdict']}" for row in members if row["is_change_point"]]
    uncounted = [f"{row['run_id']} does not count: {row['reason']}" for row in members if row["reason"]]
    return [*(changes or [members[0]["verdict"]]), *uncounted]
