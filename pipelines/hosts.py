"""The names by which a browser may ask for the web interface: what stands in Host, and in Origin after the scheme."""

from __future__ import annotations

import re
from typing import NamedTuple

_AUTHORITY = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:(?P<port>[0-9]{1,5}))?")


class Authority(NamedTuple):
    """A name in lower case, or an address; the port where one was given."""

    name: str
    port: str | None


# Where the web server listens.
HOST = "127.0.0.1"
# Whatever their port: the near end of an SSH tunnel may have another, and no website is named like this.
LOOPBACK = (HOST, "localhost", "[::1]")


def parse_authority(text: str) -> Authority | None:
    """Parse `name` or `name:port`; None where it is neither."""
    found = _AUTHORITY.fullmatch(text.lower())
    return found and Authority(found["name"], found["port"])
