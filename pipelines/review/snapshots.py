"""What a change did to the snapshots, which commit explains it, and whether that is enough."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from assets.build.catalogue import TABLES
from assets.build.lineage import UPSTREAM
from pipelines.review.git_history import Repository
from pipelines.review.page import Review
from pipelines.review.section import Reason, Reviewed
from pipelines.review.text_tables import compare_tables, parse_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipelines.review.git_history import Base, Commit, FileChange
    from pipelines.review.text_tables import TableChange

# A line of a commit's message; lines that are indented go on.
_TRAILER = re.compile(r"^Snapshot-Reason:[ \t]*(.*(?:\n[ \t]+\S.*)*)", re.MULTILINE | re.IGNORECASE)
_TABLE_NAME = re.compile(r"[\w*?]+[./][^\s,:]+|\*")
_STEM = re.compile(r"(?P<test>[^\[]+?)(\[(?P<name>.*)\])?(\.\d+)?")
# Words that say that something was rewritten, and nothing of why.
_HOLLOW = re.compile(
    r"(?i)\b(refresh|updat|regenerat|rewrit|re-?record|chang|fix|new|snapshot|test|gold|silver|bronze|the|all|and|of|for)\w*"
)
_FEWEST_WORDS = 3


@dataclass(frozen=True)
class Snapshot:
    """A snapshot by its path: the test that it belongs to, and the name that people call it by."""

    path: str

    @property
    def _parts(self) -> tuple[str, list[str]]:
        folder, _, rest = self.path.rpartition("__snapshots__/") if "/" in self.path else ("", "", self.path)
        return folder, rest.split("/")

    @property
    def module(self) -> str:
        """The file of its test."""
        folder, rest = self._parts
        return f"{folder}{PurePosixPath(rest[0]).stem if len(rest) == 1 else rest[0]}.py"

    @property
    def test(self) -> str | None:
        """The name of its test; None where one file holds the snapshots of a whole module."""
        _, rest = self._parts
        found = _STEM.fullmatch(PurePosixPath(rest[-1]).stem)
        return None if len(rest) == 1 or found is None else found["test"].rpartition(".")[2]

    @property
    def title(self) -> str:
        """What a reader sees: the table, or which test keeps which text."""
        module, path = PurePosixPath(self.module).stem, PurePosixPath(self.path)
        if self.is_table:
            return self.name
        return f"{module}[{self.name}]{path.suffix}" if "[" in path.name else f"{module}/{path.name}"

    @property
    def is_table(self) -> bool:
        """Whether it is the text of a table, rather than a picture of one."""
        return self.name in TABLES and self.path.endswith(".csv")

    @property
    def name(self) -> str:
        """What stands in brackets, such as a table's name; else the name of the test."""
        found = _STEM.fullmatch(PurePosixPath(self.path).stem)
        return self.path if found is None else found["name"] or found["test"]

    def is_called(self, pattern: str) -> bool:
        """Whether a reason means this one: its name, its file, its module or its path, `*` for any letters."""
        path = PurePosixPath(self.path)
        names = (self.name, path.name, PurePosixPath(self.module).stem, self.path)
        return any(name == pattern or fnmatchcase(name, pattern) for name in names)


@dataclass(frozen=True)
class Explanation:
    """One `Snapshot-Reason:` of one commit; `names` is empty where it speaks for all that its commit touches."""

    commit: Commit
    names: tuple[str, ...]
    text: str

    @property
    def is_hollow(self) -> bool:
        """Whether it says no more than that something was refreshed."""
        return len(re.findall(r"\w+", _HOLLOW.sub("", self.text))) < _FEWEST_WORDS

    def explains(self, change: FileChange) -> bool:
        """Whether it speaks for this snapshot."""
        paths = {change.path, change.old_path}
        if not self.names:
            return bool(paths & self.commit.snapshots)
        return any(Snapshot(path).is_called(name) for path in paths for name in self.names)


def review_snapshots(folder: Path, revision: str | None) -> Review:
    """Compare the work tree around a folder with its base, and find for every change the sentence that explains it."""
    repository = Repository(folder)
    base = repository.base(revision)
    changes, commits = repository.changes(base), repository.commits(base)
    given = [reason for commit in commits for reason in read_reasons(commit, [change.path for change in changes])]
    present = repository.snapshots()
    around = _LineageContext.of(present, [change.path for change in changes])
    reviewed = [_review_change(change, commits, given, around) for change in changes]
    notes = [
        f"{reason.commit.id[:9]} gives a reason for {', '.join(reason.names)}, where nothing changed"
        for reason in given
        if reason.names and not any(map(reason.explains, changes))
    ]
    return Review(
        _describe_scope(repository, base, changes),
        tuple(reviewed),
        tuple(find_orphans(repository.root, present)),
        tuple(notes),
    )


def read_reasons(commit: Commit, changed: list[str]) -> list[Explanation]:
    """The reasons of a commit; what stands before a colon is names if it looks like tables or paths, or is known."""
    found = []
    for match in _TRAILER.finditer(commit.message.replace("\r\n", "\n")):
        text = " ".join(match[1].split())
        before, colon, after = text.partition(":")
        names = tuple(name.strip() for name in before.split(","))
        known = [Snapshot(path) for path in changed]
        if colon and all(_TABLE_NAME.fullmatch(name) or any(it.is_called(name) for it in known) for name in names):
            found.append(Explanation(commit, names, after.strip()))
        elif text:
            found.append(Explanation(commit, (), text))
    return found


def find_orphans(root: Path, paths: Iterable[str]) -> list[tuple[str, str]]:
    """Snapshots whose test is gone: syrupy looks only beside the modules that still have one."""
    found = []
    tests: dict[str, set[str] | None] = {}
    for path in paths:
        snapshot = Snapshot(path)
        if snapshot.module not in tests:
            tests[snapshot.module] = _tests(root / snapshot.module)
        names = tests[snapshot.module]
        if names is None:
            found.append((path, f"its test is gone: there is no {snapshot.module}; delete it"))
        elif snapshot.test is not None and names and snapshot.test not in names:
            found.append((path, f"its test is gone: {snapshot.module} has no {snapshot.test}; delete it"))
    return found


def _tests(module: Path) -> set[str] | None:
    """The functions that a file defines; none at all where it cannot be read as Python, and None where it is gone."""
    if not module.is_file() or module.is_symlink():
        return None
    try:
        tree = ast.parse(module.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@dataclass(frozen=True)
class _LineageContext:
    """What else is compared with: the snapshots of each table, and which of them changed."""

    titles: dict[str, str]
    changed: frozenset[str]

    @classmethod
    def of(cls, present: list[str], changed: list[str]) -> _LineageContext:
        return cls({path: Snapshot(path).title for path in [*present, *changed]}, frozenset(changed))

    def is_changed(self, title: str) -> bool:
        return any(self.titles[path] == title for path in self.changed)

    def made_from(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The nearest tables upstream that changed as well; of a picture, its table."""
        sources = _find_reachable(UPSTREAM, snapshot.title) if snapshot.is_table else {snapshot.name} & set(TABLES)
        found = {name for name in sources if self.is_changed(name)}
        farther = {name for near in found for name in _find_reachable(UPSTREAM, near)}
        return tuple(sorted(found - farther))

    def feeds(self, snapshot: Snapshot) -> tuple[tuple[str, bool], ...]:
        """The tables downstream, the pictures of the table and of those; each with whether it changed."""
        if not snapshot.is_table:
            return ()
        tables = {snapshot.name, *_find_reachable(_DOWNSTREAM, snapshot.name)}
        titles = {title for path, title in self.titles.items() if Snapshot(path).name in tables} - {snapshot.title}
        return tuple((title, self.is_changed(title)) for title in sorted(titles))


def _review_change(
    change: FileChange, commits: list[Commit], given: list[Explanation], around: _LineageContext
) -> Reviewed:
    snapshot = Snapshot(change.path)
    before, after = _text(change.before), _text(change.after)
    moved = _compare_tables(snapshot, before, after)
    mine = [reason for reason in given if reason.explains(change)]
    touching = [commit for commit in commits if {change.path, change.old_path} & commit.snapshots]
    vanished = change.after is None or (moved is not None and moved.vanished)
    return Reviewed(
        path=change.path,
        old_path=change.old_path,
        title=snapshot.title,
        before=before,
        after=after,
        change=moved,
        reasons=tuple(Reason(reason.text, reason.commit.id[:9], reason.commit.subject) for reason in mine),
        commits=tuple(f"{commit.id[:9]} {commit.subject}" for commit in touching),
        code=tuple(dict.fromkeys(name for commit in touching for name in commit.others if not _is_aside(name))),
        made_from=around.made_from(snapshot),
        feeds=around.feeds(snapshot),
        fault=_fault(change, mine, vanished=vanished),
    )


def _compare_tables(snapshot: Snapshot, before: str | bytes | None, after: str | bytes | None) -> TableChange | None:
    """What moved by key, where both sides are texts of a table that is declared."""
    table = TABLES.get(snapshot.name)
    old, new = (parse_table(side) if isinstance(side, str) else None for side in (before, after))
    if table is None or old is None or new is None:
        return None
    return compare_tables(old, new, tuple(dict.fromkeys(("run_id", *table.key))))


def _fault(change: FileChange, given: list[Explanation], *, vanished: bool) -> str | None:
    """Why this change is not explained; None where it is."""
    if change.is_uncommitted:
        return "it is not committed, so no commit can explain it"
    enough = [reason for reason in given if not reason.is_hollow]
    if not given:
        return "no commit gives a reason"
    if not enough:
        return "the reason given says that it changed, not why"
    if vanished and not any(reason.names for reason in enough):
        return "something vanished, which needs a reason of its own, by name"
    return None


def _text(side: bytes | None) -> str | bytes | None:
    """A text with one kind of line end, or the bytes of what is no text."""
    if side is None or b"\0" in side:
        return side
    try:
        return side.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return side


def _describe_scope(repository: Repository, base: Base, changes: list[FileChange]) -> str:
    open_changes = sum(change.is_uncommitted for change in changes)
    rest = f" and the work tree ({open_changes} not committed)" if open_changes else ""
    return f"{base.id[:9]} ({base.found}) with {repository.head[:9]}{rest}"


def _is_aside(path: str) -> bool:
    """Whether a file cannot have moved a value: prose, and tests."""
    return path.startswith(("tests/", "docs/")) or path.endswith(".md")


def _find_reachable(edges: dict[str, tuple[str, ...]], start: str | None) -> set[str]:
    """All that can be reached from a table, without itself."""
    found: set[str] = set()
    waiting = list(edges.get(start or "", ()))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += edges.get(name, ())
    return found - {start}


_DOWNSTREAM: dict[str, tuple[str, ...]] = {
    source: tuple(name for name, sources in UPSTREAM.items() if source in sources)
    for source in dict.fromkeys(source for sources in UPSTREAM.values() for source in sources)
}
