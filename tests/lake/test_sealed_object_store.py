"""Sealed files, a sealed bronze and the ledger of releases in an object store: as on a disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import obstore
import pytest

from assets.build.bronze import materialise
from bronze import source_files, trace_events
from bronze.limits import Limits
from lake.errors import EvidenceRejected, SourceUnavailable
from lake.keyring import Key, Keyring
from lake.landing_zone import LandingZone
from lake.privacy_ledger import pay
from lake.sealed_files import MAGIC, LandingSeals, find_recipient
from lake.store import Lake

if TYPE_CHECKING:
    from pathlib import Path

KEY = Key("k0000001", "2026-01-01T00:00:00Z", bytes(64))
RING = Keyring("a keyring", KEY.key_id, (KEY,))
RUN = "run-1"


def test_a_run_lands_sealed_in_a_bucket_and_becomes_a_sealed_bronze(
    remote_lake: Lake, remote_zone: LandingZone, lake: Lake, zone: LandingZone, files: dict[str, Path]
) -> None:
    zone.land(RUN, files, 'regime = "cc_off"\n')
    materialise(lake, zone, RUN, Limits())
    sealed_zone = LandingZone(remote_zone.place, LandingSeals(lambda: RING, must_be_sealed=True))
    sealed_zone.land(RUN, files, 'regime = "cc_off"\n', find_recipient(RING))
    for page in obstore.list(remote_zone.place.store):
        for item in page:
            assert bytes(obstore.get(remote_zone.place.store, item["path"]).bytes()).startswith(MAGIC)
    sealed_lake = Lake(remote_lake.place, lambda: RING, seals_bronze=True)
    materialise(sealed_lake, sealed_zone, RUN, Limits())
    assert sealed_lake.has_sealed_source(trace_events.TABLE)
    kept = ["file_name", "format", "outcome", "rows_count"]
    plain, opened = (
        one.scan(source_files.TABLE).sort("file_name").select(kept).collect() for one in (lake, sealed_lake)
    )
    assert opened.equals(plain)
    names = [one.scan(trace_events.TABLE).select("name").collect()["name"].sort() for one in (lake, sealed_lake)]
    assert names[0].equals(names[1])


def test_releases_at_once_from_two_machines_never_spend_more_than_there_is(remote_lake: Lake) -> None:
    def pay_often(_: int) -> int:
        paid = 0
        for _attempt in range(200):
            try:
                pay(remote_lake.place, 100_000, 1_000_000, {})
                paid += 1
            except SourceUnavailable:  # another was first
                continue
            except EvidenceRejected:
                return paid
        return paid

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(pay_often, range(3))) == 10
    with pytest.raises(EvidenceRejected, match="the budget is spent"):
        pay(remote_lake.place, 1, None, {})
