"""Which runs are up to date, as tests ask it: of bronze beside its landing zone, and of tables of silver or gold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assets.build import bronze
from assets.build.freshness import Look, find_up_to_date
from lake.attestation_keys import NO_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lake.attestation_keys import AttestationKeys
    from lake.landing_zone import LandingZone
    from lake.store import Lake
    from lake.tables import Table


def find_landed(lake: Lake, zone: LandingZone, run_ids: Iterable[str], keys: AttestationKeys = NO_KEYS) -> set[str]:
    """The runs that all bronze tables hold as they lie in the landing zone."""
    return find_up_to_date(Look(lake, zone, keys), bronze.TABLES, run_ids)


def find_made(lake: Lake, run_ids: Iterable[str], tables: Sequence[Table]) -> set[str]:
    """The runs of which all these tables are made from what lies upstream of them."""
    return find_up_to_date(Look(lake), tables, run_ids)
