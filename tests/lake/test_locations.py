from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from lake.errors import ContractBroken, LakeError
from lake.locations import Location

KEYS = {"AWS_ACCESS_KEY_ID": "teetotal", "AWS_SECRET_ACCESS_KEY": "of-no-worth", "AWS_REGION": "eu-central-1"}


def test_a_local_place_is_an_absolute_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for written in ("data/lake", tmp_path / "data/lake", f"file://{tmp_path}/data/lake", "data/../data/lake/"):
        place = Location.of(written)
        assert (place.is_local, place.directory) == (True, tmp_path / "data" / "lake")
    assert Location.of("~/lake").directory == tmp_path / "home" / "lake"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("written", ["s3://bucket/lake", "s3://bucket/lake/", "s3://bucket/lake//"])
def test_an_object_store_is_its_url_without_a_slash_at_the_end(written: str) -> None:
    place = Location.of(written, KEYS)
    assert (place.is_local, str(place)) == (False, "s3://bucket/lake")
    assert str(place.child("bronze", "runs")) == "s3://bucket/lake/bronze/runs"
    with pytest.raises(ContractBroken, match="is not a local directory"):
        _ = place.directory


def test_storage_options_never_show(tmp_path: Path) -> None:
    place = Location.of("s3://bucket/lake", KEYS)
    assert "of-no-worth" not in f"{place} {place!r} {place.child('a')!r}"


@pytest.mark.parametrize("written", ["s3://", "s3:///lake", "ftp://host/lake", "nonsense://lake", "://lake"])
def test_a_url_that_no_store_answers_to_is_refused_in_one_line_and_never_taken_for_a_directory(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LakeError, match=re.escape(written.rstrip("/"))) as caught:
        _ = Location.of(written).store
    assert not caught.value.is_transient
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_options_of_others_in_the_environment_do_not_matter() -> None:
    ambient = {"AWS_PROFILE": "work", "AWS_PAGER": "", "AWS_CA_BUNDLE": "/ca.pem", "GOOGLE_CLOUD_PROJECT": "p"}
    assert Location.of("s3://bucket/lake", {**KEYS, **ambient}).store is not None


def test_a_request_may_take_as_long_as_is_said_and_never_for_ever() -> None:
    assert Location.of("s3://bucket/lake", KEYS).options == {**KEYS, "AWS_TIMEOUT": "30s", "AWS_CONNECT_TIMEOUT": "5s"}
    chosen = {
        **KEYS,
        "aws_timeout": "5m",
        "AWS_CONNECT_TIMEOUT": "1s",
        "AWS_PROXY_URL": "http://proxy.example.org:3128",
    }
    place = Location.of("s3://bucket/lake", chosen)
    assert place.options == chosen
    assert place.store is not None  # what is of the HTTP client is not handed over as an option of the store
    assert set(Location.of("az://bucket/lake").options) == {"AZURE_TIMEOUT", "AZURE_CONNECT_TIMEOUT"}


@pytest.mark.parametrize("said", ["soon", "5"])
def test_a_limit_that_is_no_time_is_told_in_one_line(said: str) -> None:
    with pytest.raises(LakeError, match=f"{said}.* as Duration") as caught:
        _ = Location.of("s3://bucket/lake", {**KEYS, "AWS_TIMEOUT": said}).store
    assert "\n" not in str(caught.value)


def test_a_place_in_a_store_has_one_client_however_often_it_is_named_and_other_keys_have_another() -> None:
    first = Location.of("s3://bucket/lake", KEYS).child("silver").store
    assert Location.of("s3://bucket/lake/silver", dict(KEYS)).store is first
    assert Location.of("s3://bucket/lake/silver", {**KEYS, "AWS_ACCESS_KEY_ID": "another"}).store is not first
    assert Location.of("s3://bucket/lake/gold", KEYS).store is not first


def test_a_forked_process_uses_no_connection_of_the_one_that_it_comes_from() -> None:
    first = id(Location.of("s3://bucket/lake", KEYS).store)
    pid = os.fork()
    if pid == 0:
        os._exit(int(id(Location.of("s3://bucket/lake", KEYS).store) == first))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
