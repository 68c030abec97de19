from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path

import pytest

from assets.build.catalogue import ANSWERS, TABLES, UPSTREAM, render_page
from lake.tables import Table

ROOT = Path(__file__).parent.parent.parent
TIERS = ("bronze", "silver", "gold")
PACKAGES = ("teetotal", "lake", *TIERS, "assets", "pipelines", "report", "collector")
NOT_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "misc", "manager", "managers"}
LINES = 400


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def is_ours(path: Path) -> bool:
    """Whether a file is part of the project: what caches hold, such as the environments of peers, is not."""
    return not any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(ROOT).parts)


def modules(*packages: str) -> list[Path]:
    found = [path for package in packages for path in sorted((ROOT / package).rglob("*.py")) if is_ours(path)]
    assert len(found) >= len(packages)
    return found


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


OURS = modules(*PACKAGES, "benchmarks")
EVERYTHING = [*OURS, *modules("tests")]


# -- tables, modules and pages say the same -----------------------------------------------------------------------


def declares_a_table(module: ast.Module) -> bool:
    """Whether `TABLE` is assigned here; importing another module's does not count."""
    return any(
        isinstance(target, ast.Name) and target.id == "TABLE"
        for statement in module.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
    )


def list_declared_modules() -> set[str]:
    """The modules of the tiers that declare a table."""
    return {f"{path.parent.name}.{path.stem}" for path in modules(*TIERS) if declares_a_table(tree(path))}


def test_every_table_of_the_catalogue_has_its_module_and_every_module_its_place_in_the_catalogue() -> None:
    assert list_declared_modules() == {*TABLES, *ANSWERS}


def test_a_table_that_a_command_computes_is_on_the_page_and_in_no_lake() -> None:
    assert set(ANSWERS) == {"gold.strategy_plan"}
    assert not set(ANSWERS) & {*TABLES, *UPSTREAM}
    assert "### `gold.strategy_plan`" in render_page()
    assert "In no lake: computed when a command asks." in render_page()


@pytest.mark.parametrize("full_name", TABLES)
def test_a_table_is_called_as_its_module_is(full_name: str) -> None:
    table = importlib.import_module(full_name).TABLE
    assert isinstance(table, Table)
    assert table is TABLES[full_name]
    assert table.full_name == full_name


def test_the_page_of_tables_is_current() -> None:
    written = (ROOT / "docs" / "tables.md").read_text("utf-8")
    assert written == render_page(), "run `python -m assets.build.catalogue`"


def test_a_table_that_is_not_in_the_catalogue_would_be_found() -> None:
    assert declares_a_table(ast.parse("TABLE = Table()"))
    assert declares_a_table(ast.parse("TABLE: Table = Table()"))
    assert not declares_a_table(ast.parse("from bronze.runs import TABLE"))


# -- the environment is read in one place -------------------------------------------------------------------------

# The collector runs in another process, on another machine: what it finds there is not our configuration.
CONFIGURED = [path for path in OURS if path.parent.name not in {"collector", "benchmarks"}]
READS = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def reads_the_environment(module: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr in READS)
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and READS & {alias.name for alias in node.names})
        for node in ast.walk(module)
    )


def test_the_environment_is_read_in_one_place() -> None:
    # allocators.py sets what allocators read, before anything else may be imported; no setting of ours is read there.
    known = ["pipelines/allocators.py", "pipelines/settings.py"]
    assert [name(path) for path in CONFIGURED if reads_the_environment(tree(path))] == known


@pytest.mark.parametrize(
    "planted",
    [
        "import os\nos.environ['A']",
        "import os as o\no.getenv('A')",
        "from os import environ",
        "from os import getenv as g",
    ],
)
def test_a_second_reader_of_the_environment_would_be_found(planted: str) -> None:
    assert reads_the_environment(ast.parse(planted))


# -- files --------------------------------------------------------------------------------------------------------


def names_nothing(path: Path) -> bool:
    """Whether a file is called for no subject at all."""
    return bool(NOT_NAMES & set(path.stem.lower().split("_")))


def test_no_file_is_named_for_nothing() -> None:
    folders = [ROOT / package for package in (*PACKAGES, "benchmarks", "tests", "docs")]
    files = [path for folder in folders for path in folder.rglob("*") if is_ours(path)]
    assert [name(path) for path in files if names_nothing(path)] == []
    assert names_nothing(Path("lake/path_utils.py"))
    assert names_nothing(Path("bronze/base.sql"))


def test_every_module_can_be_read_in_one_sitting() -> None:
    lengths = {name(path): len(path.read_text("utf-8").splitlines()) for path in EVERYTHING}
    assert {path: length for path, length in lengths.items() if length > LINES} == {}


def is_introduced(module: ast.Module) -> bool:
    docstring = ast.get_docstring(module) or ""
    return docstring.partition("\n\n")[0].endswith((".", ":", "?"))


def test_every_module_says_first_what_may_live_there() -> None:
    assert [name(path) for path in OURS if not is_introduced(tree(path))] == []
    assert not is_introduced(ast.parse("import os"))
    assert not is_introduced(ast.parse('"""Utilities"""'))


def test_tests_are_no_packages_which_would_shadow_ours() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []
