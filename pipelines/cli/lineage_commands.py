"""The commands `teetotal anchor` and `teetotal signing`; what they need is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli import session

if TYPE_CHECKING:
    from lake.lineage.keys import SigningKeys
    from pipelines.settings import Settings


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it to a file as well.")
@click.pass_obj
def anchor(chosen: Settings, out: Path | None) -> None:
    """Print a checkpoint of the log of statements: keep it elsewhere, and give it to `teetotal verify --since`.

    It is a signed note (C2SP tlog-checkpoint): origin, size, root hash, signature.
    """
    from pipelines.cli.evidence import find_checkpoint
    from pipelines.cli.whole_files import open_whole

    text = find_checkpoint(session.open_built_lake(chosen), chosen)
    click.echo(text, nl=False)
    if out is not None:
        with open_whole(out, "the checkpoint") as file:
            file.write(text.encode())


@click.group()
def signing() -> None:
    """The key that signs commits, and the public keys that are believed; no command prints a private key."""


@signing.command("list")
@click.pass_obj
def list_keys(chosen: Settings) -> None:
    """Show the public keys that are believed, as `--trust` takes them."""
    from lake.lineage.keys import load_trust

    trust = load_trust(chosen.trust)
    if not trust.keys:
        session.print_lines(f"no keys in {trust.place}: `teetotal run` makes one with its first signed commit")
    for one in trust.keys:
        session.print_lines(f"{one.key.key_id}  {one}")


@signing.command("create")
@click.pass_obj
def create_key(chosen: Settings) -> None:
    """Make the key that signs, where there is none yet."""
    made = _require_signing(chosen).rotate(only_if_missing=True)
    session.print_lines(f"key {made.public.key_id} signs from now on; its public half is in {chosen.trust}")


@signing.command("rotate")
@click.pass_obj
def rotate_key(chosen: Settings) -> None:
    """Make a new key that signs; what older keys signed stays valid until they are revoked."""
    made = _require_signing(chosen).rotate()
    session.print_lines(
        f"key {made.public.key_id} signs from now on; give whoever verifies its public half: {made.public}"
    )


@signing.command("revoke")
@click.argument("key_id")
@click.option(
    "--after", type=click.IntRange(min=0), default=0, help="The first so many statements of the log still count."
)
@click.pass_obj
def revoke_key(chosen: Settings, key_id: str, after: int) -> None:
    """Believe a key no longer: `teetotal verify` then names what it signed, `run --full` signs that again."""
    _require_signing(chosen).revoke(key_id, after)
    session.print_lines(
        f"key {key_id} is revoked in {chosen.trust}; verifiers that keep a list of their own do the same"
    )


def _require_signing(chosen: Settings) -> SigningKeys:
    from lake.errors import EvidenceRejected

    if chosen.signing is None:
        raise EvidenceRejected(f"nobody signs for {chosen.lake}", "set TEETOTAL_SIGNING_KEY to the path of a key")
    return chosen.signing
