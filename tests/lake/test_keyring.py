from __future__ import annotations

import base64
import json
import os
import pickle
import re
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from lake.errors import ContractBroken, LakeError
from lake.keyring import (
    KEY_ID,
    Key,
    Keyring,
    KeyringFile,
    KeyringSecret,
    NoKeyring,
    decode_base64url,
    encode_base64url,
    join_framed,
    parse,
)
from tests.support.processes import finish, release, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = bytes(range(64))
CREATED = "2026-11-15T05:00:00Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "keyring.json"


def document(**other: Any) -> dict[str, Any]:
    key = {"id": "k0000001", "created": CREATED, "secret": encode_base64url(SECRET)}
    return {"version": 1, "active": "k0000001", "keys": [key], **other}


def write(path: Path, content: str, mode: int = 0o600) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    path.chmod(mode)


# -- opening and making -------------------------------------------------------------------------------------------


def test_the_first_use_makes_a_keyring_that_its_owner_alone_may_read(path: Path) -> None:
    made = KeyringFile(path, is_made_on_first_use=True)()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [key.key_id for key in made.keys] == [made.active_id]
    assert re.fullmatch(KEY_ID, made.active_id)
    assert len(made.active.secret) == 64
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made.active.created)
    assert KeyringFile(path)() == made


def test_a_loose_umask_opens_the_keyring_to_nobody_else(path: Path) -> None:
    before = os.umask(0)
    try:
        KeyringFile(path, is_made_on_first_use=True)()
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}


def test_a_keyring_that_was_named_and_is_not_there_is_not_made_up(path: Path) -> None:
    for use in (KeyringFile(path), KeyringFile(path).rotate):
        with pytest.raises(ContractBroken, match=f"there is no keyring at {path}.*keys create"):
            use()
    assert not path.parent.exists()


def test_a_keyring_is_created_once_and_never_replaced(path: Path) -> None:
    made = KeyringFile(path).create()
    with pytest.raises(ContractBroken, match=r"is there already.*keys rotate"):
        KeyringFile(path).create()
    assert KeyringFile(path)() == made


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o601])
def test_a_keyring_that_others_may_touch_is_refused_with_the_remedy(path: Path, mode: int) -> None:
    write(path, json.dumps(document()), mode)
    with pytest.raises(ContractBroken, match=rf"mode {mode:o}.*chmod 600 {path}"):
        KeyringFile(path)()
    path.chmod(0o600)
    assert KeyringFile(path)().active.secret == SECRET


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ContractBroken, match=f"{path} is no file"):
            KeyringFile(path)()


def test_processes_that_make_a_keyring_at_once_agree_on_it(path: Path) -> None:
    running = [start("open_keyring", str(path)) for _ in range(4)]
    release(*running)
    said = {process.communicate(timeout=60)[0].strip() for process in running}
    finish(*running)
    assert said == {KeyringFile(path)().active_id}
    assert sorted(file.name for file in path.parent.iterdir()) == ["keyring.json", "keyring.json.lock"]


# -- rotating -----------------------------------------------------------------------------------------------------


def test_rotation_adds_an_active_key_and_keeps_the_older_ones(path: Path) -> None:
    source = KeyringFile(path, is_made_on_first_use=True)
    first = source()
    rings = [source.rotate() for _ in range(3)]
    assert source() == rings[-1]
    assert rings[-1].keys[:1] == first.keys
    assert [key.key_id for key in rings[-1].keys] == [first.active_id, *(ring.active_id for ring in rings)]
    assert len({key.key_id for key in rings[-1].keys}) == len({key.secret for key in rings[-1].keys}) == 4
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_rotation_that_cannot_be_written_leaves_the_keyring_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = KeyringFile(path, is_made_on_first_use=True)
    before = source()

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ContractBroken, match="cannot be written: No space left on device"):
        source.rotate()
    assert source() == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["keyring.json", "keyring.json.lock"]


def test_a_keyring_from_a_secret_store_is_read_and_never_changed(path: Path) -> None:
    KeyringFile(path).create()
    source = KeyringSecret("TEETOTAL_KEYRING_SECRET", path.read_text())
    assert source().keys == KeyringFile(path)().keys
    for change in (source.rotate, source.create):
        with pytest.raises(ContractBroken, match=r"TEETOTAL_KEYRING_SECRET is read, never written.*--keyring FILE"):
            change()


def test_the_lack_of_a_keyring_is_told_to_those_who_need_one() -> None:
    lack = NoKeyring("there is none", "name one")
    for use in (lack, lack.create, lack.rotate):
        with pytest.raises(ContractBroken, match=r"there is none \(name one\)"):
            use()


# -- what is no keyring -------------------------------------------------------------------------------------------

KEY = document()["keys"][0]
SPOILED: dict[str, tuple[str, str]] = {
    "no JSON": (json.dumps(document())[:-1], "not one JSON object"),
    "not UTF-8": ("\udcff", "not one JSON object"),
    "deep": ("[" * 100_000, "not one JSON object"),
    "a list": (json.dumps([document()]), "not one JSON object"),
    "one more field": (json.dumps(document(more=1)), "not one JSON object"),
    "another version": (json.dumps(document(version=2)), "its version is not 1"),
    "no keys": (json.dumps(document(keys=[])), "it holds no keys"),
    "keys of no kind": (json.dumps(document(keys={"a": KEY})), "it holds no keys"),
    "a key that is none": (json.dumps(document(keys=[KEY, encode_base64url(SECRET)])), "key 2 is no object"),
    "an id of another form": (json.dumps(document(keys=[{**KEY, "id": encode_base64url(SECRET)}])), "the id of key 1"),
    "an id that is no text": (json.dumps(document(keys=[{**KEY, "id": 7}])), "the id of key 1"),
    "no time": (json.dumps(document(keys=[{**KEY, "created": encode_base64url(SECRET)}])), "key 1 does not say when"),
    "local time": (json.dumps(document(keys=[{**KEY, "created": "2026-11-15T05:00:00"}])), "key 1 does not say when"),
    "a number for a time": (json.dumps(document(keys=[{**KEY, "created": 7}])), "key 1 does not say when"),
    "a short secret": (
        json.dumps(document(keys=[{**KEY, "secret": encode_base64url(SECRET[:-1])}])),
        "the secret of key 1",
    ),
    "no secret": (json.dumps(document(keys=[{**KEY, "secret": None}])), "the secret of key 1"),
    "two of one id": (json.dumps(document(keys=[KEY, KEY])), "two of its keys have one id"),
    "no active key": (json.dumps(document(active=encode_base64url(SECRET))), "its active key is none of its keys"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "problem"), SPOILED.values(), ids=SPOILED.keys())
def test_what_is_no_keyring_is_told_by_name_and_never_by_its_content(path: Path, content: str, problem: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    path.chmod(0o600)
    with pytest.raises(ContractBroken, match=f"{path} is no keyring: .*{problem}.*put back the keyring") as caught:
        KeyringFile(path)()
    assert not caught.value.is_transient
    assert_silent(caught.value)


# -- what nobody may see ------------------------------------------------------------------------------------------


def forms(secret: bytes) -> list[str]:
    """How a part of the secret might look in a text."""
    part = secret[8:40]
    plain = base64.b64encode(secret).decode()
    return [repr(part)[2:-1], part.hex(), encode_base64url(secret)[4:40], plain[4:40], str(list(part))[1:-1]]


def assert_silent(error: BaseException, secret: bytes = SECRET) -> None:
    """No part of an error, its causes or its pickled form holds the secret."""
    answer = ["".join(traceback.format_exception(error)), repr(error), str(error)]
    seen: BaseException | None = error
    while seen is not None:
        answer.append(repr((seen.args, vars(seen))))
        seen = seen.__cause__ or seen.__context__
    assert not [form for form in forms(secret) for text in answer if form in text]
    assert not any(form.encode() in pickle.dumps(error) for form in forms(secret))


SHOWN: dict[str, Callable[[], object]] = {
    "key": lambda: Key("k0000001", CREATED, SECRET),
    "keyring": lambda: Keyring("here", "k0000001", (Key("k0000001", CREATED, SECRET),)),
    "source": lambda: KeyringSecret("HERE", json.dumps(document())),
}


@pytest.mark.parametrize("made", SHOWN.values(), ids=SHOWN.keys())
def test_no_text_of_a_key_or_a_keyring_shows_its_bytes(made: Callable[[], object]) -> None:
    thing = made()
    assert [text for text in (repr(thing), str(thing), f"{thing}") for form in forms(SECRET) if form in text] == []


def test_a_text_with_the_bytes_would_be_found() -> None:
    with pytest.raises(AssertionError):
        assert_silent(LakeError(f"the secret is {encode_base64url(SECRET)}"))
    with pytest.raises(AssertionError):
        assert_silent(LakeError(f"the secret is {SECRET!r}"))


# -- derived keys -------------------------------------------------------------------------------------------------


def test_derived_keys_depend_on_master_purpose_and_every_part_of_the_context() -> None:
    key, other = Key("k0000001", CREATED, SECRET), Key("k0000001", CREATED, SECRET[::-1])
    derived = [
        key.derive("names", length=64),
        other.derive("names", length=64),
        key.derive("texts", length=64),
        key.derive("texts", "a", "bc", length=64),
        key.derive("texts", "ab", "c", length=64),
        key.derive("texts", "ab", "c", "", length=64),
    ]
    assert len(set(derived)) == len(derived)
    assert key.derive("names", length=64) == derived[0]
    assert not any(SECRET[:16] in each for each in derived)


def test_framed_parts_never_run_into_each_other() -> None:
    many = [(), (b"",), (b"", b""), (b"ab",), (b"a", b"b"), (b"", b"ab"), (b"ab", b"")]
    assert len({join_framed(*parts) for parts in many}) == len(many)


def test_only_one_text_stands_for_some_bytes() -> None:
    text = encode_base64url(b"\xff\xfe")
    assert decode_base64url(text) == b"\xff\xfe"
    assert [decode_base64url(other) for other in (text + "=", text[:-1] + "5", f"{text}\n", "é", "a", "+/8")] == [
        None
    ] * 6


def test_a_keyring_holds_only_keys_that_it_was_given() -> None:
    ring = parse(json.dumps(document()).encode(), "here")
    assert ring.key("k0000001") == ring.active
    assert ring.key("k0000002") is None
