"""What the parts of a step are called and how they are coloured, the same in every picture."""

from __future__ import annotations

from gold.time_breakdown import PARTS
from report.svg import FAINT

# Okabe and Ito's colours, which people tell apart whatever they see of red and green, and lighter ones of the same.
BLUE, SKY, GREEN, MINT = "#0072b2", "#56b4e9", "#009e73", "#8fd3b6"
RED, ORANGE, YELLOW, PINK, PURPLE, PALE = "#d55e00", "#e69f00", "#f0e442", "#cc79a7", "#7b5ea7", "#dfe3e8"

WORDS = {
    "compute": "compute kernels",
    "collective": "collective kernels",
    "copy": "copies",
    "memset": "memsets",
    "crypto": "sealing and opening",
    "transport": "sending and receiving",
    "launch": "launching",
    "sync": "waiting for the GPU",
    "host": "other host work",
    "idle": "nothing recorded",
    "unattributed": "not attributed",
}
_IN_ORDER = (BLUE, SKY, GREEN, MINT, RED, ORANGE, YELLOW, PINK, PURPLE, PALE, FAINT)
COLOURS = dict(zip(PARTS, _IN_ORDER, strict=True))
