"""What every stage works with: the lake, the landing zone, the bounds, and someone who may look on."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gold.margin import MARGIN
from lake.attestation_keys import NO_KEYS
from lake.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from assets.build.tiers import TierResult
    from bronze.limits import Limits
    from bronze.read_file import Progress
    from lake.attestation_keys import AttestationKeys
    from lake.errors import LakeError
    from lake.landed_files import LandedFile
    from lake.landing_zone import LandingZone
    from lake.store import Lake


class BuildListener:
    """Told what goes on while runs are made; this one takes no notice."""

    def track_files(self, run_id: str, files: Sequence[LandedFile]) -> AbstractContextManager[Progress]:  # noqa: ARG002
        """A teller for the readers of a run's files."""
        return nullcontext(lambda _name, _bytes, _rows: None)

    def on_begun(self, what: str) -> None:
        """Something begins that may take a while: a tier, its checks, pairs, comparisons."""

    def on_built(self, made: TierResult) -> None:
        """A tier of a run was made, or could not be."""

    def on_failed(self, run_id: str, fault: LakeError) -> None:
        """A run goes no further."""


@dataclass(frozen=True)
class BuildContext:
    """One lake and all that is needed to bring it up to date; the same for a command, a schedule and the UI."""

    lake: Lake
    zone: LandingZone
    limits: Limits
    docs: Path | None = None
    keys: AttestationKeys = NO_KEYS
    listener: BuildListener = field(default_factory=BuildListener)
    spark: Cluster = field(default_factory=Cluster)
    # What looks at the rows when tables are held to their word: duckdb or spark.
    checks: str = "duckdb"
    # The largest difference between two groups of runs that counts as none.
    margin: float = MARGIN
