from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lake.errors import EvidenceRejected, SourceUnavailable
from lake.locations import Location
from lake.side_files import change_beside, read_beside

if TYPE_CHECKING:
    from pathlib import Path

NAME, MOST = "names.json", 1000


def add_name(place: Location, name: str) -> None:
    with change_beside(place, NAME, MOST) as (data, write):
        write(json.dumps([*json.loads(data or b"[]"), name]).encode())


def test_writers_of_one_machine_take_turns_so_that_none_is_lost(tmp_path: Path) -> None:
    place = Location.of(tmp_path / "lake")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add_name(place, str(number)), range(24)))
    assert sorted(json.loads(read_beside(place, NAME, MOST) or b""), key=int) == [str(number) for number in range(24)]


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    place = Location.of(tmp_path / "lake")
    add_name(place, "kept")
    with pytest.raises(ZeroDivisionError), change_beside(place, NAME, MOST):
        _ = 1 / 0
    assert read_beside(place, NAME, MOST) == b'["kept"]'


def test_beside_a_whole_bucket_nothing_can_lie() -> None:
    place = Location.of("s3://bucket")
    assert read_beside(place, NAME, MOST) is None
    with pytest.raises(EvidenceRejected, match="keep the lake in a folder of it"), change_beside(place, NAME, MOST):
        pass


def test_a_change_that_another_machine_overtook_is_refused_and_loses_nothing(
    bucket: str, options: dict[str, str]
) -> None:
    place = Location.of(f"{bucket}/folder/lake", options)
    add_name(place, "first")
    with change_beside(place, NAME, MOST) as (data, write):
        add_name(place, "second")
        assert data == b'["first"]'
        with pytest.raises(SourceUnavailable, match="changed by another machine"):
            write(b'["first", "third"]')
    assert json.loads(read_beside(place, NAME, MOST) or b"") == ["first", "second"]
    add_name(place, "third")
    assert json.loads(read_beside(place, NAME, MOST) or b"") == ["first", "second", "third"]


def test_of_two_machines_that_make_the_file_one_is_first(bucket: str, options: dict[str, str]) -> None:
    place = Location.of(f"{bucket}/folder/lake", options)
    with change_beside(place, NAME, MOST) as (data, write):
        assert data is None
        add_name(place, "first")
        with pytest.raises(SourceUnavailable, match="changed by another machine"):
            write(b'["second"]')
    assert read_beside(place, NAME, MOST) == b'["first"]'
