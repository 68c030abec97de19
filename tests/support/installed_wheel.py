"""Wheels of this checkout, installed where nothing of the checkout can be imported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parent.parent.parent
# What our packages are called in a checkout; somebody else may call theirs so.
GENERIC = ("lake", "bronze", "silver", "gold", "assets", "pipelines", "report", "collector", "samples")
Asked = subprocess.CompletedProcess[str]
_NOT_OURS = ("TEETOTAL_", "DAGSTER_", "PYTHON", "SPARK")


@dataclass(frozen=True)
class Installation:
    """An environment that holds one of our wheels; third-party packages are those of this machine."""

    directory: Path

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.directory / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Where its packages lie."""
        (found,) = self.directory.glob("lib/python*/site-packages")
        return found

    def borrow_packages(self) -> None:
        """Find third-party packages where this process does: a path is searched, the links in it are not followed."""
        (self.packages / "third_party.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    def ask(self, *words: str, cwd: Path) -> Asked:
        """Run one of its commands to the end, or its Python."""
        return ask(str(self.directory / "bin" / words[0]), *words[1:], cwd=cwd)

    def pack(self, archive: Path) -> Path:
        """The whole environment as an archive, as docs/operations.md has it for executors."""
        with tarfile.open(archive, "w:gz") as file:
            file.add(self.directory, ".")
        return archive


def copy_image_sources(directory: Path) -> Path:
    """Copy what `COPY . .` of the Dockerfile finds: this checkout without what .dockerignore leaves out."""
    rules = read_ignore_rules((ROOT / ".dockerignore").read_text("utf-8"))
    for folder, folders, files in os.walk(ROOT):
        place = Path(folder).relative_to(ROOT)
        folders[:] = [name for name in folders if may_hold_sources(str(place / name), rules)]
        for name in files:
            if not is_ignored(str(place / name), rules):
                (directory / place).mkdir(parents=True, exist_ok=True)
                shutil.copy2(Path(folder, name), directory / place / name)
    return directory


IgnoreRules = list[tuple[str, bool]]


def read_ignore_rules(text: str) -> IgnoreRules:
    """The patterns of a .dockerignore, each with whether it leaves out; `!` before one takes back in."""
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith("#")]
    return [(line.removeprefix("!").strip("/"), not line.startswith("!")) for line in kept]


def is_ignored(path: str, rules: IgnoreRules) -> bool:
    """Whether a path is left out: the last rule that fits it, or a directory above it, decides."""
    above = [path, *(str(one) for one in Path(path).parents if one != Path())]
    found = False
    for pattern, leaves_out in rules:
        if leaves_out != found and any(_matches(pattern, one) for one in above):
            found = leaves_out
    return found


def may_hold_sources(directory: str, rules: IgnoreRules) -> bool:
    """Whether anything in a directory may be taken: it is not left out, or a rule takes back something in it."""
    return not is_ignored(directory, rules) or any(
        not leaves_out and pattern.startswith(f"{directory}/") for pattern, leaves_out in rules
    )


def _matches(pattern: str, path: str) -> bool:
    """As Docker matches: `*` and `?` within one name, `**` over any number of directories."""
    signs = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    words = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.fullmatch("".join(signs.get(word) or re.escape(word) for word in words), path) is not None


def build_wheel(project: Path, folder: Path) -> Path:
    """Build the wheel of a project, as the Dockerfile and `make wheels` do."""
    words = ["wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", *words, "--wheel-dir", str(folder), str(project)]
    done = subprocess.run(command, env=environment(), check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the wheel of {project} was not built:\n{done.stdout}{done.stderr}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_wheel(wheel: Path, directory: Path, *, is_alone: bool = False) -> Installation:
    """Install a wheel with pip into an environment of its own; alone, it finds no other package there."""
    made = _make_environment(directory)
    _install(made, str(wheel))
    if not is_alone:
        made.borrow_packages()
    return made


def install_editable(directory: Path) -> Installation:
    """Install this checkout as it is, as who works on it does."""
    made = _make_environment(directory)
    made.borrow_packages()  # hatchling among them
    _install(made, "--no-build-isolation", "--editable", str(ROOT))
    return made


def _make_environment(directory: Path) -> Installation:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    return Installation(directory)


def _install(made: Installation, *words: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(made.python), "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "install", "--no-deps", "--no-index", *words], env=environment(), check=True)


def ask(*command: str, cwd: Path, **more: str) -> Asked:
    """Run a command to its end."""
    return subprocess.run(command, cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False)


def environment(**more: str) -> dict[str, str]:
    """The environment of every process here: nothing of the checkout, and no setting of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
    return {**kept, "TZ": "UTC", **more}


def occupy_names(directory: Path, names: Iterable[str]) -> Path:
    """A directory of somebody's, with packages of these names that end whoever imports one."""
    for name in names:
        (directory / name).mkdir(parents=True)
        (directory / name / "__init__.py").write_text(
            f"raise SystemExit('the own {name} of the caller was imported')\n"
        )
    return directory
