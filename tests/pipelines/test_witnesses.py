"""Witnesses countersign checkpoints of the log: a lake whose history was exchanged finds none that does."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from lake.lineage.keys import SigningKeys, load_trust
from tests.support.signed_lakes import build, build_both, check_bundle, land, teetotal
from tests.support.witness import serve_witness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.witness import Witness


@pytest.fixture(scope="module")
def signed_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed lake of two runs."""
    root = tmp_path_factory.mktemp("signed")
    build_both(root)
    return root


@pytest.fixture
def root(signed_lake: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(signed_lake, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def witness(root: Path) -> Iterator[Witness]:
    """A witness that knows the lake's log, and that the lake's list of keys names."""
    trust = root / "signing-trust.txt"
    with serve_witness("witness.example/w1", trust.read_text()) as one:
        trust.write_text(f"{trust.read_text()}{one.key}\n")
        yield one


def anchor(root: Path, name: str, *witnesses: Witness) -> tuple[int, str]:
    urls = [word for one in witnesses for word in ("--witness", one.url)]
    done = teetotal(root, "anchor", "--out", str(root / name), *urls)
    assert done.stdout == (root / name).read_text()
    return done.exit_code, done.stderr


def change(root: Path, step_us: int) -> None:
    land(root, "tee", step_us)
    build(root)


def test_a_witness_countersigns_and_both_verifiers_count_it(root: Path, witness: Witness) -> None:
    assert anchor(root, "checkpoint", witness) == (0, "")
    kept = ("--since", str(root / "checkpoint"))
    found = teetotal(root, "verify", *kept, "--witnesses", "1")
    assert (found.exit_code, found.stderr) == (0, "")
    assert f"{root / 'checkpoint'}: countersigned by witness.example/w1 on 20" in found.stdout
    too_few = teetotal(root, "verify", *kept, "--witnesses", "2")
    assert too_few.exit_code == 1
    assert "1 believed witnesses countersigned it, not 2 (" in too_few.stderr
    assert teetotal(root, "evidence", "tee", "--out", str(root / "bundle"), *kept).exit_code == 0
    trust = root / "signing-trust.txt"
    checked = check_bundle(root / "bundle", trust, *kept, "--witnesses", "1")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "countersigned by witness.example/w1" in checked.stdout
    assert check_bundle(root / "bundle", trust, *kept, "--witnesses", "2").returncode == 1


def test_a_checkpoint_without_witnesses_or_with_one_that_was_changed_has_none(root: Path, witness: Witness) -> None:
    assert anchor(root, "checkpoint", witness) == (0, "")
    text = (root / "checkpoint").read_text()
    ours, theirs = [line for line in text.splitlines() if line.startswith("— ")]
    other = theirs[:-6] + ("AAAA" if not theirs.endswith("AAAA==") else "BBBB") + theirs[-2:]
    for name, lines in {"bare": [ours], "changed": [ours, other], "of another log": [ours, theirs.lower()]}.items():
        (root / name).write_text(text.split("— ")[0] + "".join(f"{line}\n" for line in lines))
        found = teetotal(root, "verify", "--since", str(root / name), "--witnesses", "1")
        assert (found.exit_code, "0 believed witnesses" in found.stderr) == (1, True)
    nothing = teetotal(root, "verify", "--witnesses", "1")
    assert nothing.exit_code == 1
    assert "no checkpoint was given with --since" in nothing.stderr


def test_a_log_that_goes_on_is_countersigned_again_from_where_the_witness_was(root: Path, witness: Witness) -> None:
    sizes = []
    for step_us in (140, 150, 160):
        assert anchor(root, "checkpoint", witness) == (0, "")
        assert anchor(root, "again", witness) == (0, "")
        sizes += [size for size, _ in witness.seen.values()]
        change(root, step_us)
    assert sizes == sorted(set(sizes))
    assert len(sizes) == 3


def test_a_lake_that_was_put_back_or_forked_finds_no_witness(root: Path, witness: Witness) -> None:
    shutil.copytree(root / "lake", root / "before")
    change(root, 140)
    assert anchor(root, "checkpoint", witness) == (0, "")
    shutil.rmtree(root / "lake")
    (root / "before").rename(root / "lake")
    status, said = anchor(root, "put back", witness)
    assert status == 1
    assert "has countersigned" in said
    assert "the log was put back, rewritten or forked since" in said
    change(root, 150)  # another history of the same length, signed by the right key
    status, said = anchor(root, "forked", witness)
    assert status == 1
    assert "a log that this one does not continue" in said
    change(root, 160)  # and a longer one
    status, said = anchor(root, "longer", witness)
    assert status == 1
    assert "a log that this one does not continue" in said
    assert teetotal(root, "verify", "--since", str(root / "longer"), "--witnesses", "1").exit_code == 1


def test_a_witness_that_nobody_believes_or_that_knows_no_such_log_adds_nothing(root: Path, witness: Witness) -> None:
    trust = (root / "signing-trust.txt").read_text()
    with serve_witness("stranger.example/w", trust) as stranger, serve_witness("witness.example/w2", "") as ignorant:
        status, said = anchor(root, "checkpoint", stranger, witness, ignorant)
    assert status == 1
    assert "without a signature of a witness that" in said
    assert "does not know the log teetotal/" in said
    text = (root / "checkpoint").read_text()  # the one that is believed was asked all the same
    assert "— witness.example/w1 " in text
    assert "stranger" not in text


def test_lines_that_a_witness_adds_to_its_own_are_left_out(root: Path, witness: Witness) -> None:
    assert anchor(root, "before") == (0, "")
    text = (root / "before").read_text()
    own = witness.cosign(text.partition("\n\n")[0] + "\n")
    witness.instead = 200, "text/plain", f"— other.example/w !!!\n{own}{own}no line\n— witness.example/w1 AAAA\n"
    assert anchor(root, "checkpoint", witness) == (0, "")
    assert (root / "checkpoint").read_text() == text + own
    anchor(root, "twice", witness, witness)  # asked beside a signature that counts already
    assert (root / "twice").read_text() == text + own


def test_a_key_of_a_witness_signs_no_statement_and_no_checkpoint(root: Path, witness: Witness) -> None:
    anchor(root, "checkpoint")
    text = (root / "checkpoint").read_text()
    (root / "theirs").write_text(text.split("— ")[0] + witness.cosign(text.partition("\n\n")[0] + "\n"))
    found = teetotal(root, "verify", "--since", str(root / "theirs"))
    assert found.exit_code == 1
    assert "has signed this checkpoint" in found.stderr
    trust = load_trust(root / "signing-trust.txt")
    assert [one.name for one in trust.witnesses] == ["witness.example/w1"]
    assert "witness.example/w1" not in {one.key.name for one in trust.keys}
    (root / "only.txt").write_text(f"{witness.key}\n")
    assert teetotal(root, "evidence", "tee", "--out", str(root / "bundle")).exit_code == 0
    checked = check_bundle(root / "bundle", root / "only.txt")
    assert (checked.returncode, "no key that is believed" in checked.stderr) == (1, True)


def test_a_list_of_keys_keeps_its_witnesses_when_a_key_is_rotated_or_revoked(root: Path, witness: Witness) -> None:
    keys = SigningKeys(root / "signing-trust.txt", root / "signing-key.pem")
    keys.revoke(keys.rotate().public.key_id, 0)
    assert [str(one.key) for one in load_trust(root / "signing-trust.txt").listed_witnesses] == [witness.key]
    assert witness.key in teetotal(root, "signing", "list").stdout
    (root / "signing-trust.txt").write_text(f"{witness.key} revoked\n")
    assert load_trust(root / "signing-trust.txt").witnesses == []


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ((500, "text/plain", "Traceback: a secret of theirs"), "answered 500 (try again)"),
        ((200, "text/plain", "— witness.example/w1 AAAA\n" * 10_000), "without a signature of a witness"),
        ((200, "text/html", "<html>"), "without a signature of a witness"),
        ((409, "text/x.tlog.size", "9" * 30), "does not continue"),
        ((409, "text/x.tlog.size", "-1\n"), "does not continue"),
        ((302, "text/plain", ""), "answered 302 (try again)"),
    ],
)
def test_an_answer_that_is_none_is_told_in_a_line(
    root: Path, witness: Witness, instead: tuple[int, str, str], said: str
) -> None:
    witness.instead = instead
    status, told = anchor(root, "checkpoint", witness)
    assert status == 1
    assert said in told
    assert "secret" not in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("url", ["ftp://witness.example/", "http://witness.example/", "https://u:p@witness.example"])
def test_an_address_of_a_witness_that_cannot_be_trusted_is_refused(root: Path, url: str) -> None:
    done = teetotal(root, "anchor", "--witness", url)
    assert done.exit_code == 1
    assert "--witness is no address to post to (expected https://" in done.stderr
