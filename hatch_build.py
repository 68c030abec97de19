"""What a wheel holds that a checkout does not: our packages under one name, `teetotal`, and imports that say so."""

from __future__ import annotations

import ast
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOF = "teetotal"


def prefix_imports(source: str, packages: frozenset[str], name: str = "<module>") -> str:
    """The same module with every import of one of these packages from under the roof; all lines stay where they are."""
    lines = source.encode().splitlines(keepends=True)  # positions of a syntax tree count bytes
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in packages:
            lines[node.lineno - 1] = _replace(lines[node.lineno - 1], node.col_offset, b"from ", f"from {ROOF}.")
        elif isinstance(node, ast.Import) and (ours := [one for one in node.names if one.name in packages]):
            if len(node.names) > 1:
                raise ValueError(f"{name}:{node.lineno}: import {ours[0].name} in a statement of its own")
            lines[node.lineno - 1] = _replace(
                lines[node.lineno - 1], node.col_offset, b"import ", f"from {ROOF} import "
            )
        elif isinstance(node, ast.Import) and any(one.name.split(".")[0] in packages for one in node.names):
            raise ValueError(f"{name}:{node.lineno}: write `from package import module`, so that a wheel can rename it")
    return b"".join(lines).decode()


def _replace(line: bytes, place: int, old: bytes, new: str) -> bytes:
    return line[:place] + line[place:].replace(old, new.encode(), 1)


class OneName(BuildHookInterface):  # type: ignore[type-arg]
    """Puts rewritten modules into a wheel in place of those of the checkout; an editable install gets none."""

    _made: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write each module that imports one of ours anew, outside of the checkout, and have the wheel take that."""
        if self.target_name != "wheel" or version == "editable":
            return
        build_data["force_include"]["dagster.yaml"] = f"{ROOF}/dagster.yaml"
        self._made = Path(tempfile.mkdtemp(prefix="teetotal-wheel-"))
        packages = frozenset(self.build_config.packages) - {ROOF}
        for file in self.build_config.builder.recurse_selected_project_files():
            if not file.path.endswith(".py"):
                continue
            source = Path(file.path).read_text("utf-8")
            changed = prefix_imports(source, packages, file.relative_path)
            if changed != source:
                made = self._made / file.distribution_path
                made.parent.mkdir(parents=True, exist_ok=True)
                made.write_text(changed, "utf-8")
                build_data["force_include"][str(made)] = file.distribution_path

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was written."""
        if self._made is not None:
            shutil.rmtree(self._made)
