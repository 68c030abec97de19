"""Requests to an object store that were cut off: nobody knows whether the store did what was asked, so look and repeat.

A store's client repeats by itself what it can repeat blindly. What it cannot is a conditional put, such as the entry of
a commit or the claim of a landing, which is repeated here by whoever can tell its own from another's; and a delete,
which S3 takes as a POST. What it could and does not is a listing, or a "not there", that is cut off in its middle.
"""

from __future__ import annotations

import random
import re
import time
from typing import TYPE_CHECKING, TypeVar

import obstore
from deltalake.exceptions import DeltaError
from obstore.exceptions import AlreadyExistsError, BaseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from obstore import ObjectMeta
    from obstore.store import ObjectStore

Answer = TypeVar("Answer")

_TRIES = 8
_FIRST_WAIT_S = 0.05
# As long as the clients themselves repeat what they can: a store that never answers is told after a few minutes.
_PATIENCE_S = 180.0
# As the HTTP client of both libraries says it; a server that answers, with whatever status, is not cut off.
_HALF_ANSWERS = re.compile(r"error decoding response body|response body error", re.IGNORECASE)
_TEXTS = re.compile(
    rf"{_HALF_ANSWERS.pattern}|error sending request|operation timed out|connection (?:reset|closed)", re.IGNORECASE
)


def is_cut_off(error: BaseException, texts: re.Pattern[str] = _TEXTS) -> bool:
    """Whether a request failed without an answer, or without all of it."""
    return isinstance(error, (OSError, BaseError, DeltaError)) and texts.search(str(error)) is not None


def repeat_cut_off(act: Callable[[], Answer], texts: re.Pattern[str] = _TEXTS) -> Answer:
    """Do what may be done twice; again, after a while, where it was cut off."""
    deadline = time.monotonic() + _PATIENCE_S
    for attempt in range(_TRIES):
        try:
            return act()
        except (OSError, BaseError, DeltaError) as error:
            if not is_cut_off(error, texts) or attempt == _TRIES - 1 or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.5, 1) * _FIRST_WAIT_S * 2**attempt)  # noqa: S311 - jitter, not a secret
    raise AssertionError("unreachable")


def repeat_read(act: Callable[[], Answer]) -> Answer:
    """Read; again, where an answer was cut off in its middle: all else the client has repeated long enough."""
    return repeat_cut_off(act, _HALF_ANSWERS)


def fetch_object(store: ObjectStore, path: str) -> bytes:
    """All bytes of an object; one that is not there is an error."""
    return repeat_read(lambda: bytes(obstore.get(store, path).bytes()))


def list_objects(store: ObjectStore, prefix: str | None = None, *, offset: str | None = None) -> list[ObjectMeta]:
    """The objects whose paths lie below a prefix, and after an offset."""
    return repeat_read(lambda: [item for page in obstore.list(store, prefix, offset=offset) for item in page])


def put_new(store: ObjectStore, path: str, data: bytes) -> None:
    """Put an object where there is none; one that is there is an error, unless it is what a put of ours left."""
    was_cut_off = False

    def put() -> None:
        nonlocal was_cut_off
        try:
            obstore.put(store, path, data, mode="create")
        except AlreadyExistsError:
            if not was_cut_off or fetch_object(store, path) != data:
                raise
        except BaseError:
            was_cut_off = True
            raise

    repeat_cut_off(put)


def delete_object(store: ObjectStore, path: str) -> None:
    """Delete an object; one that is not there is an error, unless a delete of ours that was cut off may be why."""
    was_cut_off = False

    def delete() -> None:
        nonlocal was_cut_off
        try:
            obstore.delete(store, path)
        except FileNotFoundError:
            if not was_cut_off:
                raise
        except BaseError:
            was_cut_off = True
            raise

    repeat_cut_off(delete)
