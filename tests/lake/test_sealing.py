from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.errors import ContractBroken
from lake.keyring import Key, Keyring, KeyringFile, decode_base64url, encode_base64url
from lake.locations import Location
from lake.sealing import abbreviate_token, seal, unseal
from lake.store import Lake
from lake.tables import RUN_ID, Column, Kind, Table, int64, text
from tests.support.planted_texts import finds
from tests.support.sample_tables import FIRST, HOST, NOTE, OWNER, SECOND, VISITS, files_under, replace_column, visits

if TYPE_CHECKING:
    from pathlib import Path

CREATED = "2026-11-15T05:00:00Z"
OLD, NEW = (Key(f"k000000{place}", CREATED, bytes([place]) * 64) for place in (1, 2))
RING = Keyring("here", OLD.key_id, (OLD, NEW))
LATER = Keyring("here", NEW.key_id, (OLD, NEW))
SEALED = [column.name for column in VISITS.sealed]
PLAIN = [name for name in VISITS.column_names if name not in SEALED]


def tokens(column: str, rows: pa.Table | None = None, keyring: Keyring = RING, run_id: str = "a") -> list[Any]:
    sealed: list[Any] = seal(VISITS, visits(run_id) if rows is None else rows, run_id, keyring)[column].to_pylist()
    return sealed


def with_token(column: str, token: str | None, row: int = 0) -> pa.Table:
    """Sealed visits, one token exchanged."""
    sealed = seal(VISITS, visits(), "a", RING)
    values = sealed[column].to_pylist()
    values[row] = token
    return replace_column(sealed, column, values, pa.string())


# -- round trips --------------------------------------------------------------------------------------------------


def test_what_is_sealed_opens_again_and_other_columns_are_left_alone() -> None:
    sealed = seal(VISITS, visits(), "a", RING)
    assert sealed.schema == VISITS.arrow_schema
    assert sealed.select(PLAIN) == visits().select(PLAIN)
    assert unseal(VISITS, sealed, RING) == visits()
    assert unseal(VISITS, sealed.select(["ordinal", *SEALED]), RING, "a") == visits().select(["ordinal", *SEALED])


def test_null_stays_null_and_the_empty_text_is_sealed_too() -> None:
    assert [token is None for token in tokens("note")] == [False, False, True, False]
    assert [token is None for token in tokens("owner")] == [False, False, True, False]
    (empty,) = tokens("host", visits(notes=[""], host=""))
    assert empty.startswith(f"sealed:1:{OLD.key_id}:")


def test_no_rows_are_no_rows() -> None:
    assert unseal(VISITS, seal(VISITS, visits(notes=[]), "a", RING), RING) == visits(notes=[])


def test_a_value_that_looks_like_a_token_is_sealed_like_any_other() -> None:
    (token, *_) = tokens("host")
    rows = visits(notes=[tokens("note")[0]], host=token)
    sealed = seal(VISITS, rows, "a", RING)
    assert sealed["host"][0].as_py() != token
    assert unseal(VISITS, sealed, RING) == rows


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_any_text_opens_again(texts: list[str | None]) -> None:
    rows = replace_column(visits(notes=texts), "owner", texts, pa.string())
    sealed = seal(VISITS, rows, "a", RING)
    assert unseal(VISITS, sealed, RING) == rows
    assert unseal(VISITS, seal(VISITS, unseal(VISITS, sealed, RING), "a", LATER), LATER) == rows


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_names_are_equal_exactly_where_their_tokens_are(one: str, other: str) -> None:
    rows = replace_column(visits(notes=["", "", ""]), "host", [one, other, one])
    first, second, third = tokens("host", rows)
    assert first == third
    assert (first == second) == (one == other)


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_tokens_do_not_depend_on_how_rows_are_cut(pieces: int) -> None:
    whole = seal(VISITS, visits(), "a", RING)
    parts = [seal(VISITS, pa.table(batch), "a", RING) for batch in visits().to_batches(pieces)]
    assert pa.concat_tables(parts).combine_chunks() == whole
    assert seal(VISITS, pa.concat_tables([visits().slice(0, 2), visits().slice(2)]), "a", RING) == whole
    (batch,) = visits().to_batches()
    assert pa.table(seal(VISITS, batch, "a", RING)) == whole


# -- what a token tells -------------------------------------------------------------------------------------------


def test_names_are_equal_across_runs_and_rows_and_differ_between_columns_and_keys() -> None:
    assert len({*tokens("host"), *tokens("host", run_id="b")}) == 1
    same = replace_column(visits(host=OWNER), "owner", [OWNER] * 4)
    assert set(tokens("host", same)).isdisjoint(tokens("owner", same))
    assert set(tokens("host")).isdisjoint(tokens("host", keyring=LATER))


def test_equal_free_texts_differ_between_rows_and_runs_and_repeat_with_their_row() -> None:
    first, second, *_ = tokens("note")
    assert first != second
    assert tokens("note", run_id="b")[0] not in {first, second}
    assert tokens("note") == [first, second, *tokens("note")[2:]]
    assert tokens("note", visits(notes=["other", NOTE]))[1] == second


def test_equal_free_texts_share_neither_nonce_nor_ciphertext_between_rows_columns_and_runs() -> None:
    cases = [(column, run_id) for column in ("note", "reply") for run_id in ("a", "b")]
    many = [parts(token) for column, run_id in cases for token in tokens(column, run_id=run_id)[:2]]
    assert len({nonce for nonce, _ in many}) == len({ciphertext for _, ciphertext in many}) == 8


def test_two_texts_in_one_row_never_share_a_nonce() -> None:
    nonces = {parts(tokens("note", visits(notes=[note]))[0])[0] for note in ("a", "b", "", "ab", NOTE)}
    assert len(nonces) == 5


def parts(token: str) -> tuple[bytes, bytes]:
    """Nonce and ciphertext of a free text's token, its tag left out."""
    sealed = decode_base64url(token.rpartition(":")[2]) or b""
    return sealed[:12], sealed[12:-16]


# -- what does not open -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", SEALED)
@pytest.mark.parametrize("place", [18, 30, -1])
def test_a_token_that_was_changed_does_not_open(column: str, place: int) -> None:
    (token, *_) = tokens(column)
    letter = token[place]
    for other in {"A", "B", "_", "x"} - {letter}:
        spoiled = [*token]
        spoiled[place] = other
        assert_refused(with_token(column, "".join(spoiled)), f"silver.visits.{column}")


@pytest.mark.parametrize("column", SEALED)
@pytest.mark.parametrize("length", [0, 3, 20, 40])
def test_a_token_that_was_cut_does_not_open(column: str, length: int) -> None:
    lead, _, body = tokens(column)[0].rpartition(":")
    assert_refused(with_token(column, f"{lead}:{body[:length]}"), f"silver.visits.{column}")


def test_a_token_does_not_open_in_another_column() -> None:
    assert_refused(with_token("owner", tokens("host")[0]), "silver.visits.owner", OLD.key_id)
    assert_refused(with_token("host", tokens("note")[0]), "silver.visits.host", OLD.key_id)
    assert_refused(with_token("note", tokens("host")[0]), "silver.visits.note", OLD.key_id)
    assert_refused(with_token("note", tokens("reply")[0]), "silver.visits.note", OLD.key_id)


def test_a_token_does_not_open_in_another_table() -> None:
    other = Table("gold", "visits", VISITS.grain, VISITS.key, VISITS.columns, VISITS.partition_by)
    for column in SEALED:
        sealed = seal(VISITS, visits(), "a", RING).select([*PLAIN, column])
        with pytest.raises(ContractBroken, match=rf"gold\.visits\.{column}: a token of key {OLD.key_id} does not open"):
            unseal(other, sealed, RING)


def test_free_text_does_not_open_in_another_row_or_run() -> None:
    assert_refused(with_token("note", tokens("note")[0], row=1), "silver.visits.note", OLD.key_id)
    assert_refused(with_token("note", tokens("note", run_id="b")[0]), "silver.visits.note", OLD.key_id)


def test_free_text_opens_only_beside_the_run_and_the_key_of_its_row() -> None:
    with pytest.raises(ContractBroken, match=r"silver\.visits: free text opens only beside its row's ordinal"):
        unseal(VISITS, seal(VISITS, visits(), "a", RING).select(["note"]), RING, "a")
    with pytest.raises(ContractBroken, match=r"silver\.visits: free text opens only beside its row's run_id"):
        unseal(VISITS, seal(VISITS, visits(), "a", RING).select(["note", "ordinal"]), RING)


@pytest.mark.parametrize("column", SEALED)
def test_a_key_that_is_not_there_or_not_the_same_does_not_open(column: str) -> None:
    sealed = seal(VISITS, visits(), "a", RING).select([*PLAIN, column])
    with pytest.raises(
        ContractBroken, match=rf"visits\.{column} was sealed with key {OLD.key_id}, which here does not"
    ):
        unseal(VISITS, sealed, Keyring("here", NEW.key_id, (NEW,)))
    liar = Keyring("here", OLD.key_id, (Key(OLD.key_id, CREATED, NEW.secret),))
    with pytest.raises(ContractBroken, match=rf"visits\.{column}: a token of key {OLD.key_id} does not open"):
        unseal(VISITS, sealed, liar)


def test_a_key_id_is_part_of_what_is_sealed() -> None:
    ring = Keyring("here", OLD.key_id, (OLD, Key(NEW.key_id, CREATED, OLD.secret)))
    for column in SEALED:
        token = tokens(column)[0].replace(OLD.key_id, NEW.key_id)
        with pytest.raises(ContractBroken, match=f"a token of key {NEW.key_id} does not open"):
            unseal(VISITS, with_token(column, token), ring)


@pytest.mark.parametrize("value", [HOST, "", "sealed:1:", "sealed:2:k0000001:AAAA", "sealed:1:k0000001:AA=="])
@pytest.mark.parametrize("column", SEALED)
def test_what_is_no_token_is_refused_and_not_repeated(column: str, value: str) -> None:
    assert_refused(with_token(column, value), f"silver.visits.{column}")


def assert_refused(rows: pa.Table, *named: str) -> None:
    """Opening fails for good, and the error names the place and none of the values."""
    with pytest.raises(ContractBroken) as caught:
        unseal(VISITS, rows, RING)
    answer = repr((str(caught.value), caught.value.__cause__))
    assert all(name in answer for name in named)
    assert caught.value.hint
    values = {value for name in SEALED for value in rows[name].to_pylist() if value} | {HOST, OWNER, NOTE}
    assert not [value for value in values if value in answer]


def test_a_token_is_shortened_for_a_person_and_other_text_is_not() -> None:
    assert abbreviate_token(tokens("host")[0]) == f"sealed:{OLD.key_id}:…"
    assert abbreviate_token(HOST) == HOST


# -- what may be declared -----------------------------------------------------------------------------------------


def test_only_text_is_sensitive() -> None:
    with pytest.raises(ContractBroken, match="column size is declared int64: only text can be sensitive"):
        Column("size", Kind.INT64, "Size.", sensitive=True)


def test_free_text_is_sensitive() -> None:
    with pytest.raises(ContractBroken, match=r"column note is free text.*declare it sensitive"):
        text("note", "Note.", is_free_text=True)


@pytest.mark.parametrize("tier", ["silver", "gold"])
@pytest.mark.parametrize("role", ["key", "partition_by"])
def test_what_is_sealed_is_no_key_and_no_partition(tier: str, role: str) -> None:
    facts: dict[str, Any] = {"key": ("run_id",), "partition_by": ("run_id",), role: ("run_id", "host")}
    columns = (RUN_ID, text("host", "Host.", sensitive=True))
    with pytest.raises(ContractBroken, match=rf"{tier}\.hosts\.host is sensitive: it may be no key and no partition"):
        Table(tier, "hosts", "One row per host.", columns=columns, **facts)
    assert Table("bronze", "hosts", "One row per host.", columns=columns, **facts).sealed == ()


# -- at the door --------------------------------------------------------------------------------------------------


def test_the_door_seals_and_a_reader_without_the_key_sees_tokens(lake: Lake) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    assert finds(lake.place.directory, HOST, OWNER, NOTE) == []
    shown = lake.scan(VISITS).sort("ordinal").collect()
    assert shown["host"].str.starts_with("sealed:1:k").all()
    assert shown["colour"].to_list() == ["red"] * 4
    assert lake.reveal(VISITS, shown.to_arrow()).to_pylist() == visits().to_pylist()


def test_a_planted_text_would_be_found_in_any_kind_of_file(lake: Lake, tmp_path: Path) -> None:
    open_table = Table("bronze", "visits", VISITS.grain, VISITS.key, VISITS.columns, VISITS.partition_by)
    lake.replace(open_table, "a", visits(), FIRST)
    (tmp_path / "log.json").write_text(json.dumps({"who": OWNER}))
    (tmp_path / HOST).mkdir()
    found = finds(tmp_path, HOST, OWNER, NOTE)
    assert [find for find in found if not find.startswith("lake/")] == [f"{HOST}: {HOST}", f"log.json: {OWNER}"]
    assert {find.rpartition(": ")[2] for find in found if find.startswith("lake/bronze/")} == {HOST, OWNER, NOTE}


def test_a_second_replacement_writes_nothing(lake: Lake) -> None:
    first = lake.replace(VISITS, "a", visits(), FIRST)
    before = files_under(lake.place.directory)
    again = lake.replace(VISITS, "a", visits(), FIRST)
    assert (again.is_changed, again.version, again.content_sha256) == (False, first.version, first.content_sha256)
    assert files_under(lake.place.directory) == before


def test_the_same_rows_and_key_give_the_same_bytes_in_another_lake(tmp_path: Path) -> None:
    lakes = [Lake(Location.of(tmp_path / name / "lake"), lambda: RING) for name in ("one", "two")]
    one, two = (lake.replace(VISITS, "a", visits(), FIRST) for lake in lakes)
    assert one.content_sha256 == two.content_sha256
    data = [
        {path: data for path, data in files_under(lake.place.directory).items() if "_delta_log" not in path}
        for lake in lakes
    ]
    assert data[0] == data[1]


def test_rows_that_are_streamed_get_the_same_tokens_as_a_frame(lake: Lake, tmp_path: Path) -> None:
    other = Lake(Location.of(tmp_path / "other"), KeyringFile(tmp_path / "keyring.json"))
    whole = lake.replace(VISITS, "a", visits(), FIRST)
    with other.stage(VISITS, "a") as stage:
        for rank in (0, 1):
            unit = stage.unit()
            mine = visits().filter(pa.compute.field("rank") == rank).select(VISITS.file_schema.names)
            for batch in mine.combine_chunks().to_batches(1):
                unit.write(batch)
            unit.finish(rank=rank)
        streamed = other.commit(stage, FIRST)
    assert streamed.content_sha256 == whole.content_sha256
    assert finds(tmp_path, HOST, OWNER, NOTE) == []


@pytest.mark.parametrize("trouble", ["no keyring", "not made", "open to all", "spoiled"])
def test_without_a_good_keyring_nothing_is_written(tmp_path: Path, trouble: str) -> None:
    path = tmp_path / "keyring.json"
    if trouble in {"open to all", "spoiled"}:
        path.write_text("{}")
        path.chmod(0o644 if trouble == "open to all" else 0o600)
    lake = Lake(Location.of(tmp_path / "lake"), None if trouble == "no keyring" else KeyringFile(path))
    with pytest.raises(ContractBroken) as caught:
        lake.replace(VISITS, "a", visits(), FIRST)
    assert caught.value.hint
    with pytest.raises(ContractBroken):
        lake.stage(VISITS, "a")
    assert not lake.place.directory.exists()


def test_with_a_key_lost_a_partition_stays_as_it_is(lake: Lake, tmp_path: Path) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    before = files_under(lake.place.directory / VISITS.path)
    (tmp_path / "keyring.json").rename(tmp_path / "lost.json")
    stranger = Lake(lake.place, KeyringFile(tmp_path / "keyring.json"))
    with pytest.raises(ContractBroken, match="there is no keyring"):
        stranger.replace(VISITS, "a", visits(), SECOND)
    with pytest.raises(ContractBroken, match="there is no keyring"):
        stranger.reseal(VISITS, "a")
    assert files_under(lake.place.directory / VISITS.path) == before


def test_a_keyring_is_made_only_when_something_is_sealed_or_revealed(lake: Lake, tmp_path: Path) -> None:
    plain = Table("silver", "plain", "One row per place.", ("ordinal",), (RUN_ID, int64("ordinal", "Place.")))
    rows = pa.table({"run_id": ["a"], "ordinal": [0]}, schema=plain.arrow_schema)
    lake.replace(plain, "a", rows, FIRST)
    assert lake.reveal(plain, rows) == rows
    assert lake.reveal(VISITS, visits().select(PLAIN)) == visits().select(PLAIN)
    assert not (tmp_path / "keyring.json").exists()
    lake.replace(VISITS, "a", visits(), FIRST)
    assert (tmp_path / "keyring.json").exists()


def test_no_key_reaches_the_lake(lake: Lake, tmp_path: Path) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    (key,) = KeyringFile(tmp_path / "keyring.json")().keys
    assert finds(lake.place.directory, encode_base64url(key.secret), key.secret.hex()) == []
    assert not [path for path, data in files_under(lake.place.directory).items() if key.secret[:16] in data]
