"""What names mean, read from `span_kinds.toml` and turned into expressions that every engine evaluates alike."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import narwhals as nw

KINDS = (
    "compute",
    "collective",
    "copy",
    "memset",
    "crypto",
    "transport",
    "wait",
    "blocking_copy",
    "launch",
    "sync",
    "annotation",
    "host",
)
UNKNOWN_ON_GPU = "unknown_on_gpu"
UNKNOWN_ON_HOST = "unknown_on_host"
SITE_STEP = "site_step"
_SITE = "site_"


def site_id(kind: str) -> str:
    """What `spans.pattern` says where a site's own pattern decided the kind."""
    return f"{_SITE}{kind}"


SITE_IDS = (*(site_id(kind) for kind in KINDS), SITE_STEP)
# What people named themselves, on the host: their text is sensitive.
_PRIVATE_SITE_IDS = (site_id("annotation"), site_id("host"), SITE_STEP)
OWN_NAMES = (UNKNOWN_ON_GPU, UNKNOWN_ON_HOST, *SITE_IDS)
_FILE = Path(__file__).with_name("span_kinds.toml")


@dataclass(frozen=True)
class Pattern:
    """One line of the file: events of these categories whose name matches are of this kind."""

    id: str
    kind: str
    categories: tuple[str, ...]
    name: str | None
    is_private: bool


class Patterns:
    """The file as it is, and the questions that transforms ask of it."""

    def __init__(self, data: bytes) -> None:
        document: dict[str, Any] = tomllib.loads(data.decode())
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.version: int = document["version"]
        self.patterns = tuple(
            Pattern(
                entry["id"],
                entry["kind"],
                tuple(entry["categories"]),
                entry.get("name"),
                entry.get("is_private", False),
            )
            for entry in document["pattern"]
        )
        self._categories: dict[str, str] = document["categories"]
        self._gpu: list[str] = document["gpu"]["categories"]
        self._words: dict[str, list[tuple[str, str]]] = {
            what: [(entry["is"], entry["name"]) for entry in document[what]]
            for what in ("direction", "memory", "library", "collective")
        }
        self._not_collectives: list[str] = document["not_collectives"]["names"]
        self._element_bytes: dict[str, int] = document["element_bytes"]

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Every value that `spans.pattern` may have."""
        return (*(pattern.id for pattern in self.patterns), *OWN_NAMES)

    @cached_property
    def known_categories(self) -> tuple[str, ...]:
        """The categories that patterns are asked of."""
        return tuple(sorted({name for pattern in self.patterns for name in pattern.categories}))

    @cached_property
    def catch_alls(self) -> tuple[str, ...]:
        """The patterns that take what no other does: to know better than they is no contradiction."""
        return (*(pattern.id for pattern in self.patterns if pattern.name is None), *OWN_NAMES)

    def words(self, what: str) -> tuple[str, ...]:
        """The closed set of a word list: direction, memory, library or collective."""
        return tuple(dict.fromkeys(word for word, _ in self._words[what]))

    def category(self, column: str) -> nw.Expr:
        """The category as today's profiler spells it; one that nobody knows stays as it is."""
        found = nw.col(column)
        for category in sorted(set(self._spellings.values())):
            found = nw.when(self.is_category(column, category)).then(nw.lit(category)).otherwise(found)
        return found

    def is_known(self, column: str) -> nw.Expr:
        """Whether a category, as today's profiler spells it, is one of the profiler's."""
        return nw.col(column).is_in(sorted(set(self._spellings.values())))

    def is_category(self, column: str, *categories: str) -> nw.Expr:
        """Whether the source means one of these categories, however it spells it."""
        spellings = [spelling for spelling, category in self._spellings.items() if category in categories]
        return nw.col(column).is_in(spellings)

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """Every spelling of a known category: as it is listed, capitalised, and in capitals.

        Written out, since engines do not agree on the lower case of every letter.
        """
        known = {name for pattern in self.patterns for name in pattern.categories}
        listed = {**self._categories, **{name: name for name in sorted(known)}}
        return {
            spelling: category
            for name, category in listed.items()
            for spelling in (name, name.capitalize(), name.upper())
        }

    def is_gpu(self, category: str) -> nw.Expr:
        """Whether a row ran on a GPU: its category says so, never an argument."""
        return nw.col(category).is_in(self._gpu)

    def pattern(self, category: str, name: str) -> nw.Expr:
        """The id of the first pattern that matches; of a name that none matches, where it ran."""
        unknown = nw.when(self.is_gpu(category)).then(nw.lit(UNKNOWN_ON_GPU)).otherwise(nw.lit(UNKNOWN_ON_HOST))
        found = unknown
        for entry in reversed(self.patterns):
            hit = nw.col(category).is_in(entry.categories)
            if entry.name is not None:
                hit &= nw.col(name).str.contains(entry.name)
            found = nw.when(hit).then(nw.lit(entry.id)).otherwise(found)
        return found

    def may_be(self, name: str, kind: str, *ids: str) -> nw.Expr:
        """Whether a name matches any pattern of a kind, or one of these patterns: a sieve before the decision."""
        wanted = [entry.name for entry in self.patterns if entry.name and (entry.kind == kind or entry.id in ids)]
        return nw.col(name).str.contains("|".join(f"({pattern})" for pattern in wanted))

    def kind(self, pattern: str) -> nw.Expr:
        """The kind that a pattern stands for; an unknown name on a GPU is compute."""
        found = nw.when(nw.col(pattern) == UNKNOWN_ON_GPU).then(nw.lit("compute")).otherwise(nw.lit("host"))
        for kind in KINDS:
            ids = [*(entry.id for entry in self.patterns if entry.kind == kind), site_id(kind)]
            ids += [SITE_STEP] if kind == "annotation" else []
            found = nw.when(nw.col(pattern).is_in(ids)).then(nw.lit(kind)).otherwise(found)
        return found

    def is_private(self, pattern: str) -> nw.Expr:
        """Whether the name is a person's own text."""
        ids = [entry.id for entry in self.patterns if entry.is_private]
        return nw.col(pattern).is_in([*ids, UNKNOWN_ON_HOST, *_PRIVATE_SITE_IDS])

    def has_pattern(self, pattern: str, *ids: str) -> nw.Expr:
        """Whether one of these patterns matched; an id that the file does not have is a programming error."""
        missing = set(ids) - set(self.ids)
        if missing:
            raise KeyError(*missing)
        return nw.col(pattern).is_in(ids)

    def word(self, what: str, name: nw.Expr) -> nw.Expr:
        """The first word of a list whose pattern is found in a name; null where none is."""
        found = nw.lit(None).cast(nw.String)
        for word, pattern in reversed(self._words[what]):
            found = nw.when(name.str.contains(pattern)).then(nw.lit(word)).otherwise(found)
        return found

    def collective(self, name: nw.Expr) -> nw.Expr:
        """The collective that a name spells, whatever the library; null for waits and for names of none."""
        return nw.when(~name.is_in(self._not_collectives)).then(self.word("collective", name))

    def element_bytes(self, dtype: str) -> nw.Expr:
        """Bytes of an element; null for a type that the file does not list."""
        found = nw.lit(None).cast(nw.Int64)
        for name, size in self._element_bytes.items():
            found = nw.when(nw.col(dtype) == name).then(nw.lit(size)).otherwise(found)
        return found


PATTERNS = Patterns(_FILE.read_bytes())
# Modules of PyTorch, of torch's own classes and of others.
MODULES = ("torch_module", "own_module")
# Frames of Python lie around everything that they call: they are no work by themselves.
PYTHON_FRAMES = (*MODULES, "python_library", "python_line", "python_frame")
