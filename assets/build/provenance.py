"""What a statement says of how a table is made: its code, the policy files that decide its rows, the software."""

from __future__ import annotations

import hashlib
import platform
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from assets.build.freshness import digest_code
from bronze import span_patterns
from gold import published
from lake.digest import combine
from lake.lineage.recorder import Lineage
from lake.lineage.statements import LANDING, Build, Material
from lake.side_files import read_beside
from silver import attestations, device_samples
from silver.patterns import PATTERNS
from silver.policy import POLICY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lake.attestation_keys import AttestationKeys
    from lake.lineage.keys import SigningKeys
    from lake.locations import Location
    from lake.tables import Table

_SOFTWARE = ("teetotal", "cryptography", "deltalake", "duckdb", "narwhals", "polars", "pyarrow")
_POLICIES = {
    "silver": (
        Material("policy/silver/patterns", PATTERNS.sha256),
        Material("policy/silver/sealing_policy", POLICY.sha256),
        Material("policy/silver/device_metrics", device_samples.METRICS_SHA256),
        Material("policy/silver/attestation_policy", attestations.POLICY_SHA256),
    )
}
_PUBLISHED = Material("policy/gold/published", published.PUBLISHED.sha256)


def make_lineage(place: Location, keys: SigningKeys | None, parameters: Mapping[str, str]) -> Lineage | None:
    """What signs the commits of a lake; none where nobody does."""
    if keys is None:
        return None
    return Lineage(place, keys, partial(_describe_build, place, parameters), {"engine": "polars"})


def list_sources(
    run_id: str, manifest: bytes, digests: Iterable[str | None], keys: AttestationKeys
) -> tuple[list[Material], list[Material]]:
    """A run's files as statements name them, its manifest among them: all as one, and each; without their names."""
    found = {digest for digest in digests if digest is not None} | {hashlib.sha256(manifest).hexdigest()}
    place = f"{LANDING}/{run_id}"
    whole = [Material(place, combine(found))]
    whole += [Material("policy/attestation_keys", keys.sha256)] if keys.sha256 else []
    return whole, [Material(f"{place}/{digest[:16]}", digest) for digest in sorted(found)]


def _describe_build(place: Location, parameters: Mapping[str, str], table: Table) -> Build:
    policies = list(_POLICIES.get(table.tier, ()))
    if table.tier == "silver":
        site = read_beside(place, span_patterns.FILE_NAME, span_patterns.MOST_BYTES)
        policies += [] if site is None else [Material("policy/site/span_patterns", hashlib.sha256(site).hexdigest())]
    elif table == published.TABLE:
        policies.append(_PUBLISHED)
    code = {} if table.tier == "checks" else {"code_sha256": digest_code(table)}
    return Build({**parameters, **code}, policies, _read_versions())


@cache
def _read_versions() -> dict[str, str]:
    return {**{name: version(name) for name in _SOFTWARE}, "python": platform.python_version()}
