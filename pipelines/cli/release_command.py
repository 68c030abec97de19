"""The command `teetotal release`; what it needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from pipelines.settings import Settings


@click.command()
@click.option("--epsilon", metavar="E", required=True, help="What this release costs of the budget, such as 0.5.")
@click.option("--budget", metavar="B", help="What all releases may cost together; set once, with the first.")
@click.option("--by", default="regime", show_default=True, help="Any of regime, model_class, gpu.")
@click.option("--metrics", default="slowdown,overhead", show_default=True, help="What is told of each group.")
@click.option(
    "--runs-per-tenant", "most", type=click.IntRange(1, 1000), default=4, show_default=True, help="Runs that count."
)
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]), default="text", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write it there instead of the terminal.")
@click.pass_obj
def release(
    chosen: Settings,
    epsilon: str,
    budget: str | None,
    by: str,
    metrics: str,
    most: int,
    form: str,
    out: Path | None,
) -> None:
    """Write overhead statistics across tenants with differential privacy, within a budget (docs/release.md)."""
    from lake.errors import EvidenceRejected
    from lake.privacy_ledger import parse_epsilon
    from lake.private_files import write_private
    from pipelines.cli import release as releases

    asked = releases.Asked(
        parse_epsilon(epsilon, "--epsilon"),
        None if budget is None else parse_epsilon(budget, "--budget"),
        tuple(word.strip() for word in by.split(",") if word.strip()),
        tuple(word.strip() for word in metrics.split(",") if word.strip()),
        most,
    )
    if out is not None and not out.absolute().parent.is_dir():
        raise EvidenceRejected(f"{out.parent} is no directory", "nothing was spent: name another --out")
    made = releases.make_release(session.open_built_lake(chosen), asked)
    text = releases.format_release(made, form)
    if out is None:
        click.echo(text, nl=False)
        return
    write_private(out, text.encode(), "the release", 0o644)
    session.print_lines(f"{out}: release {made['release']}, {made['budget_left']} of {made['budget']} left")
