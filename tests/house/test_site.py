"""The documentation as a site: it builds without a warning, its links lead somewhere, the notebook is a page of it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.site_links import find_dead_links, read_page

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make site` does."""
    made = tmp_path_factory.mktemp("site")
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    variables.pop("TEETOTAL_SITE_LAKE", None)
    command = [str(Path(sys.executable).with_name("mkdocs")), "build", "--quiet", "--strict", "--site-dir", str(made)]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return made


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """As mkdocs loads it: by its path."""
    found = importlib.util.spec_from_file_location("notebook_page", ROOT / "docs" / "notebook_page.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    assert find_dead_links(site) == []
    assert len(list(site.glob("*.html"))) > 25


def test_the_notebook_is_a_page_of_the_site_and_other_pages_lead_to_it(site: Path) -> None:
    page = (site / "notebook.html").read_text("utf-8")
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text("utf-8"))["cells"]
    assert page.count('<div class="highlight">') == sum(cell["cell_type"] == "code" for cell in cells)
    assert "nbformat" not in page
    assert "notebook.html" in read_page(site / "python.html").targets
    assert "notebook.ipynb" in read_page(site / "notebook.html").targets


def test_configurations_that_pages_name_are_on_the_site_and_no_program_is(site: Path) -> None:
    assert {"nginx.conf", "nginx-compose.conf", "kubernetes.yaml", "dagster-values.yaml"} <= {
        path.name for path in site.iterdir()
    }
    assert list(site.rglob("*.py")) == []


def test_dead_links_of_a_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text('<p id="here"><a href="../b.html#there">', "utf-8")
    (tmp_path / "b.html").write_text(
        '<a href="#gone"></a><a href="a/">a</a><a href="a/#here"></a><img src="no.png"><a href="https://example.org/no">'
        '<a href="/a/index.html"></a><a href="../outside.html"></a><a name="there"></a><a href="notes%20of.txt"></a>',
        "utf-8",
    )
    (tmp_path / "notes of.txt").write_text("")
    assert find_dead_links(tmp_path) == ["b.html: #gone", "b.html: ../outside.html", "b.html: no.png"]


def test_outputs_of_the_notebook_are_shown_as_they_are(hooks: ModuleType) -> None:
    outputs = [
        {"output_type": "stream", "text": ["1.20x ", "slower\n"]},
        {"output_type": "execute_result", "data": {"text/html": "<table>\n\n<tr></tr></table>", "text/plain": "no"}},
        {"output_type": "execute_result", "data": {"text/plain": "['a']"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": "ask()", "outputs": outputs},
    ]
    assert hooks.render_notebook({"cells": cells}).split("\n\n") == [
        "# Title",
        "The file: [notebook.ipynb](notebook.ipynb).",
        "```python\nask()\n```",
        "```text\n1.20x slower\n```",
        '<div style="overflow-x: auto">\n<table>\n<tr></tr></table>\n</div>',
        "```text\n['a']\n```\n",
    ]


def test_a_notebook_that_fails_and_a_lake_that_is_not_there_stop_the_build(hooks: ModuleType, tmp_path: Path) -> None:
    failed = {"output_type": "error", "ename": "KeyError", "evalue": "'b'"}
    cells = [{"cell_type": "code", "source": "a['b']", "outputs": [failed]}]
    with pytest.raises(SystemExit, match="KeyError: 'b'"):
        hooks.render_notebook({"cells": cells})
    with pytest.raises(SystemExit, match="expected a directory …/data/lake"):
        hooks.run_notebook(ROOT / "docs" / hooks.NOTEBOOK, tmp_path)
