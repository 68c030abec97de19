"""What the parts of a step are called and how they are coloured, the same in every picture and on the page."""

from __future__ import annotations

from gold.time_breakdown import PARTS

# Ink and paper by day. The page gives these very values another colour by night, so nothing else may use them.
INK, MUTED, FAINT, GRID, PAPER = "#1f2328", "#57606a", "#8c959f", "#d8dee4", "#ffffff"
NOISE, BAD = "#e4e8ee", "#b3261e"
# Letters on a coloured bar stay as they are, by day and by night.
DARK_LETTERS, LIGHT_LETTERS = "#101418", "#fefefe"

# Okabe and Ito's colours, which people tell apart whatever they see of red and green, and lighter ones of the same.
BLUE, SKY, GREEN, MINT = "#0072b2", "#56b4e9", "#009e73", "#8fd3b6"
RED, ORANGE, YELLOW, PINK, PURPLE, PALE = "#d55e00", "#e69f00", "#f0e442", "#cc79a7", "#7b5ea7", "#dfe3e8"
SAND, BROWN = "#f5cd8a", "#8c510a"

WORDS = {
    "compute": "compute kernels",
    "collective": "collective kernels",
    "copy": "copies",
    "memset": "memsets",
    "crypto": "sealing and opening",
    "transport": "sending and receiving",
    "wait": "waiting for peers",
    "blocking_copy": "calls that wait for a copy",
    "launch": "launching",
    "sync": "waiting for the GPU",
    "host": "other host work",
    "idle": "nothing recorded",
    "unattributed": "not attributed",
}
# Parts that are one and the same work are told together, under these words.
GROUP_WORDS = {
    "hop": "hops between ranks",
    "compute": "kernels and memsets",
    "copy": "copies and their calls",
    "host": "host work",
    "rest": "the rest",
}
_IN_ORDER = (BLUE, SKY, GREEN, MINT, RED, ORANGE, SAND, BROWN, YELLOW, PINK, PURPLE, PALE, FAINT)
COLOURS = dict(zip(PARTS, _IN_ORDER, strict=True))


def letters_on(colour: str) -> str:
    """Dark or light letters, whichever are read more easily on a colour."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    is_light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.25
    return DARK_LETTERS if is_light else LIGHT_LETTERS
