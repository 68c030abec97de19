"""One heading of a page, with what stands under it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from report.figure import Figure
    from report.markup import Markup


@dataclass(frozen=True)
class Section:
    """One heading: a sentence, what stands before its figures, the figures by name, and what stands after them."""

    name: str
    title: str
    lead: str = ""
    before: tuple[Markup, ...] = ()
    figures: tuple[tuple[str, Figure], ...] = ()
    after: tuple[Markup, ...] = ()
    kind: str | None = None

    @property
    def is_there(self) -> bool:
        """Whether it has anything to say."""
        return bool(self.lead or self.before or self.figures or self.after)
