"""A site's own patterns beside ours: asked first, told apart by kind, and refused where two files contradict."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import narwhals as nw

from bronze.span_patterns import FILE_NAME
from lake.errors import EvidenceRejected, nearest
from silver.patterns import KINDS, PATTERNS, SITE_STEP, site_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ID = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MOST_NAME = 200
# What the engines do not read alike: `$`, groups that ask for more, and escapes other than of a sign or the end.
_FOREIGN = re.compile(r"\$|\(\?|\\[^z\\.\[\](){}|*+?^/#:_ -]")
_ON_GPU = ("compute", "collective", "copy", "memset", "crypto")


@dataclass(frozen=True)
class SitePattern:
    """One pattern of a site: events of these categories whose name matches are of this kind."""

    id: str
    kind: str
    categories: tuple[str, ...]
    name: str
    is_step: bool

    @property
    def span_pattern(self) -> str:
        """What `spans.pattern` says of what it matched."""
        return SITE_STEP if self.is_step else site_id(self.kind)


@dataclass(frozen=True)
class SitedPatterns:
    """Our patterns with a site's before them: the one question that a site's answer changes."""

    patterns: tuple[SitePattern, ...] = ()

    @property
    def sha256(self) -> str:
        """A digest of the site's patterns; the same for none as before there were any."""
        identity = [[one.id, one.kind, one.categories, one.name, one.is_step] for one in self.patterns]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    def pattern(self, category: str, name: str) -> nw.Expr:
        """The id of the first pattern that matches, the site's first."""
        found = PATTERNS.pattern(category, name)
        for entry in reversed(self.patterns):
            hit = nw.col(category).is_in(entry.categories) & nw.col(name).str.contains(entry.name)
            found = nw.when(hit).then(nw.lit(entry.span_pattern)).otherwise(found)
        return found

    def may_be_step(self, name: str) -> nw.Expr:
        """Whether a name matches a pattern of a step: a sieve before the decision."""
        found = nw.lit(False)
        for entry in self.patterns:
            if entry.is_step:
                found |= nw.col(name).str.contains(entry.name).fill_null(False)
        return found


NO_SITE = SitedPatterns()


def combine_patterns(files: Iterable[tuple[str, Iterable[Mapping[str, Any]]]]) -> SitedPatterns:
    """The patterns of several files, in their order; one id with two meanings is refused by name."""
    found: dict[str, tuple[SitePattern, str]] = {}
    for where, rows in files:
        for row in rows:
            entry = _check_pattern(row, where)
            known, there = found.get(entry.id, (entry, where))
            if known != entry:
                raise EvidenceRejected(
                    f"pattern {entry.id} means one thing in {there} and another in {where}",
                    "give one of the two another id, or make them equal",
                )
            found.setdefault(entry.id, (entry, where))
    return SitedPatterns(tuple(entry for entry, _ in found.values()))


def _check_pattern(row: Mapping[str, Any], where: str) -> SitePattern:
    name, kind = str(row["pattern_id"]), str(row["kind"])
    said = f"pattern {name[:64]!r} of {where}"
    if _ID.fullmatch(name) is None:
        raise EvidenceRejected(f"{said} has no id of lower-case letters, digits and underscores", f"see {FILE_NAME}")
    if name in PATTERNS.ids:
        raise EvidenceRejected(f"{said} has the id of one of ours", "choose another: ours stay as they are")
    if kind not in KINDS:
        raise EvidenceRejected(f"{said} is of kind {kind[:64]!r}, which there is not", nearest(kind, KINDS))
    pattern = str(row["name_pattern"])
    try:
        re.compile(pattern.replace(r"\z", r"\Z"))
    except re.error as error:
        raise EvidenceRejected(f"{said} is no regular expression: {error}") from error
    if not pattern or len(pattern) > _MOST_NAME or _FOREIGN.search(pattern):
        raise EvidenceRejected(
            f"{said} uses what not every engine reads alike",
            r"use literals, classes, groups, alternatives, ^ \z * + ? {m,n}, in at most 200 letters",
        )
    default = ["kernel"] if kind in _ON_GPU and not row["is_step"] else ["user_annotation"]
    categories = default if row["categories"] is None else json.loads(row["categories"])
    strangers = [one for one in categories if one not in PATTERNS.known_categories]
    if strangers or not categories:
        raise EvidenceRejected(
            f"{said} is asked of {', '.join(strangers)[:64] or 'no category'}",
            f"categories are {', '.join(PATTERNS.known_categories)}",
        )
    return SitePattern(name, "annotation" if row["is_step"] else kind, tuple(categories), pattern, row["is_step"])
