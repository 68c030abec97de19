"""The `teetotal` command: one verb a sub-command, one line an error."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lake.errors import LakeError
from pipelines.cli import places, session
from pipelines.cli.compare_commands import compare, export
from pipelines.cli.failures import FAILED, INTERRUPTED, require_resources, tell_failure
from pipelines.cli.forecast_commands import validate, what_if
from pipelines.cli.gate_commands import baseline, gate
from pipelines.cli.key_commands import keys
from pipelines.cli.plan_command import plan
from pipelines.cli.verify_command import verify

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pipelines.cli.run import Outcome
    from pipelines.settings import Settings

# Written out: asking `lake.engines` would import every engine for `--help`. A test holds the two equal.
_ENGINES = ("polars", "duckdb", "spark")
_FORMATS = click.Choice(["table", "csv", "json", "parquet"])
_FORMAT = click.option("--format", "form", type=_FORMATS, default="table", show_default=True)


class _Group(click.Group):
    """Turns every error into one line and an exit status; its commands take the options that choose places."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command."""
        super().add_command(places.accept_places(cmd), name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error that we can explain is told, not traced."""
        try:
            require_resources()
            return super().invoke(ctx)
        except LakeError as error:
            ctx.exit(tell_failure(error))
        except BrokenPipeError:
            sys.stderr.close()  # the reader of our output has seen enough
            ctx.exit(0)
        except KeyboardInterrupt:
            click.echo("teetotal: stopped; what was committed stays, and `teetotal run` goes on from there", err=True)
            ctx.exit(INTERRUPTED)

    def main(self, *arguments: Any, **named: Any) -> Any:
        """Run the command line; whatever click and we did not expect is told as well, with the next step."""
        try:
            return super().main(*arguments, **named)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of an engine written in Rust is no Exception
            sys.exit(tell_failure(error))


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=places.list_options(),
    epilog="Options that choose places may stand before the command or after it.",
)
@click.version_option(package_name="teetotal")
@click.pass_context
def main(ctx: click.Context) -> None:
    """What does confidential computing cost this training run, and where is it paid?"""
    from pipelines.settings import settings

    ctx.obj = ctx.obj or settings()


main.add_command(keys)
main.add_command(verify)
main.add_command(what_if)
main.add_command(validate)
main.add_command(compare)
main.add_command(export)
main.add_command(gate)
main.add_command(baseline)
main.add_command(plan)


@main.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--run-id", metavar="ID", help="Name of the run; else taken from the files' names.")
@click.option("--regime", metavar="R", help="How links are secured: cc_off, hopper_spt_cc, sw_per_hop_aesgcm, …")
@click.option("--baseline", metavar="ID", help="The baseline without a TEE.")
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="Any field of run.toml (docs/manifest.md).")
@click.pass_obj
def land(
    chosen: Settings,
    paths: tuple[Path, ...],
    run_id: str | None,
    regime: str | None,
    baseline: str | None,
    given: tuple[str, ...],
) -> None:
    """Put the files of one run (or a directory of them) into the landing zone."""
    from lake.landing_zone import LandingZone
    from pipelines.cli import land

    fields = dict(_pair(text) for text in given)
    fields |= {name: value for name, value in (("regime", regime), ("baseline", baseline)) if value}
    name, manifest, count = land.land_files(
        LandingZone(chosen.landing), paths, chosen.limits, run_id=run_id, given=fields
    )
    session.print_lines(f"landed {name}: {count} files in {chosen.landing}")
    for key, value in manifest.claims.items():
        session.print_lines(f"  {key} = {value}")
    session.print_lines("next: teetotal run")


@main.command()
@click.argument("run_ids", nargs=-1, metavar="[RUN_ID]…")
@click.option(
    "--engine",
    type=click.Choice(_ENGINES),
    default=_ENGINES[0],
    show_default=True,
    help="Engine that computes the tables.",
)
@click.option("--full", is_flag=True, help="Rebuild tables that are already up to date, pairs and comparisons too.")
@click.option(
    "--check/--no-check", default=True, show_default=True, help="Check what was built against its declarations."
)
@click.option("--to", multiple=True, metavar="TABLE", help="Only this table and what it needs; may be given again.")
@click.pass_obj
def run(chosen: Settings, run_ids: tuple[str, ...], engine: str, full: bool, check: bool, to: tuple[str, ...]) -> None:
    """Bring into the lake what is new or has changed (all runs by default)."""
    outcomes = _run(chosen, run_ids, engine=engine, full=full, check=check, to=to)
    if not outcomes:
        session.print_lines(f"no runs in {chosen.landing}: land one with `teetotal land`, or try `teetotal demo`")
    if any(outcome.fault for outcome in outcomes):
        raise SystemExit(FAILED)


@main.command()
@click.pass_obj
def status(chosen: Settings) -> None:
    """Show which runs are up to date, stale or new, and what was kept, merged or rejected, and why."""
    from lake.attestation_keys import load_keys
    from lake.landing_zone import LandingZone
    from pipelines.cli import show
    from pipelines.cli import status as states
    from report.terminal_text import make_printable

    found = states.collect_status(
        session.open_lake(chosen), LandingZone(chosen.landing), load_keys(chosen.attestation_keys), chosen.margin
    )
    if not found.lines and not found.notes:
        session.print_lines(
            f"nothing in {chosen.landing} and no lake in {chosen.lake} yet: land a run with `teetotal land`, "
            "or try `teetotal demo`"
        )
        return
    console = session.console()
    if found.lines:
        names = list(found.lines[0])
        show.format_grid(console, names, found.lines, names[3:])
    for note in found.notes:
        console.print(make_printable(note), highlight=False, markup=False, soft_wrap=True)
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
    from pipelines.cli import show

    declared = catalogue.table(table)
    lake = session.open_built_lake(chosen)
    session.require_runs(lake, run_ids, [runs.TABLE, declared])
    if plot:
        if columns or reveal or form != "table":
            raise click.UsageError("--plot draws a table's own chart: it takes no --columns, --format or --reveal")
        for line in show.plot_table(lake, declared, run_ids, limit or None, session.console().width):
            session.print_lines(line)
        return
    wanted = [name.strip() for name in columns.split(",")] if columns else []
    most = (20 if form == "table" else None) if limit is None else limit or None
    rows = show.read_rows(lake, declared, run_ids, wanted, most, reveal=reveal)
    if form != "table":
        show.write_rows(rows, form, sys.stdout.buffer)
        return
    total = show.count_rows(lake, declared, run_ids)
    show.draw_table(rows, total, session.console(), () if reveal else [column.name for column in declared.sealed])


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
        from pipelines.cli import show  # while the process that answers imports what it needs

        if form == "table":
            rows, total = answer.first(most)
            show.draw_table(rows, total, session.console(), answer.sealed)
        else:
            show.write_rows(answer.rows(most), form, sys.stdout.buffer)


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
    from pipelines.cli import report

    made = report.build_page(session.open_built_lake(chosen), run_ids)
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

    serve(chosen, port, session.print_lines, only=only)


@main.command()
@click.option("--all", "is_all", is_flag=True, help="Take all forty bundled runs, not two pairs with their repeats.")
@click.pass_obj
def demo(chosen: Settings, is_all: bool) -> None:
    """Land bundled recordings, run the pipeline on them, and print what the sealing cost and where."""
    from lake.landing_zone import LandingZone
    from pipelines.cli import demo as bundled
    from pipelines.cli import verdicts

    run_ids = bundled.land_samples(LandingZone(chosen.landing), ("",) if is_all else bundled.FIRST_LOOK)
    outcomes = _run(chosen, run_ids)
    if any(outcome.fault for outcome in outcomes):
        raise SystemExit(FAILED)
    for line in verdicts.format_verdicts(session.open_lake(chosen), run_ids):
        session.print_lines(line)
    closing = f"""
Recorded on one NVIDIA H200 with confidential computing off; the `sealed` runs seal every ring hop in software
(regime sw_per_hop_aesgcm), the `plain` runs take the same path without crypto. samples/README.md says more.

The tables are a Delta lake in {chosen.lake}. Look around:
  {sys.argv[0]} status
  {sys.argv[0]} report
  {sys.argv[0]} show gold.step_overhead --plot
  {sys.argv[0]} show gold.time_breakdown --run bert-base-sealed-w2
  {sys.argv[0]} show silver.crossings --run bert-base-sealed-w2"""
    for line in closing.split("\n"):
        session.print_lines(line)


def _run(
    chosen: Settings,
    run_ids: Sequence[str],
    *,
    engine: str = _ENGINES[0],
    full: bool = False,
    check: bool = True,
    to: Sequence[str] = (),
) -> list[Outcome]:
    """Run, and say in a line what became of each run."""
    from pipelines.cli.progress import ProgressListener, format_outcome, show_warnings
    from pipelines.cli.run import run as run_all

    tell = partial(session.print_lines, err=True)
    with show_warnings():
        outcomes = run_all(chosen, ProgressListener(), run_ids, engine=engine, full=full, check=check, to=to, tell=tell)
    for outcome in outcomes:
        session.print_lines(format_outcome(outcome), err=outcome.fault is not None)
    return outcomes


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    return key, value
