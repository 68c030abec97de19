"""The commands `teetotal keys …`: list, create, recipient, rotate, adopt; what they need is imported when they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from pipelines.settings import Settings


@click.group()
def keys() -> None:
    """The keys that sealed columns are opened with; no command prints a secret."""


@keys.command("list")
@click.pass_obj
def list_keys(chosen: Settings) -> None:
    """Show each key: when it was made, which one is active, and in how many partitions its tokens are."""
    from lake.keyring_guard import KeyringGuard
    from pipelines.cli import keys as keyrings
    from pipelines.cli import show

    lines = keyrings.list_keys(session.open_lake(chosen), KeyringGuard(chosen.lake, chosen.keyring).peek())
    show.format_grid(session.console(), list(lines[0]), lines, ["partitions"])


@keys.command("create")
@click.pass_obj
def create_keys(chosen: Settings) -> None:
    """Make a new keyring with one key, where there is none yet."""
    made = chosen.keyring.create()
    session.print_lines(
        f"{made.place}: key {made.active_id} is active. Keep a copy apart from the lake: a lost key opens nothing."
    )


@keys.command("recipient")
@click.pass_obj
def print_recipient(chosen: Settings) -> None:
    """Print the public key that collectors seal files for: `teetotal keys recipient > lake.pem`."""
    from lake.keyring_guard import KeyringGuard
    from lake.sealed_files import find_recipient

    click.echo(find_recipient(KeyringGuard(chosen.lake, chosen.keyring).peek()).to_pem(), nl=False)


@keys.command("rotate")
@click.option("--resume", is_flag=True, help="Add no key; only finish what an earlier rotation began.")
@click.pass_obj
def rotate_keys(chosen: Settings, resume: bool) -> None:
    """Add a key, make it the active one, and seal again what older keys sealed."""
    from lake.keyring_guard import KeyringGuard
    from pipelines.cli import keys as keyrings

    KeyringGuard(chosen.lake, chosen.keyring).peek()  # so that a lost keyring is not replaced by a new one
    ring = chosen.keyring() if resume else chosen.keyring.rotate()
    session.print_lines(f"{ring.place}: key {ring.active_id} is active")
    lake = session.open_signed_lake(chosen)
    lake.log_statements()  # where signing begins with this, it lists what is there before it is sealed again
    for written in keyrings.reseal_tables(lake, ring):
        session.print_lines(f"{written.table}, run {written.run_id}: {written.rows:,} rows sealed again")
    lake.log_statements()
    session.print_lines(
        "Every partition is sealed with the active key. Files of older versions stay until they are vacuumed."
    )


@keys.command("adopt")
@click.pass_obj
def adopt_keys(chosen: Settings) -> None:
    """Make the present keyring that of the lake, where the one that sealed it is lost for good."""
    from lake.keyring_guard import KeyringGuard

    ring = chosen.keyring()
    KeyringGuard(chosen.lake, chosen.keyring).adopt(ring)
    session.print_lines(
        f"{chosen.lake} is sealed with key {ring.active_id} from now on. What other keys sealed stays closed until "
        "`teetotal run --full` makes it again from bronze."
    )
