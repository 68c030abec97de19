"""Every link of every page leads somewhere: to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+(?:\([^()]*\))?)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")


def list_pages() -> list[Path]:
    """The Markdown files of the repository."""
    directories = (path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
    return sorted([*ROOT.glob("*.md"), *(page for directory in directories for page in directory.rglob("*.md"))])


@cache
def list_anchors(page: Path) -> frozenset[str]:
    """The anchors that a page's headings get: lower case, punctuation gone, hyphens for spaces."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "") for title in titles)
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain)


def find_dead_links(page: Path) -> list[str]:
    text = _CODE.sub("", _FENCE.sub("", page.read_text("utf-8")))
    dead = []
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue  # another site: no test asks the network
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in list_anchors(path)):
            dead.append(target)
    return dead


@pytest.mark.parametrize("page", list_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert find_dead_links(page) == []


def test_a_dead_link_and_a_dead_anchor_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title: of `it`\n[one](#a-title-of-it) [two](gone.md) [three](#gone) `[four](no.md)`\n")
    assert find_dead_links(page) == ["gone.md", "#gone"]
