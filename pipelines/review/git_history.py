"""What git knows of a change: its base, its commits, the files on both sides. Git is asked in lists, never a shell."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lake.errors import EvidenceRejected, LakeError

# Wherever they lie; `top` so that a subfolder sees all of them.
SNAPSHOTS = ":(top,glob)**/__snapshots__/**"
# Where a change is compared with, in this order, if nobody says: the branch that it will be merged into.
_MAIN = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
_REVISION = re.compile(r"[^-^\s\x00-\x1f\x7f][^\s\x00-\x1f\x7f]*")
_REPOSITORY = 0o160000  # the mode of a repository within the repository
_TIMEOUT_S = 120
_ID = re.compile(rb"[0-9a-f]{40,64}")


@dataclass(frozen=True)
class Base:
    """Where a change starts: an id of a commit or of the empty tree, and in words how it was found."""

    id: str
    found: str
    is_commit: bool = True


@dataclass(frozen=True)
class Commit:
    """One commit of a change: its message, the snapshots that it touches, the other files."""

    id: str
    message: str
    snapshots: frozenset[str]
    others: tuple[str, ...]

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.strip().partition("\n")[0]


@dataclass(frozen=True)
class FileChange:
    """One snapshot before and after; None where it did not exist. `old_path` differs where it was renamed."""

    path: str
    old_path: str
    before: bytes | None
    after: bytes | None
    is_uncommitted: bool


class Repository:
    """The work tree around a folder."""

    def __init__(self, folder: Path) -> None:
        found = shutil.which("git")
        if found is None:
            raise LakeError("git is not installed", "snapshots are compared with what git holds: install git")
        self._git = found
        self._folder = folder
        self.root = Path(self._ask("rev-parse", "--show-toplevel").decode().removesuffix("\n"))
        self._folder = self.root

    def commit(self, revision: str) -> str:
        """The id of a revision that a person named."""
        if not _REVISION.fullmatch(revision):
            raise EvidenceRejected(
                f"{revision[:80]!r} is no revision", "a branch, a tag or an id, such as main or HEAD~3"
            )
        found = self._try("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if found is None:
            raise EvidenceRejected(f"there is no revision {revision[:80]!r} here", self._advice())
        return found

    def base(self, revision: str | None) -> Base:
        """Where the change leaves what it will be merged into; on that branch itself, the commit before the last."""
        head = self._try("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if head is None:
            raise EvidenceRejected("this repository has no commit yet", "commit something first")
        names = (revision,) if revision is not None else _MAIN
        for name in names:
            other = (
                self.commit(name)
                if revision is not None
                else self._try("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
            )
            if other is None:
                continue
            shared = self._try("merge-base", other, head)
            if shared is None:
                raise EvidenceRejected(f"{name} and HEAD have no commit in common here", self._advice())
            if shared != head or revision is not None:
                return Base(shared, name if shared == other else f"where HEAD left {name}")
        parent = self._try("rev-parse", "--verify", "--quiet", "HEAD~1^{commit}")
        if parent is not None:
            return Base(parent, "HEAD~1")
        if self.is_shallow:
            raise EvidenceRejected("this clone is shallow: what HEAD is compared with is not in it", self._advice())
        return Base(self._ask("hash-object", "-t", "tree", "--stdin").decode().strip(), "nothing", is_commit=False)

    @property
    def is_shallow(self) -> bool:
        """Whether older commits were left out when this was cloned."""
        return self._ask("rev-parse", "--is-shallow-repository").strip() == b"true"

    @property
    def head(self) -> str:
        """The id of the last commit."""
        return self._ask("rev-parse", "HEAD").decode().strip()

    def commits(self, base: Base) -> list[Commit]:
        """The commits since the base, oldest first; a merge touches only what differs from all of its parents."""
        span = [f"{base.id}..HEAD"] if base.is_commit else ["HEAD"]
        logged = self._ask("log", "-z", "--reverse", "--no-show-signature", "--no-patch", "--format=%H%n%B", *span)
        messages = dict(entry.decode(errors="replace").split("\n", 1) for entry in logged.split(b"\0") if entry)
        listed = "".join(f"{commit}\n" for commit in messages).encode()
        touched: dict[str, list[str]] = {commit: [] for commit in messages}
        output = self._ask(
            "diff-tree", "--stdin", "-r", "-z", "-c", "--root", "--name-only", "--no-renames", given=listed
        )
        current: list[str] = []
        for name in output.split(b"\0"):
            # Of a merge, the id ends a line of its own.
            if _ID.fullmatch(name.strip()) and name.strip().decode() in touched:
                current = touched[name.strip().decode()]
            elif name:
                current.append(_path(name))
        return [
            Commit(
                commit,
                message,
                frozenset(name for name in touched[commit] if is_snapshot(name)),
                tuple(name for name in touched[commit] if not is_snapshot(name)),
            )
            for commit, message in messages.items()
        ]

    def changes(self, base: Base) -> list[FileChange]:
        """The snapshots that the work tree has otherwise than the base, committed or not."""
        uncommitted = {entry[-1] for entry in self._raw("HEAD")} | set(self._list_untracked())
        found = []
        for modes, old_id, path, new_path in self._raw(base.id):
            before = None if modes[0] == 0 else b"" if modes[0] == _REPOSITORY else self._blob(old_id)
            after = None if modes[1] == 0 else self._on_disk(new_path)
            found.append(FileChange(new_path, path, before, after, bool({path, new_path} & uncommitted)))
        known = {change.path for change in found if change.after is not None}
        found += [
            FileChange(name, name, None, self._on_disk(name), is_uncommitted=True)
            for name in self._list_untracked()
            if name not in known
        ]
        return sorted(found, key=lambda change: change.path)

    def snapshots(self) -> list[str]:
        """Every snapshot that is in the work tree, committed or not."""
        output = self._ask(
            "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--full-name", "--", SNAPSHOTS
        )
        names = dict.fromkeys(_path(name) for name in output.split(b"\0") if name)
        return sorted(name for name in names if (self.root / name).is_symlink() or (self.root / name).is_file())

    def _list_untracked(self) -> list[str]:
        output = self._ask("ls-files", "-z", "--others", "--exclude-standard", "--full-name", "--", SNAPSHOTS)
        return [_path(name) for name in output.split(b"\0") if name]

    def _raw(self, revision: str) -> list[tuple[tuple[int, int], str, str, str]]:
        """Modes, the old id, the old and the new path of each snapshot that differs from a revision."""
        output = self._ask("diff", "--raw", "-z", "-M", "--no-ext-diff", "--no-abbrev", revision, "--", SNAPSHOTS)
        fields = iter(output.split(b"\0"))
        found = []
        for field in fields:
            if not field:
                continue
            old_mode, new_mode, old_id, _, status = field.decode().lstrip(":").split(" ")
            path = _path(next(fields))
            new_path = _path(next(fields)) if status[0] in "RC" else path
            found.append(((int(old_mode, 8), int(new_mode, 8)), old_id, path, new_path))
        return found

    def _blob(self, blob_id: str) -> bytes:
        return self._ask("cat-file", "blob", blob_id)

    def _on_disk(self, name: str) -> bytes:
        """What the work tree has; of a link its target's name, so that no link shows what lies elsewhere."""
        path = self.root / name
        if path.is_symlink():
            return str(path.readlink()).encode()
        return path.read_bytes() if path.is_file() else b""  # another repository has no text of ours

    def _advice(self) -> str:
        if self.is_shallow:
            return "this clone is shallow: `git fetch --unshallow`, or fetch-depth: 0 in a workflow"
        return "name another with --base"

    def _try(self, *words: str) -> str | None:
        """What git answers, or None where it says no."""
        done = self._run(words)
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def _ask(self, *words: str, given: bytes = b"") -> bytes:
        done = self._run(words, given)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
            raise LakeError(f"git {words[0]} failed: {said[:400]}", "run this inside a checkout of the repository")
        return done.stdout

    def _run(self, words: tuple[str, ...], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        asked = [self._git, "-C", str(self._folder), "--no-pager", *words]
        try:
            return subprocess.run(asked, input=given, capture_output=True, check=False, timeout=_TIMEOUT_S)  # noqa: S603 - git alone, its words apart
        except subprocess.TimeoutExpired:
            raise LakeError(f"git {words[0]} did not end within {_TIMEOUT_S} s") from None


def is_snapshot(path: str) -> bool:
    """Whether a path lies in a folder of snapshots."""
    return "__snapshots__" in path.split("/")[:-1]


def _path(name: bytes) -> str:
    return name.decode(errors="surrogateescape")
