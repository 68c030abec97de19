"""Named baselines: a small file beside the lake that says which run a name stands for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from assets.build.freshness import Look
from assets.build.run_comparison import split_side
from lake.errors import EvidenceRejected, nearest
from lake.identity import is_slug
from lake.side_files import change_beside, read_beside

if TYPE_CHECKING:
    from lake.locations import Location
    from lake.store import Lake

FILE_NAME = "baselines.json"
_MOST_BYTES = 1 << 20


def read_baselines(place: Location) -> dict[str, str]:
    """All names with the run, or the runs with commas, that each stands for."""
    return _parse(read_beside(place, FILE_NAME, _MOST_BYTES), place)


def find_baseline(place: Location, name: str) -> str:
    """The run that a name stands for."""
    known = read_baselines(place)
    if name not in known:
        hint = nearest(name[:160], known) if known else "there is none yet: teetotal baseline set NAME RUN"
        raise EvidenceRejected(f"no baseline is named {name[:160]!r}", hint)
    return known[name]


def set_baseline(lake: Lake, name: str, run: str) -> str | None:
    """Let a name stand for a run of the lake; gives the run that it stood for before."""
    if not is_slug(name):
        raise EvidenceRejected(f"{name[:80]!r} is no name for a baseline", "letters, digits, '_', '.' and '-'")
    members = ",".join(split_side(Look(lake).measured_runs, run))
    with change_beside(lake.place, FILE_NAME, _MOST_BYTES) as (data, write):
        known = _parse(data, lake.place)
        write(_dump({**known, name: members}))
    return known.get(name)


def remove_baseline(place: Location, name: str) -> str:
    """Forget a name; gives the run that it stood for, which stays."""
    run = find_baseline(place, name)
    with change_beside(place, FILE_NAME, _MOST_BYTES) as (data, write):
        known = _parse(data, place)
        write(_dump({one: of for one, of in known.items() if one != name}))
    return run


def _dump(known: dict[str, str]) -> bytes:
    return (json.dumps(known, indent=2, sort_keys=True) + "\n").encode()


def _parse(data: bytes | None, place: Location) -> dict[str, str]:
    if data is None:
        return {}
    try:
        known = json.loads(data)
    except ValueError:
        known = None
    if not isinstance(known, dict) or not all(isinstance(run, str) for run in known.values()):
        raise EvidenceRejected(
            f"{FILE_NAME} beside {place} is not understood",
            'expected an object such as {"main": "run-id"}: mend it or move it away',
        )
    return known
