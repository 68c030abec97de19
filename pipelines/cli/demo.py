"""`teetotal demo`: the bundled recordings, landed so that the pipeline can run on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lake.errors import EvidenceRejected
from lake.identity import MANIFEST

if TYPE_CHECKING:
    from lake.landing_zone import LandingZone

_SAMPLES = Path(__file__).parents[2] / "samples"
# Two pairs with their repeats: one that sealing slows down, and one with nothing to seal.
FIRST_LOOK = ("bert-base-plain-w2", "bert-base-sealed-w2", "resnet50-plain-w1", "resnet50-sealed-w1")


def land_samples(zone: LandingZone, names: tuple[str, ...] = ("",)) -> list[str]:
    """Land the bundled runs whose names begin so, unless they are there already; give the ids of all of them."""
    recordings = sorted(path.parent for path in _SAMPLES.glob(f"*/{MANIFEST}") if path.parent.name.startswith(names))
    if not recordings:
        raise EvidenceRejected(f"no recordings in {_SAMPLES}", "run the demo from a checkout of the repository")
    present, _ = zone.run_ids()
    for recording in recordings:
        if recording.name not in present:
            files = {path.name: path for path in sorted(recording.iterdir()) if path.name != MANIFEST}
            zone.land(recording.name, files, (recording / MANIFEST).read_text("utf-8"))
    return [recording.name for recording in recordings]
