"""The ledger of what was released: a budget that is set once, and every release that was paid from it.

A release is paid before its noise is drawn: one that is killed in between is spent, and its numbers are nobody's.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError

from lake.errors import ContractBroken, EvidenceRejected, SourceUnavailable
from lake.locations import Location, report_unreachable
from lake.locks import hold_lock
from lake.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE_NAME = "release-ledger.json"
_VERSION = 1
_MICRO = 1_000_000
_MOST = 100 * _MICRO
_WHAT = "the ledger of releases"
_RESTORE = "put back the ledger as it was: without it nobody knows what is spent"


@dataclass(frozen=True)
class Spent:
    """What a release cost, and where the budget stands after it; in millionths."""

    budget: int
    before: int
    epsilon: int
    number: int

    @property
    def left(self) -> int:
        """What is left of the budget."""
        return self.budget - self.before - self.epsilon


def parse_epsilon(text: str, name: str) -> int:
    """An epsilon as a person writes it, in millionths: sums of them are exact."""
    try:
        found = Decimal(text) * _MICRO
    except InvalidOperation:
        found = Decimal(0)
    if not found.is_finite() or found != found.to_integral_value() or not 0 < found <= _MOST:
        raise ContractBroken(f"{name} is {text[:40]!r}", "expected a number above 0 and up to 100, such as 0.5")
    return int(found)


def format_epsilon(micro: int) -> str:
    """Millionths as a person writes them."""
    return f"{Decimal(micro) / _MICRO:f}"


def pay(lake: Location, epsilon: int, budget: int | None, what: dict[str, Any]) -> Spent:
    """Take an epsilon from the budget, durably, before anything is released; refused where too little is left."""
    with _change(lake) as (held, write):
        ledger = _parse(held, budget)
        spent = sum(entry["epsilon_millionths"] for entry in ledger["releases"])
        total = ledger["budget_millionths"]
        if budget is not None and budget != total:
            raise EvidenceRejected(
                f"the budget of this lake is {format_epsilon(total)}, and was set with its first release",
                "leave --budget out: a budget that can be raised bounds nothing",
            )
        if spent + epsilon > total:
            raise EvidenceRejected(
                f"the budget is spent: {format_epsilon(spent)} of {format_epsilon(total)} are, and this release would "
                f"cost {format_epsilon(epsilon)}",
                f"ask for at most {format_epsilon(total - spent)}" if spent < total else "nothing more may be released",
            )
        number = len(ledger["releases"]) + 1
        entry = {"number": number, "at": datetime.now(UTC).isoformat(timespec="seconds"), "epsilon_millionths": epsilon}
        ledger["releases"].append({**entry, **what})
        write((json.dumps(ledger, indent=1) + "\n").encode())
        return Spent(total, spent, epsilon, number)


def _parse(data: bytes | None, budget: int | None) -> dict[str, Any]:
    if data is None:
        if budget is None:
            raise EvidenceRejected(
                "nothing was released from this lake yet, and it has no budget",
                "say once what all releases together may cost: --budget 2",
            )
        return {"version": _VERSION, "budget_millionths": budget, "releases": []}
    loaded: Any = None
    try:
        loaded = json.loads(data)
        is_ours = loaded["version"] == _VERSION and isinstance(loaded["budget_millionths"], int)
        is_ours = is_ours and all(
            isinstance(entry["epsilon_millionths"], int) and entry["epsilon_millionths"] > 0
            for entry in loaded["releases"]
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        is_ours = False
    if not is_ours:
        raise ContractBroken(f"{FILE_NAME} beside the lake is no ledger of releases", _RESTORE)
    return dict(loaded)


@contextmanager
def _change(lake: Location) -> Iterator[tuple[bytes | None, Callable[[bytes], None]]]:
    """The ledger as it is, and how it is replaced: by one writer at a time, on a disk or in a bucket."""
    if lake.is_local:
        path = Path(lake.root).parent / FILE_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(path.with_name(f".{FILE_NAME}.lock"), f"{_WHAT} beside {lake}"):
            with report_unreachable(f"{path} could not be read"):
                held = path.read_bytes() if path.exists() else None
            yield held, lambda data: write_private(path, data, _WHAT)
        return
    # Inside the lake: beside a whole bucket there is nothing.
    with report_unreachable(f"{FILE_NAME} in {lake} could not be read"):
        try:
            found = lake.store.get(FILE_NAME)
            held = bytes(found.bytes())
            tag = {name: value for name in ("e_tag", "version") if (value := found.meta.get(name)) is not None}
        except (NotFoundError, FileNotFoundError):
            held, tag = None, None

    def put(data: bytes) -> None:
        with report_unreachable(f"{FILE_NAME} in {lake} could not be written"):
            try:
                lake.store.put(FILE_NAME, data, mode="create" if tag is None else tag)  # type: ignore[arg-type]
            except (AlreadyExistsError, PreconditionError):
                raise SourceUnavailable("another release was paid at the same moment", "run it again") from None

    yield held, put
