"""`teetotal demo`: the bundled recordings, landed so that the pipeline can run on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lake.errors import EvidenceRejected
from lake.identity import MANIFEST

if TYPE_CHECKING:
    from lake.landing_zone import LandingZone

_SAMPLES = Path(__file__).parents[2] / "samples"


def land_samples(zone: LandingZone) -> list[str]:
    """Land every bundled run that is not in the landing zone yet; give the ids of all of them."""
    recordings = sorted(path.parent for path in _SAMPLES.glob(f"*/{MANIFEST}"))
    if not recordings:
        raise EvidenceRejected(f"no recordings in {_SAMPLES}", "run the demo from a checkout of the repository")
    present, _ = zone.run_ids()
    for recording in recordings:
        if recording.name not in present:
            files = {path.name: path for path in sorted(recording.iterdir()) if path.name != MANIFEST}
            zone.land(recording.name, files, (recording / MANIFEST).read_text("utf-8"))
    return [recording.name for recording in recordings]
