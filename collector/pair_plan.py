"""The plan of a pair: which run of which side comes next, kept in a file that outlives kills and reboots."""

from __future__ import annotations

import json
import os
import random
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from .errors import CollectorError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

VERSION = 1
BASELINE, CANDIDATE = "baseline", "candidate"
State = Literal["started", "landed", "failed", "interrupted"]


@dataclass(frozen=True)
class Side:
    """One side of the pair: how its runs are made, and the mode that the machine must be in for them."""

    role: str
    run_id: str
    mode: str
    variant: str = ""
    ring: dict[str, Any] = field(default_factory=dict)
    cc_mode: str | None = None
    regime: str | None = None
    arguments: tuple[str, ...] = ()


@dataclass
class Attempt:
    """One try at recording a run, under a name of its own."""

    run_id: str
    state: State
    began_at: str
    reason: str | None = None
    took_s: float | None = None
    step_s: float | None = None


@dataclass
class Slot:
    """A run that the plan asks for: a side's repeat in a block."""

    block: int
    side: int
    repeat: int
    run_id: str
    is_traced: bool
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def landed(self) -> Attempt | None:
        """The attempt that landed."""
        return next((attempt for attempt in self.attempts if attempt.state == "landed"), None)

    def next_run_id(self) -> str:
        """A name that no attempt had before."""
        return f"{self.run_id}-retry{len(self.attempts)}" if self.attempts else self.run_id


@dataclass(frozen=True)
class Definition:
    """What a person asked for; it never changes once the first run has begun."""

    landing: str
    workload: dict[str, Any]
    window: dict[str, int]
    sides: tuple[Side, ...]
    repeats: int | None
    detect_fraction: float | None
    most_repeats: int
    runs_per_block: int = 1
    traces: int = 1
    traced_ranks: tuple[int, ...] = ()
    claims: dict[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass
class PairPlan:
    """The definition, and every run of it in the order in which they are to be recorded."""

    definition: Definition
    slots: list[Slot] = field(default_factory=list)

    def add_block(self) -> None:
        """Plan as many runs of every side once more."""
        definition = self.definition
        block = self.slots[-1].block + 1 if self.slots else 0
        for side in order_block(block, len(definition.sides), definition.runs_per_block, definition.seed):
            base = definition.sides[side].run_id
            repeat = sum(slot.side == side for slot in self.slots)
            # Both sides of a null pair are the same run again and again, so its names count on.
            number = sum(definition.sides[slot.side].run_id == base for slot in self.slots)
            run_id = f"{base}-again{number}" if number else base
            self.slots.append(Slot(block, side, repeat, run_id, repeat < definition.traces))

    def pending(self) -> list[Slot]:
        """Runs that have not landed."""
        return [slot for slot in self.slots if slot.landed is None]

    def next_slot(self, possible: Collection[int]) -> Slot | None:
        """The next run where only these sides can be recorded now; none where another side's turn has come.

        A side runs ahead of the others by one block at most: with a reboot between sides the order becomes A BB AA BB.
        """
        pending = self.pending()
        others = [slot.block for slot in pending if slot.side not in possible]
        last = min(others) if others else None
        has_baseline = any(slot.side == 0 and slot.landed for slot in self.slots)
        for slot in pending:
            is_due = last is None or slot.block <= last
            if slot.side in possible and is_due and (has_baseline or slot.side == 0):
                return slot
        return None

    def reference(self, side: int) -> str | None:
        """The first landed run with the name of this side: what its repeats repeat."""
        base = self.definition.sides[side].run_id
        same = [slot for slot in self.slots if self.definition.sides[slot.side].run_id == base]
        return next((slot.landed.run_id for slot in same if slot.landed), None)

    def step_s(self) -> dict[str, list[float]]:
        """The steps of landed runs, by side."""
        found: dict[str, list[float]] = {}
        for slot in self.slots:
            if slot.landed and slot.landed.step_s:
                found.setdefault(str(slot.side), []).append(slot.landed.step_s)
        return found

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "version": VERSION,
            "definition": asdict(self.definition),
            "slots": [asdict(slot) for slot in self.slots],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Read back what `to_json` gave."""
        asked = dict(document["definition"])
        sides = tuple(Side(**{**side, "arguments": tuple(side["arguments"])}) for side in asked.pop("sides"))
        definition = Definition(sides=sides, traced_ranks=tuple(asked.pop("traced_ranks")), **asked)
        slots = [
            Slot(**{**slot, "attempts": [Attempt(**attempt) for attempt in slot["attempts"]]})
            for slot in document["slots"]
        ]
        return cls(definition, slots)


def order_block(block: int, sides: int, runs_per_block: int, seed: int) -> Sequence[int]:
    """The order of a block: ABBA. Two blocks mirror each other, so that a steady drift weighs on all sides alike.

    The first two begin with the baseline, which the others name; of each later two the order is drawn with the seed.
    """
    order = list(range(sides))
    if block > 1:
        random.Random(f"{seed}:{block // 2}").shuffle(order)  # noqa: S311 - an order, not a secret
    if block % 2:
        order.reverse()
    return order * runs_per_block


def save_plan(path: Path, plan: PairPlan) -> None:
    """Replace the file whole, and have it on disk before anything that relies on it is done."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(json.dumps(plan.to_json(), indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load_plan(path: Path) -> PairPlan:
    """Read a plan; one that another version wrote, or nobody did, is refused."""
    try:
        document = json.loads(path.read_text("utf-8"))
        version = document["version"]
        if version == VERSION:
            return PairPlan.from_json(document)
    except FileNotFoundError as error:
        raise CollectorError(
            f"{path}: no such plan; name what to record, for example with --model or a script"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CollectorError(f"{path}: expected a plan of `python -m {__package__} pair`, found {error!r}") from error
    raise CollectorError(f"{path}: expected a plan of version {VERSION}, found {version}; begin a new one")
