"""The key that signs and the keys that are believed: made, rotated, revoked, lost, or held by another program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from lake.errors import ContractBroken, EvidenceRejected, SourceUnavailable
from lake.lineage.envelope import frame_payload, parse_envelope, sign_payload
from lake.lineage.keys import CommandSigner, SigningKeys, parse_trust
from lake.lineage.notes import Checkpoint, parse_public_key, read_checkpoint
from pipelines.settings import settings

if TYPE_CHECKING:
    from pathlib import Path

    from lake.lineage.keys import FileSigner

SIGNER = """\
import base64, sys
from cryptography.hazmat.primitives.serialization import load_pem_private_key
key = load_pem_private_key(open(sys.argv[1], "rb").read(), None)
sys.stdout.write(base64.b64encode(key.sign(sys.stdin.buffer.read())).decode())
"""


def open_keys(place: Path) -> SigningKeys:
    return SigningKeys(place / "signing-trust.txt", place / "signing-key.pem", is_made_on_first_use=True)


def rotate(place: Path) -> FileSigner:
    return open_keys(place).rotate()


def test_the_first_use_makes_a_key_that_its_owner_alone_may_read_and_lists_its_public_half(tmp_path: Path) -> None:
    signer = open_keys(tmp_path).signer
    assert signer is not None
    assert (tmp_path / "signing-key.pem").stat().st_mode & 0o777 == 0o600
    (listed,) = open_keys(tmp_path).trust.keys
    assert listed.key == signer.public
    again = open_keys(tmp_path).signer
    assert again is not None
    assert again.public == signer.public
    assert parse_public_key(str(signer.public), "here") == signer.public


def test_a_rotated_key_keeps_the_name_and_the_old_one_stays_believed_until_it_is_revoked(tmp_path: Path) -> None:
    keys = open_keys(tmp_path)
    old, new = rotate(tmp_path), rotate(tmp_path)
    assert old.public.name == new.public.name
    assert keys.trust.current == [old.public, new.public]
    keys.revoke(old.public.key_id, 7)
    assert keys.trust.current == [new.public]
    found = keys.trust.find(old.public.key_id)
    assert found is not None
    assert found.revoked_after == 7
    with pytest.raises(EvidenceRejected, match="signing list"):
        keys.revoke("0123456789abcdef", 0)


def test_a_lost_private_key_is_replaced_and_what_it_signed_is_still_believed(tmp_path: Path) -> None:
    old = rotate(tmp_path)
    (tmp_path / "signing-key.pem").unlink()
    new = open_keys(tmp_path).signer
    assert new is not None
    assert open_keys(tmp_path).trust.current == [old.public, new.public]


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    rotate(tmp_path)
    (tmp_path / "signing-key.pem").chmod(mode)
    with pytest.raises(ContractBroken, match="chmod 600"):
        _ = open_keys(tmp_path).signer


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "signing-key.pem").write_text("no key")
    (tmp_path / "signing-key.pem").chmod(0o600)
    with pytest.raises(ContractBroken, match="no Ed25519 private key"):
        _ = open_keys(tmp_path).signer


def test_an_external_command_signs_and_a_signature_of_another_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "signer.py").write_text(SIGNER)
    public = rotate(tmp_path).public
    command = f"{sys.executable} {tmp_path}/signer.py {tmp_path}/signing-key.pem"
    chosen = settings(
        str(tmp_path / "lake"), environment={"TEETOTAL_SIGNER": command, "TEETOTAL_SIGNER_KEY": str(public)}
    )
    assert chosen.signing is not None
    assert chosen.signing.signer is not None
    assert public.has_signed(b"bytes", chosen.signing.signer.sign(b"bytes"))
    stranger = rotate(tmp_path / "other").public
    with pytest.raises(ContractBroken, match="TEETOTAL_SIGNER_KEY"):
        CommandSigner(stranger, command).sign(b"bytes")
    with pytest.raises(SourceUnavailable, match="base64 of the signature"):
        CommandSigner(public, "false").sign(b"bytes")


@pytest.mark.parametrize(
    "given",
    [{"TEETOTAL_SIGNER": "x"}, {"TEETOTAL_SIGNER": "x", "TEETOTAL_SIGNER_KEY": "k", "TEETOTAL_SIGNING_KEY": "f"}],
)
def test_settings_that_do_not_say_which_key_signs_are_refused(tmp_path: Path, given: dict[str, str]) -> None:
    with pytest.raises(ContractBroken, match="TEETOTAL_SIGNER_KEY"):
        settings(str(tmp_path / "lake"), environment=given)


@pytest.mark.parametrize("line", ["no key", "a+00000000+AAAA", "{key} perhaps"])
def test_a_list_of_keys_with_a_line_that_is_none_is_refused(tmp_path: Path, line: str) -> None:
    text = line.format(key=rotate(tmp_path).public)
    with pytest.raises(EvidenceRejected, match="line 2"):
        parse_trust(f"# keys\n{text}\n", "trust.txt")


def test_a_checkpoint_is_the_signed_note_that_others_read(tmp_path: Path) -> None:
    signer = rotate(tmp_path)
    text = Checkpoint("log.example/1", 3, bytes(32)).sign(signer)
    origin, size, root, empty, signature, end = text.split("\n")
    assert (origin, size, root, empty, end) == ("log.example/1", "3", "A" * 43 + "=", "", "")
    assert signature.startswith(f"— {signer.public.name} ")
    witnessed = text + "— witness.example/1 AAAAAAAA\n"
    assert read_checkpoint(witnessed, [signer.public], "here") == (
        Checkpoint("log.example/1", 3, bytes(32)),
        signer.public,
    )
    assert read_checkpoint(text.replace("3", "4", 1), [signer.public], "here")[1] is None
    with pytest.raises(EvidenceRejected, match="teetotal anchor"):
        read_checkpoint("nothing", [signer.public], "here")


def test_what_is_signed_is_the_type_and_the_payload_in_a_frame(tmp_path: Path) -> None:
    assert frame_payload("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    signer = rotate(tmp_path)
    envelope = parse_envelope(sign_payload("a/type", {"b": 1, "a": 2}, signer))
    assert envelope is not None
    assert (envelope.kind, envelope.payload, envelope.key_id) == ("a/type", b'{"a":2,"b":1}', signer.public.key_id)
    assert envelope.is_signed_by(signer.public)
