"""Which texts may become part of a path or of a predicate."""

from __future__ import annotations

import re

from lake.errors import EvidenceRejected

# The file that makes a directory of the landing zone a run.
MANIFEST = "run.toml"
# The empty file beside it that says that more files of the run will come.
OPEN = ".open"
SLUG = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"


def is_slug(text: str) -> bool:
    """Whether a text is plain enough to be an id."""
    return re.fullmatch(SLUG, text) is not None


def slug(text: str, what: str = "run id") -> str:
    """Give back an id that may reach a path or a predicate; refuse any other text."""
    if not is_slug(text):
        raise EvidenceRejected(
            f"{text[:160]!r} cannot be a {what}",
            "1 to 128 characters: a letter or digit first, then letters, digits, '_', '.' or '-'",
        )
    return text
