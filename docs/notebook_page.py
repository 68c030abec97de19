"""What mkdocs does with notebook.ipynb: the site shows it as a page, with its outputs where a lake was named."""
# ruff: noqa: INP001 - mkdocs loads it by its path

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

NOTEBOOK, PAGE = "notebook.ipynb", "notebook.md"
# A lake whose rows may be shown to all who read the site, named DIRECTORY/data/lake as the notebook names it.
LAKE = "TEETOTAL_SITE_LAKE"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page; the notebook stays beside it, to be taken along."""
    path, lake = Path(config.docs_dir, NOTEBOOK), os.environ.get(LAKE)
    notebook = run_notebook(path, Path(lake)) if lake else json.loads(path.read_text("utf-8"))
    files.append(File.generated(config, PAGE, content=render_notebook(notebook)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs names them
    """Lead from other pages to the page, not to the file."""
    return markdown if page.file.src_uri == PAGE else markdown.replace(f"]({NOTEBOOK})", f"]({PAGE})")


def run_notebook(path: Path, lake: Path) -> Mapping[str, Any]:
    """Run all cells in a kernel, where `data/lake` is the lake."""
    if lake.parts[-2:] != ("data", "lake") or not lake.is_dir():
        raise SystemExit(f"{LAKE} is {lake}; expected a directory …/data/lake: make one there, or unset {LAKE}")
    import nbformat  # here: both take a second to import, and most builds run nothing
    from nbclient import NotebookClient

    notebook: Mapping[str, Any] = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(lake.resolve().parent.parent)}}
    NotebookClient(notebook, timeout=300, resources=place).execute()
    return notebook


def render_notebook(notebook: Mapping[str, Any]) -> str:
    """The notebook as Markdown: text as it is, code in fences, tables as tables."""
    blocks = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])  # a text, or its lines
        if cell["cell_type"] == "markdown":
            blocks.append(source)
        elif cell["cell_type"] == "code":
            blocks += [f"```python\n{source}\n```", *map(_render_output, cell["outputs"])]
    title, *rest = blocks
    return "\n\n".join([title, f"The file: [{NOTEBOOK}]({NOTEBOOK}).", *rest]) + "\n"


def _render_output(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _fence("".join(output["text"]))
    if output["output_type"] == "error":
        raise SystemExit(f"{NOTEBOOK} fails: {output['ename']}: {output['evalue']}")
    if "text/html" in output["data"]:
        # A blank line would end a block of HTML in Markdown.
        lines = [line for line in "".join(output["data"]["text/html"]).splitlines() if line.strip()]
        return "\n".join(['<div style="overflow-x: auto">', *lines, "</div>"])
    return _fence("".join(output["data"]["text/plain"]))


def _fence(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"
