"""A very small drawer of SVG: marks one under another, every text escaped, the same marks give the same bytes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from report.units import clipped, legible, width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WIDTH = 720
MARGIN = 20
RIGHT = WIDTH - MARGIN
INK, MUTED, FAINT, GRID, PAPER = "#1f2328", "#57606a", "#8c959f", "#d8dee4", "#ffffff"
BAD = "#b3261e"
SIZE, SMALL = 12, 11
_FONT = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"
_BOLD = 1.12  # bold letters are that much wider
_NEAR = 44  # labels of an axis that stand nearer would touch
_LONGEST_TITLE = 240


class Drawing:
    """One picture on its own paper, so that it can be read in a light and in a dark page alike."""

    def __init__(self, title: str, subtitle: str) -> None:
        self._title = title
        self._subtitle = subtitle
        self._marks: list[str] = []
        self.y = 66.0
        self.text(MARGIN, 30, title, px=16, weight=600)
        self.text(MARGIN, 48, subtitle, colour=MUTED)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        px: int = SIZE,
        colour: str = INK,
        anchor: str = "start",
        weight: int = 400,
        most_px: float | None = None,
        has_halo: bool = False,
    ) -> None:
        """Write a text; it is cut where it would leave its room, or the paper."""
        room = x - MARGIN if anchor == "end" else RIGHT - x
        room = (room if most_px is None else most_px) / (_BOLD if weight > 400 else 1)
        shown = clipped(legible(text), room, px)
        bold = f' font-weight="{weight}"' if weight != 400 else ""
        halo = f' stroke="{PAPER}" stroke-width="4" paint-order="stroke"' if has_halo else ""
        aside = f' text-anchor="{anchor}"' if anchor != "start" else ""
        at = f'x="{number(x)}" y="{number(y)}" font-size="{px}" fill="{colour}"'
        self._marks.append(f"<text {at}{aside}{bold}{halo}>{escape(shown)}</text>")

    def rect(self, x: float, y: float, wide: float, high: float, colour: str, title: str = "") -> None:
        """Draw a bar; its title says what it stands for."""
        at = f'x="{number(x)}" y="{number(y)}" width="{number(wide)}" height="{number(high)}"'
        self._mark("rect", f'{at} fill="{colour}"', title)

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = GRID, *, px: float = 1) -> None:
        """Draw a line."""
        at = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
        self._mark("line", f'{at} stroke="{colour}" stroke-width="{number(px)}"', "")

    def dashed(self, x1: float, y1: float, x2: float, y2: float, colour: str, title: str) -> None:
        """Draw a line that is modelled, not measured."""
        at = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
        self._mark("line", f'{at} stroke="{colour}" stroke-width="1.5" stroke-dasharray="5 4"', title)

    def dot(self, x: float, y: float, colour: str, title: str, *, radius: float = 5, hollow: bool = False) -> None:
        """Draw a point; a hollow one is known at second hand, or stands apart from the others."""
        fill = f'fill="{PAPER if hollow else colour}" stroke="{colour if hollow else PAPER}" stroke-width="1.5"'
        self._mark("circle", f'cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" {fill}', title)

    def area(self, points: list[tuple[float, float]], within: tuple[Scale, Scale], colour: str, title: str) -> None:
        """Fill what several points enclose, as far as it lies within two scales."""
        across, up = within
        box = " ".join(map(number, (across.left, up.right, across.right - across.left, up.left - up.right)))
        x, y, wide, high = box.split()
        told = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self._marks.append(f'<svg x="{x}" y="{y}" width="{wide}" height="{high}" viewBox="{box}">')
        self._mark("polygon", f'points="{told}" fill="{colour}"', title)
        self._marks.append("</svg>")

    def axis(self, scale: Scale, bands: Iterable[tuple[float, float]], told: Callable[[float], str]) -> None:
        """Draw a scale's ticks through each band, and name them under the last."""
        lowest = 0.0
        for top, bottom in bands:
            lowest = bottom
            for tick in scale.ticks:
                self.line(scale.at(tick), top, scale.at(tick), bottom)
        for tick in scale.ticks:
            self.text(scale.at(tick), lowest + 14, rounded(told(tick)), px=SMALL, colour=MUTED, anchor="middle")

    def legend(self, entries: list[tuple[str, str]]) -> None:
        """Say once what the colours stand for, in rows that fit the paper."""
        x = float(MARGIN)
        for name, colour in entries:
            wide = 16 + width(name, SMALL) + 16
            if x > MARGIN and x + wide > RIGHT:
                x, self.y = float(MARGIN), self.y + 18
            self.rect(x, self.y, 10, 10, colour)
            self.text(x + 15, self.y + 9, name, px=SMALL)
            x += wide
        self.y += 24

    def more(self, count: int, noun: str) -> None:
        """Say what was left out."""
        if count > 0:
            self.note(f"and {count:,} more {noun}{'' if count == 1 else 's'}")

    def note(self, text: str, *, colour: str = MUTED, x: float = MARGIN) -> None:
        """Write a line under what was drawn so far."""
        self.text(x, self.y + 12, text, px=SMALL, colour=colour)
        self.y += 20

    def finished(self) -> str:
        """The whole picture, one mark a line."""
        high = number(self.y + MARGIN / 2)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{high}" viewBox="0 0 {WIDTH} {high}" '
            f'role="img" font-family="{_FONT}">'
        )
        named = f"<title>{escape(legible(self._title))}</title>\n<desc>{escape(legible(self._subtitle))}</desc>"
        edge = f'fill="{PAPER}" stroke="{GRID}"'
        paper = f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{number(self.y + 9)}" rx="6" {edge}/>'
        return "\n".join((head, named, paper, *self._marks, "</svg>", ""))

    def _mark(self, name: str, facts: str, title: str) -> None:
        if title:
            told = escape(legible(title)[:_LONGEST_TITLE])
            self._marks.append(f"<{name} {facts}><title>{told}</title></{name}>")
        else:
            self._marks.append(f"<{name} {facts}/>")


@dataclass(frozen=True)
class Scale:
    """Where a number stands between two edges; beyond them it stands at the edge."""

    low: float
    high: float
    left: float
    right: float
    is_log: bool = False
    marked: float | None = None

    def at(self, value: float) -> float:
        """The place of a number, in pixels."""
        return self._place(value, 0.0, 1.0)

    def beyond(self, value: float) -> float:
        """The place of a number that may lie outside, for what is cut at the edges when it is drawn."""
        return self._place(value, -20.0, 20.0)

    def _place(self, value: float, least: float, most: float) -> float:
        low, high, value = (self._stretched(each) for each in (self.low, self.high, value))
        # Halves, so that the span between the largest numbers is still a number.
        span = high / 2 - low / 2
        share = (value / 2 - low / 2) / span if span > 0 else 0.0
        return self.left + (self.right - self.left) * min(max(least, share), most)

    @property
    def ticks(self) -> list[float]:
        """A few round numbers between the edges, and the marked one in place of what is near it."""
        found = self._powers() if self.is_log else self._steps()
        if self.marked is None:
            return found
        place = self.at(self.marked)
        return sorted([self.marked, *(tick for tick in found if abs(self.at(tick) - place) > _NEAR)])

    def _stretched(self, value: float) -> float:
        if not self.is_log:
            return float(value)
        return math.log10(max(value, self.low))

    def _steps(self) -> list[float]:
        span = self.high / 4 - self.low / 4
        if not span > 0 or not math.isfinite(span):
            return [self.low]
        magnitude = 10.0 ** math.floor(math.log10(span))
        step = next(magnitude * part for part in (1, 2, 5, 10) if magnitude * part >= span * 0.999)
        first, last = math.ceil(self.low / step * 0.999999), math.floor(self.high / step * 1.000001)
        return [step * place for place in range(first, last + 1)][:12]

    def _powers(self) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        every = max(1, (last - first) // 6)
        powers = [10.0**power for power in range(first, last + 1, every)]
        if last - first >= 2:
            return powers
        parts = [10.0**power * part for power in range(first - 1, last + 1) for part in (1, 2, 5)]
        return [part for part in parts if self.low * 0.999 <= part <= self.high * 1.001]


def rounded(told: str) -> str:
    """The name of a tick: a round number needs no digits after its point."""
    return re.sub(r"\.0+(?!\d)", "", told)


def number(value: float) -> str:
    """A place or a length, to two decimals."""
    told = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if told in {"-0", ""} else told


def text_on(colour: str) -> str:
    """Dark or light letters, whichever are read more easily on a colour."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return INK if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.25 else PAPER
