"""A bad file landed beside a good one: what every test of hostile input asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.traces import GOOD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bronze.limits import Limits
    from tests.conftest import LandedRun, LandFiles

_SENTENCE = re.compile(r"\S+ \S+ \S.*", re.DOTALL)


@dataclass(frozen=True)
class Company:
    """Bad files that have landed, and the good one has kept all its rows."""

    landed: LandedRun

    def names(self, file: str = "bad.json") -> list[str | None]:
        """The names of the events that a bad file gave."""
        return self.landed.events_of(file)["name"].to_list()

    def residues(self, file: str = "bad.json") -> list[str | None]:
        """The texts that its events kept."""
        return self.landed.events_of(file)["residue"].to_list()

    def rejected(self, file: str = "bad.json") -> str:
        """The reason for which a file was refused, which must be a sentence."""
        row = self.landed.file(file)
        assert (row["outcome"], row["format"], row["events_count"]) == ("rejected", "unknown", 0), file
        assert _SENTENCE.fullmatch(str(row["reason"])), row["reason"]
        assert self.landed.events_of(file).is_empty()
        return str(row["reason"])

    def reported(self, file: str = "bad.json") -> str:
        """Why byte ranges of a file could not be read, each of which must be a sentence."""
        assert self.landed.file(file)["outcome"] == "kept", self.landed.file(file)
        reasons = self.landed.reasons_of(file)
        assert len(reasons) == self.landed.file(file)["unreadable_count"]
        for reason in reasons:
            assert _SENTENCE.fullmatch(reason), reason
        return "; ".join(reasons)


@dataclass(frozen=True)
class Beside:
    """Lands bad files beside a good one."""

    land_files: LandFiles

    def __call__(self, bad: bytes | Mapping[str, bytes] | None, limits: Limits | None = None) -> Company:
        """Land one bad file, or several, or with nothing what is in the landing zone already."""
        files = {} if bad is None else {"bad.json": bad} if isinstance(bad, bytes) else bad
        landed = self.land_files({"good.json": GOOD, **files}, limits=limits)
        good = landed.events_of("good.json").select("name", "ts_ns", "duration_ns").rows()
        assert good == [("a", 2000, 2000), ("b", 4000, 4000)]
        assert landed.file("good.json")["outcome"] == "kept"
        assert landed.runs["files_count"].to_list() == [len(landed.files)]
        assert landed.runs["events_count"].to_list() == [len(landed.events)]
        return Company(landed)


@pytest.fixture
def beside(land_files: LandFiles) -> Beside:
    """Lands bad files beside a good one."""
    return Beside(land_files)
