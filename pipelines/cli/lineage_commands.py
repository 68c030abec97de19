"""The commands `teetotal anchor`, `evidence` and `signing`; what they need is imported when they run."""

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
@click.option(
    "--witness",
    "witnesses",
    multiple=True,
    metavar="URL",
    help="Have this witness countersign it (C2SP tlog-witness); may be given again.",
)
@click.pass_obj
def anchor(chosen: Settings, out: Path | None, witnesses: tuple[str, ...]) -> None:
    """Print a checkpoint of the log of statements: keep it elsewhere, and give it to `teetotal verify --since`.

    It is a signed note (C2SP tlog-checkpoint): origin, size, root hash, signatures. Exit status 1 where a witness
    did not countersign it.
    """
    from pipelines.cli.evidence import countersign_checkpoint, find_checkpoint
    from pipelines.cli.failures import tell_failure
    from pipelines.cli.whole_files import open_whole

    lake, failures = session.open_built_lake(chosen), []
    text = find_checkpoint(lake, chosen)
    if witnesses:
        text = countersign_checkpoint(lake, chosen, text, witnesses, lambda error: failures.append(tell_failure(error)))
    click.echo(text, nl=False)
    if out is not None:
        with open_whole(out, "the checkpoint") as file:
            file.write(text.encode())
    if failures:
        raise SystemExit(1)


@click.command()
@click.argument("run_id")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="A directory that is not there yet, or a .zip file."
)
@click.option(
    "--data",
    type=click.Choice(["none", "gold", "all"]),
    default="gold",
    show_default=True,
    help="The data files to put in; of the others their digests. Bronze repeats what the source said, names and all.",
)
@click.option(
    "--only-run", is_flag=True, help="Leave out the statements of other runs; then nobody can say which is last."
)
@click.option(
    "--since",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Prove that the log goes on from a checkpoint that you kept.",
)
@click.pass_obj
def evidence(chosen: Settings, run_id: str, out: Path, data: str, only_run: bool, since: Path | None) -> None:
    """Write what it takes to check a run offline: statements, proofs, checkpoint, data files, and a verifier.

    `python -I check_evidence.py BUNDLE --trust KEYS` checks it without teetotal (docs/audit.md).
    """
    session.announce_work(f"reading {chosen.lake}")
    from pipelines.cli.evidence import write_bundle

    tiers = {"none": (), "gold": ("gold",), "all": session.TIERS}[data]
    kept = None if since is None else since.read_text("utf-8")
    lake = session.open_built_lake(chosen)
    count = write_bundle(lake, chosen, run_id, out, tiers, only_run=only_run, since=kept)
    session.print_lines(f"{out}: {count:,} statements of {run_id} and of what it was made from")
    session.print_lines(f"check it: python -I check_evidence.py {out} --trust {chosen.trust}")


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
    for witness in trust.listed_witnesses:
        session.print_lines(f"witness           {witness}")


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
