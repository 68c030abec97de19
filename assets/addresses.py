"""Where the web interface serves what our events link to; such a link works under whatever name the interface has."""

from __future__ import annotations

# The pages of Great Expectations.
DATA_DOCS = "/data-docs"
FIGURES = "/figures"
