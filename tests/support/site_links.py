"""Dead links inside a built site: `python -m tests.support.site_links .site` names each and ends with 1."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINKS = {
    "a": "href",
    "link": "href",
    "img": "src",
    "script": "src",
    "source": "src",
    "iframe": "src",
    "object": "data",
}


@dataclass
class SitePage:
    """What a page links to, and the places in it that can be linked to."""

    targets: set[str] = field(default_factory=set)
    anchors: set[str] = field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = SitePage()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if target := given.get(_LINKS.get(tag, "")):
            self.page.targets.add(target)
        self.page.anchors |= {name for key in ("id", "name") if (name := given.get(key))}


def read_page(path: Path) -> SitePage:
    """A page of HTML."""
    reader = _Reader()
    reader.feed(path.read_text("utf-8"))
    return reader.page


def find_dead_links(site: Path) -> list[str]:
    """Each link to a file or a heading that the site does not have, as `page: link`; other sites are not asked."""
    pages = {path.resolve(): read_page(path) for path in sorted(site.rglob("*.html"))}
    return [
        f"{path.relative_to(site.resolve())}: {target}"
        for path, page in pages.items()
        for target in sorted(page.targets)
        if _is_dead(target, path, site.resolve(), pages)
    ]


def _is_dead(target: str, page: Path, site: Path, pages: dict[Path, SitePage]) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return False
    name = unquote(parts.path)
    # An absolute one is of the page that a server shows for any path that it does not have.
    place = (site / name.lstrip("/") if name.startswith("/") else page.parent / name).resolve() if name else page
    place = place / "index.html" if place.is_dir() else place
    if not place.is_file() or not place.is_relative_to(site):
        return True
    return bool(parts.fragment) and place in pages and unquote(parts.fragment) not in pages[place].anchors


def main() -> None:
    """Check the site that the command line names."""
    (site,) = map(Path, sys.argv[1:])
    if not (site / "index.html").is_file():
        raise SystemExit(f"{site} holds no index.html; expected a built site: run `make site` first")
    dead = find_dead_links(site)
    raise SystemExit("\n".join([f"{len(dead)} dead links:", *dead]) if dead else 0)


if __name__ == "__main__":
    main()
