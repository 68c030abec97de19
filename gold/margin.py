"""The margin within which a difference counts as none; apart, so that settings import no statistics."""

MARGIN = 0.02
