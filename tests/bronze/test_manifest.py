"""What `run.toml` may say: each wrong field is named, with what was expected; each right one comes back unchanged."""

from __future__ import annotations

import datetime as dt
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bronze.manifest import CC_MODES, CLAIMS, REGIMES, Manifest, claim_from_text, parse
from lake.errors import EvidenceRejected
from lake.tables import Kind
from tests.support.traces import GOOD

if TYPE_CHECKING:
    from lake.tables import Column
    from tests.conftest import LandFiles

_RUN_IDS = {"baseline", "repeat_of"}
_TEXTS = [claim.name for claim in CLAIMS if claim.kind is Kind.TEXT]
_COUNTS = [claim.name for claim in CLAIMS if claim.kind is Kind.INT64]
_NUMBERS = [claim.name for claim in CLAIMS if claim.kind is Kind.FLOAT64]


def _fault(text: str) -> str:
    """What is said of a manifest that must be refused."""
    with pytest.raises(EvidenceRejected) as caught:
        parse(text.encode(), "run-1/run.toml")
    said = str(caught.value)
    assert said.startswith("run-1/run.toml")
    assert "see docs/manifest.md" in said
    assert said.isprintable(), "an error is one line, whatever the manifest holds"
    return said


# -- each field ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["1", "1.5", "true", "[]", "{}", "2024-01-01", "2024-01-01T00:00:00Z"])
@pytest.mark.parametrize("name", _TEXTS)
def test_text_must_be_a_text(name: str, value: str) -> None:
    assert f"{name}: expected a text, found " in _fault(f"{name} = {value}")


@pytest.mark.parametrize("value", ['"8"', "8.0", "true", "false", "[8]", "{}", "nan", "inf", "2024-01-01"])
@pytest.mark.parametrize("name", _COUNTS)
def test_count_must_be_a_whole_number(name: str, value: str) -> None:
    assert f"{name}: expected a whole number, found " in _fault(f"{name} = {value}")


@pytest.mark.parametrize("value", ["0", "-1", "-9223372036854775808"])
@pytest.mark.parametrize("name", [name for name in _COUNTS if name != "warmup_steps_count"])
def test_count_must_be_at_least_one(name: str, value: str) -> None:
    assert f"{name}: expected at least 1, found {value}" in _fault(f"{name} = {value}")


def test_there_may_be_no_warm_up_but_not_less() -> None:
    assert parse(b"warmup_steps_count = 0", "run.toml").claims == {"warmup_steps_count": 0}
    assert "warmup_steps_count: expected at least 0, found -1" in _fault("warmup_steps_count = -1")


@pytest.mark.parametrize("value", ["9223372036854775808", "1" + "0" * 30, "1" * 5000, "0x1" + "0" * 5000])
@pytest.mark.parametrize("name", [*_COUNTS, *_NUMBERS])
def test_number_must_fit_64_bits(name: str, value: str) -> None:
    said = _fault(f"{name} = {value}")
    assert name in said or "is not TOML" in said
    assert len(said) < 1000


@pytest.mark.parametrize("name", _NUMBERS)
@pytest.mark.parametrize("value", ['"25"', "true", "[25]"])
def test_number_must_be_a_number(name: str, value: str) -> None:
    assert f"{name}: expected a number, found " in _fault(f"{name} = {value}")


@pytest.mark.parametrize("name", _NUMBERS)
@pytest.mark.parametrize("value", ["-0.5", "-1", "nan", "inf", "-inf", "1e400"])
def test_number_must_be_finite_and_not_negative(name: str, value: str) -> None:
    assert f"{name}: expected " in _fault(f"{name} = {value}")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('regime = "cc_of"', "did you mean 'cc_off'?"),
        ('regime = "hopper_cc"', "did you mean 'hopper_spt_cc'?"),
        ('regime = "CC_OFF"', "known: "),
        ('cc_mode = "devtool"', "did you mean 'devtools'?"),
        ('cc_mode = ""', "known: devtools, off, on"),
    ],
)
def test_value_out_of_the_set_is_refused_with_the_nearest_one(text: str, hint: str) -> None:
    said = _fault(text)
    assert ", ".join(REGIMES if text.startswith("regime") else CC_MODES) in said
    assert hint in said


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("modle", "model"),
        ("worldsize", "world_size"),
        ("Regime", "regime"),
        ("batchsize", "batch_size"),
        ("zzz", "known: "),
    ],
)
def test_unknown_field_is_refused_with_the_nearest_one(name: str, hint: str) -> None:
    said = _fault(f'{name} = "x"')
    assert re.search(rf"'?{name}'?: is not a field", said)
    assert hint in said
    assert "[extra]" in said


@pytest.mark.parametrize("name", sorted(_RUN_IDS))
@pytest.mark.parametrize(
    "value",
    ["", "../up", "a/b", ".hidden", "-rf", "a b", "a'; DROP TABLE runs; --", "a\nb", "ü", "a" * 129, "run_id='x'"],
)
def test_run_id_must_be_plain(name: str, value: str) -> None:
    assert f"{name}: expected a run id" in _fault(f"{name} = {json.dumps(value)}")


@pytest.mark.parametrize("schema", ["0", "2", '"1"', "true", "1.0", "[1]"])
def test_schema_must_be_the_one_that_is_known(schema: str) -> None:
    assert "schema: expected 1, found " in _fault(f"schema = {schema}")


@pytest.mark.parametrize("extra", ["1", '"x"', "[]", "[{}]"])
def test_extra_must_be_a_table(extra: str) -> None:
    assert "extra: expected a table" in _fault(f"extra = {extra}")


def test_all_faults_are_named_at_once() -> None:
    wrong = [
        "schema = 9",
        'regime = "x"',
        "world_size = 0",
        "model = 5",
        'modle = "m"',
        'baseline = "../a"',
        "extra = 1",
    ]
    said = _fault("\n".join([*wrong, "batch_size = true"]))
    for name in ("schema", "regime", "world_size", "model", "modle", "baseline", "batch_size", "extra"):
        assert re.search(rf"\b{name}'?: ", said)


# -- the whole file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"regime = cc_off",
        b"= 1",
        b'model = "a',
        b'model = "a"\nmodel = "b"',
        b"[extra",
        b'model = "\xff"',
        b"\x00",
        b"\x89PNG",
        b'{"regime": "cc_off"}',
        b"a = " + b"[" * 5000 + b"]" * 5000,
        b"batch_size = " + b"1" * 5000,
        b"\xff\xfe" + 'model = "a"'.encode("utf-16-le"),
    ],
    ids=range(12),
)
def test_file_that_is_not_toml_is_refused_as_such(data: bytes) -> None:
    with pytest.raises(EvidenceRejected, match=r"^run-1/run\.toml"):
        parse(data, "run-1/run.toml")


@pytest.mark.parametrize(
    "text",
    [
        '"\\u001b[2Jmodel" = 1',
        '"a\\nb" = 1',
        '"\'; DROP TABLE runs; --" = 1',
        'regime = "\\u001b[2J"',
        'regime = "cc_off\'; DROP TABLE runs; --"',
        'baseline = "\\u0000"',
    ],
)
def test_injected_text_is_refused_and_quoted(text: str) -> None:
    _fault(text)


def test_long_value_does_not_make_a_long_error() -> None:
    assert len(_fault(f'regime = "{"x" * 1_000_000}"')) < 10_000


@pytest.mark.parametrize("text", ["", "# nothing\n", "schema = 1\n", "[extra]\n"])
def test_manifest_may_claim_nothing(text: str) -> None:
    assert parse(text.encode(), "run.toml") == Manifest({}, {})


def test_text_of_the_owner_is_kept_whatever_it_is() -> None:
    note = '\'; DROP TABLE runs; --\n\t"ü" 🙂 \\ \x7f'
    assert parse(Manifest({"note": note}, {}).to_toml().encode(), "run.toml").claims == {"note": note}


def test_extra_is_kept_and_lands_as_json(land_files: LandFiles) -> None:
    deep = '[extra.deep]\n"a b" = [1, 2.5, true, {x = "y"}]'
    text = f'[extra]\ncluster = "blue"\nat = 2024-01-01T00:00:00Z\nlimit = inf\n{deep}'
    extra = parse(text.encode(), "run.toml").extra
    assert extra["deep"] == {"a b": [1, 2.5, True, {"x": "y"}]}
    (row,) = land_files({"good.json": GOOD}, manifest=text).runs.to_dicts()
    landed = json.loads(row["extra"])
    assert (landed["cluster"], landed["deep"], landed["at"][:10]) == ("blue", extra["deep"], "2024-01-01")


def test_claims_land_beside_what_the_files_say(land_files: LandFiles) -> None:
    manifest = Manifest({"regime": "cc_off", "world_size": 4, "bucket_cap_mib": 25.0, "note": "a 'b' \"c\""}, {})
    (row,) = land_files({"good.json": GOOD}, manifest=manifest.to_toml()).runs.to_dicts()
    assert (row["regime"], row["world_size"], row["bucket_cap_mib"]) == ("cc_off", 4, 25.0)
    assert (row["note"], row["model"], row["found_world_size"]) == ("a 'b' \"c\"", None, None)


@pytest.mark.parametrize("value", ["", "utc", "CET", "Europe/Berlin", "+2", "+15:00", "+02:60", "+02:00 "])
def test_a_zone_is_utc_or_an_offset(value: str) -> None:
    assert "clock_zone: expected UTC, or hours and minutes" in _fault(f"clock_zone = {json.dumps(value)}")
    assert parse(b'clock_zone = "-05:30"', "run.toml").claims == {"clock_zone": "-05:30"}


# -- there and back --------------------------------------------------------------------------------------------

_ZONES = st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=-3, minutes=-30))])
_SCALARS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["\x7f", "🙂", "\ud7ff", "\x00", "\u2028", '"', "\\", "\r\n"]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.datetimes(timezones=_ZONES),
    st.dates(),
    st.times(),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
)


def _valid(claim: Column) -> st.SearchStrategy[Any]:
    if claim.one_of:
        return st.sampled_from(claim.one_of)
    if claim.name in _RUN_IDS:
        return st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
    if claim.name == "attestation_nonce":
        return st.from_regex(r"(?:[0-9a-f]{2}){16,32}", fullmatch=True)
    if claim.name == "clock_zone":
        return st.from_regex(r"UTC|[+-](0[0-9]|1[0-4]):[0-5][0-9]", fullmatch=True)
    if claim.kind is Kind.INT64:
        return st.integers(1, 2**63 - 1)
    return st.floats(0, 1e18) if claim.kind is Kind.FLOAT64 else st.text(max_size=12)


_MANIFESTS = st.builds(
    Manifest,
    st.fixed_dictionaries({}, optional={claim.name: _valid(claim) for claim in CLAIMS}),
    st.dictionaries(st.text(max_size=6), _VALUES, max_size=4),
)


@settings(max_examples=200)
@given(manifest=_MANIFESTS)
def test_manifest_comes_back_as_it_was_written(manifest: Manifest) -> None:
    text = manifest.to_toml()
    assert parse(text.encode(), "run.toml") == manifest
    assert parse(text.encode(), "run.toml").to_toml() == text
    assert tomllib.loads(text)["schema"] == 1


@pytest.mark.parametrize("value", ["inf", "-inf"])
def test_infinite_extra_comes_back(value: str) -> None:
    manifest = Manifest({}, {"limit": float(value)})
    assert parse(manifest.to_toml().encode(), "run.toml") == manifest


# -- a claim as a person types it -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("world_size", "4", 4), ("bucket_cap_mib", "25", 25.0), ("model", "4", "4"), ("note", "", "")],
)
def test_typed_claim_has_the_kind_of_its_field(name: str, text: str, value: object) -> None:
    typed = claim_from_text(name, text)
    assert (typed, type(typed)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("world_size", "four", "world_size: expected a whole number, found 'four'"),
        ("world_size", "4.0", "world_size: expected a whole number"),
        ("world_size", "1" * 5000, "world_size: expected a whole number"),
        ("world_size", "0", "world_size: expected at least 1"),
        ("bucket_cap_mib", "x", "bucket_cap_mib: expected a number"),
        ("bucket_cap_mib", "nan", "bucket_cap_mib: expected "),
        ("bucket_cap_mib", "inf", "bucket_cap_mib: expected "),
        ("regime", "cc_of", "did you mean 'cc_off'?"),
        ("baseline", "../x", "baseline: expected a run id"),
        ("modle", "x", "did you mean 'model'?"),
    ],
)
def test_wrong_typed_claim_is_refused_before_it_lands(name: str, text: str, said: str) -> None:
    with pytest.raises(EvidenceRejected) as caught:
        parse(Manifest({name: claim_from_text(name, text)}, {}).to_toml().encode(), "run.toml")
    assert said in str(caught.value)
