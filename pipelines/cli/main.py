"""The `teetotal` command: one verb a sub-command, one line an error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import places, session, stopping
from pipelines.cli.command_group import SectionedGroup
from pipelines.cli.compare_commands import compare, export
from pipelines.cli.failures import FAILED
from pipelines.cli.forecast_commands import validate, what_if
from pipelines.cli.forget_command import forget
from pipelines.cli.gate_commands import baseline, gate
from pipelines.cli.history_command import history
from pipelines.cli.key_commands import keys
from pipelines.cli.land_commands import close, land
from pipelines.cli.lineage_commands import anchor, evidence, signing
from pipelines.cli.plan_command import plan
from pipelines.cli.release_command import release
from pipelines.cli.run_commands import demo, run
from pipelines.cli.verify_command import verify
from pipelines.cli.watch_command import watch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pyarrow import RecordBatchReader

    from pipelines.settings import Settings

_FORMATS = click.Choice(["table", "csv", "json", "parquet"])
_FORMAT = click.option("--format", "form", type=_FORMATS, default="table", show_default=True)


@click.group(
    cls=SectionedGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=places.list_options(),
    epilog="Options that choose places may stand before the command or after it.",
)
@click.version_option(package_name="teetotal")
@click.pass_context
def main(ctx: click.Context) -> None:
    """What does confidential computing cost this training run, and where does the time go?"""
    from pipelines.settings import settings

    ctx.obj = ctx.obj or settings()


main.add_command(land)
main.add_command(close)
main.add_command(watch)
main.add_command(run)
main.add_command(demo)
main.add_command(keys)
main.add_command(verify)
main.add_command(anchor)
main.add_command(evidence)
main.add_command(signing)
main.add_command(forget)
main.add_command(what_if)
main.add_command(validate)
main.add_command(compare)
main.add_command(export)
main.add_command(gate)
main.add_command(baseline)
main.add_command(plan)
main.add_command(history)
main.add_command(release)


@main.command()
@click.argument("run_ids", metavar="[RUN]…", nargs=-1)
@click.option("--notes", is_flag=True, help="All notes of all runs, also where many are up to date.")
@click.pass_obj
def status(chosen: Settings, run_ids: tuple[str, ...], notes: bool) -> None:
    """Show which runs are up to date, stale or new, and what was kept, merged or rejected, and why."""
    session.announce_work(f"looking at the runs in {chosen.landing}")
    from lake.attestation_keys import load_keys
    from lake.landing_zone import LandingZone
    from pipelines.cli import show
    from pipelines.cli import status as states
    from report.terminal_text import make_printable

    zone = LandingZone(chosen.landing, chosen.seals)
    keys = load_keys(chosen.attestation_keys)
    found = states.collect_status(session.open_named_lake(chosen), zone, keys, chosen.margin, run_ids, all_notes=notes)
    if not found.lines and not found.notes:
        session.print_lines(
            f"nothing in {chosen.landing} and no lake in {chosen.lake} yet: land a run with `teetotal land`, "
            "or try `teetotal demo`"
        )
        return
    console = session.console()
    if found.lines:
        show.format_counts(console, found.lines, 3)
    for note in found.notes:
        console.out(make_printable(note), highlight=False)
    if found.has_faults:
        raise SystemExit(FAILED)


@main.command("show")
@click.argument("table")
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="Only this run; may be given again.")
@click.option("--columns", metavar="A,B,…", help="Only these columns.")
@_FORMAT
@click.option("--limit", type=click.IntRange(min=0), help="At most so many rows (20 for a table; 0: all).")
@click.option("--reveal", is_flag=True, help="Open sealed columns; needs the keyring.")
@click.option("--plot", is_flag=True, help="Draw a small chart instead, of a table that has one.")
@click.pass_obj
def show_table(
    chosen: Settings,
    table: str,
    run_ids: tuple[str, ...],
    columns: str | None,
    form: str,
    limit: int | None,
    reveal: bool,
    plot: bool,
) -> None:
    """Print a table, for example `teetotal show bronze.runs`."""
    from assets.build import catalogue
    from bronze import runs
    from pipelines.cli import show, views

    declared = None if table == views.TIMELINE else catalogue.table(table)
    lake = session.open_built_lake(chosen)
    wanted = [name.strip() for name in columns.split(",")] if columns else []
    most = (20 if form == "table" else None) if limit is None else limit or None
    if declared is None:
        if plot or reveal:
            raise click.UsageError(f"{table} is a view: it has no chart and nothing sealed to reveal")
        session.require_runs(lake, run_ids, [runs.TABLE])
        with views.open_timeline(lake, run_ids, wanted, most) as (rows, total):
            _print_rows(rows, total, form)
        return
    session.require_runs(lake, run_ids, [runs.TABLE, declared])
    if plot:
        if columns or reveal or form != "table":
            raise click.UsageError("--plot draws a table's own chart: it takes no --columns, --format or --reveal")
        for line in show.plot_table(lake, declared, run_ids, limit or None, session.console().width):
            session.print_lines(line)
        return
    rows = show.read_rows(lake, declared, run_ids, wanted, most, reveal=reveal)
    total = show.count_rows(lake, declared, run_ids) if form == "table" else 0
    _print_rows(rows, total, form, () if reveal else [column.name for column in declared.sealed])


def _print_rows(rows: RecordBatchReader, total: int, form: str, sealed: Sequence[str] = ()) -> None:
    """Rows in the form that was asked for."""
    from pipelines.cli import show

    if form == "table":
        show.draw_table(rows, total, session.console(), sealed)
    else:
        show.write_rows(rows, form, sys.stdout.buffer)


@main.command("query")
@click.argument("sql", required=False)
@click.option("--file", metavar="F", help="Take the statement from a file.")
@click.option(
    "--param",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="The value of $NAME: a number, true or false, else text; NAME:text=VALUE is text whatever it looks like.",
)
@_FORMAT
@click.option("--limit", type=click.IntRange(min=0), help="At most so many rows (20 for a table; 0: all).")
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=60, show_default=True, help="Seconds to answer in; 0: no limit."
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="DuckDB's most memory, as 500MB (TEETOTAL_QUERY_MEMORY, default 4GB or half of the machine's).",
)
@click.option(
    "--engine", type=click.Choice(["duckdb", "spark"]), default="duckdb", show_default=True, help="Engine that answers."
)
@click.pass_obj
def query_lake(
    chosen: Settings,
    sql: str | None,
    file: str | None,
    given: tuple[str, ...],
    form: str,
    limit: int | None,
    timeout: float,
    memory: str | None,
    engine: str,
) -> None:
    """Ask all tables in SQL, for example `teetotal query 'SELECT run_id, regime FROM bronze.runs'`.

    SQL is one read-only statement in DuckDB's dialect, or - for standard input. Values are bound, never pasted:
    `WHERE run_id = $run` with `--param run=ID`. Tables are bronze.x, silver.x and gold.x (`SHOW ALL TABLES`). Sealed
    columns give tokens (`show --reveal` opens them). Files, settings and extensions are out of reach. With
    `--engine spark` the dialect is Spark's, and values are named `:run`.
    """
    from pipelines.cli.query import parameters, query, text_of
    from pipelines.settings import parse_bytes, query_environment

    text = text_of(sql, None if file is None else Path(file), sys.stdin.buffer)
    most = (20 if form == "table" else None) if limit is None else limit or None
    lake = session.open_built_lake(chosen)
    if engine == "spark":
        from pipelines.cli.spark_query import spark_query

        asked: AbstractContextManager[Any] = spark_query(lake, chosen.spark, text, parameters(given), timeout or None)
    else:
        asked = query(
            chosen.lake,
            text,
            parameters(given),
            timeout or None,
            memory_bytes=parse_bytes(memory, "--memory") if memory else chosen.query_memory_bytes,
            environment=query_environment(),
        )
    with asked as answer:
        from pipelines.cli import show  # noqa: F401 - while the process that answers imports what it needs

        if form == "table":
            rows, total = answer.first(most)
            _print_rows(rows, total, form, answer.sealed)
        else:
            _print_rows(answer.rows(most), 0, form)


@main.command("report")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("teetotal-report.html"),
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--run", "run_ids", multiple=True, metavar="ID", help="Only this run and its baseline; may be given again."
)
@click.pass_obj
def report_page(chosen: Settings, out: Path, run_ids: tuple[str, ...]) -> None:
    """Write the answers as one HTML file that needs no network: verdicts, figures, reasons, provenance."""
    session.announce_work(f"reading {chosen.lake}, and drawing its figures")
    from lake.lineage.keys import load_trust
    from pipelines.cli import report

    made = report.build_page(session.open_built_lake(chosen), run_ids, load_trust(chosen.trust))
    size = report.write_page(out, made.html)
    session.print_lines(f"{out}: {made.runs} runs, {made.figures} figures, {size / 1e6:.1f} MB")
    for text in (*made.failed, *made.unchecked):
        session.print_lines(f"teetotal: {text}", err=True)
    if made.failed:
        raise SystemExit(FAILED)


@main.command()
@click.option("--port", type=click.IntRange(0, 65535), default=3000, show_default=True, help="0 picks a free one.")
@click.option("--only", type=click.Choice(["server", "daemon"]), help="One of the two, where each has a service.")
@click.pass_obj
def ui(chosen: Settings, port: int, only: str | None) -> None:
    """Watch and launch in the browser: Dagster's web server on this machine, and the daemon behind it."""
    from pipelines.cli.ui import serve

    stopping.wait_for_children()
    serve(chosen, port, session.print_lines, only=only)
