from __future__ import annotations

import pytest

from report import units


@pytest.mark.parametrize(
    ("time_ns", "answer"),
    [
        (0, "0"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (12_345, "12.3 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (587_317_277, "587 ms"),
        (2_713_858_585, "2.71 s"),
        (1_234_000_000_000, "1,234 s"),
        (-6_031_294, "−6.03 ms"),  # noqa: RUF001
        (0.25, "0.250 ns"),
        (None, "–"),  # noqa: RUF001
        (float("nan"), "–"),  # noqa: RUF001
    ],
)
def test_a_duration_has_three_digits_and_its_unit(time_ns: float | None, answer: str) -> None:
    assert units.format_duration(time_ns) == answer


def test_a_change_has_a_sign_and_none_at_zero() -> None:
    assert [units.format_change(ns) for ns in (5, 0, -5)] == ["+5 ns", "0", "−5 ns"]  # noqa: RUF001


@pytest.mark.parametrize(
    ("bytes_count", "answer"),
    [(1, "1 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (408_912_512, "390 MiB"), (5 << 30, "5.00 GiB")],
)
def test_a_size_is_in_powers_of_1024(bytes_count: int, answer: str) -> None:
    assert units.format_size(bytes_count) == answer


@pytest.mark.parametrize(
    ("fraction", "answer"),
    [(0.0, "0 %"), (1.0, "100 %"), (0.163438, "16.3 %"), (0.000527, "0.0527 %"), (-0.000005, "<0.01 %"), (None, "–")],  # noqa: RUF001
)
def test_a_fraction_is_in_percent_and_never_zero_where_it_is_not(fraction: float | None, answer: str) -> None:
    assert units.format_percent(fraction) == answer


def test_whole_numbers_are_in_full_and_others_to_three_digits() -> None:
    assert [units.format_number(n) for n in (1_484, 2.0, 0.0156, -3, 1e300)] == [
        "1,484",
        "2",
        "0.0156",
        "−3",  # noqa: RUF001
        "1.00e+300",
    ]
    assert units.format_number((1 << 63) - 1) == "9,223,372,036,854,775,807"


def test_a_text_is_cut_to_its_room_and_left_alone_where_it_fits() -> None:
    assert units.clip_text("resnet50", 200, 12) == "resnet50"
    cut = units.clip_text("resnet50" * 9, 100, 12)
    assert cut.endswith("…")
    assert 80 < units.width(cut, 12) <= 100


def test_what_steers_a_reader_is_not_legible() -> None:
    assert units.legible("a\x00b\nc\u202ed\ud800e") == "a b c d e"
