"""The wheel of this checkout, installed, and used in a directory whose packages are called as ours are."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from typing import TYPE_CHECKING

import pytest

from hatch_build import prefix_imports
from lake.identity import MANIFEST
from tests.support.installed_wheel import (
    GENERIC,
    ROOT,
    Installation,
    ask,
    build_wheel,
    copy_image_sources,
    environment,
    install_editable,
    install_wheel,
    occupy_names,
)
from tests.support.small_runs import OFF, trace
from tests.support.web_interface import eventually

if TYPE_CHECKING:
    from pathlib import Path

_PACKAGES = frozenset(GENERIC)
_PROJECT = ROOT / "pyproject.toml"
_DEPLOYMENTS = ("Dockerfile", "compose.yaml", "docs/operations.md", "docs/kubernetes.yaml", "docs/dagster-values.yaml")
_LOCATIONS = (
    "{ workspaceOrError { ... on Workspace { locationEntries { loadStatus locationOrLoadError { __typename } } } } }"
)
_LAUNCHES = "{ runsOrError { ... on Runs { results { status } } } }"
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of the files that the image is built of: what .dockerignore leaves out is missing here too."""
    return build_wheel(copy_image_sources(tmp_path_factory.mktemp("sources")), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install_wheel(wheel, tmp_path_factory.mktemp("installed") / "environment")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of somebody's, where our names stand for other things; a run has landed in it."""
    place = occupy_names(tmp_path_factory.mktemp("elsewhere"), GENERIC)
    land_run(place, "one")
    return place


def land_run(place: Path, run_id: str) -> None:
    directory = place / "data" / "landing" / run_id
    directory.mkdir(parents=True)
    (directory / "rank0.json").write_bytes(trace(100))
    (directory / MANIFEST).write_text(OFF, "utf-8")


# -- what is in it ------------------------------------------------------------------------------------------------


def test_a_wheel_installs_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"teetotal"}
    assert {"teetotal/py.typed", "teetotal/dagster.yaml", "teetotal/bronze/trace_events.sql"} <= set(names)
    assert len(names) == len(set(names))


def test_a_wheel_holds_every_committed_file_of_its_packages(wheel: Path) -> None:
    packages = tomllib.loads(_PROJECT.read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    asked = subprocess.run(["git", "ls-files", *packages], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    committed = {name for name in asked.stdout.splitlines() if (ROOT / name).is_file()}
    assert len(committed) > 500
    with zipfile.ZipFile(wheel) as file:
        held = set(file.namelist())
    assert {name for name in committed if f"teetotal/{name.removeprefix('teetotal/')}" not in held} == set()


def test_no_module_of_a_wheel_imports_a_generic_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        sources = {name: file.read(name) for name in file.namelist() if name.endswith(".py")}
    assert len(sources) > 200
    assert {name: found for name, source in sources.items() if (found := list_generic_imports(source))} == {}
    assert list_generic_imports(b"from lake.store import Lake\nimport gold") == ["gold", "lake"]


def list_generic_imports(source: bytes) -> list[str]:
    nodes = list(ast.walk(ast.parse(source)))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return sorted({module.partition(".")[0] for module in modules} & _PACKAGES)


@pytest.mark.parametrize(
    ("written", "installed"),
    [
        ("from lake.store import Lake", "from teetotal.lake.store import Lake"),
        ("from lake import errors", "from teetotal.lake import errors"),
        ("import gold", "from teetotal import gold"),
        ("import gold as g  # why", "from teetotal import gold as g  # why"),
        ("def a():\n    from gold import (\n  b,\n)", "def a():\n    from teetotal.gold import (\n  b,\n)"),
        ("é = 1; from lake import errors", "é = 1; from teetotal.lake import errors"),
        ("from . import lake\nimport lakes, os\ntext = 'from lake import x'", None),
    ],
)
def test_only_imports_of_our_packages_are_renamed_and_no_line_moves(written: str, installed: str | None) -> None:
    assert prefix_imports(written, _PACKAGES) == (installed or written)


@pytest.mark.parametrize("written", ["import lake.store", "import os, lake"])
def test_an_import_that_cannot_be_renamed_in_place_stops_the_build(written: str) -> None:
    with pytest.raises(ValueError, match=r"a\.py:1: "):
        prefix_imports(written, _PACKAGES, "a.py")


def test_every_module_that_a_deployment_starts_is_in_a_wheel(installed: Installation, tmp_path: Path) -> None:
    text = "".join((ROOT / name).read_text("utf-8") for name in _DEPLOYMENTS)
    # `-m name` and `--module-name name`, also as items of a list.
    named = set(re.findall(r"(?<![\w-])(?:-m|--module-name)[\"', ]+([a-z_]+(?:\.[a-z_]+)+)", text))
    assert "teetotal.pipelines.definitions" in named
    program = (
        "import sys; from importlib.util import find_spec\n"
        "def has(name): return not name or has(name.rpartition('.')[0]) and find_spec(name) is not None\n"
        "print(*(name for name in sys.argv[1:] if not has(name)))"
    )
    asked = installed.ask("python", "-P", "-c", program, *sorted(named), cwd=tmp_path)
    assert asked.stdout.split() == [], asked.stderr


# -- beside packages of the caller's ------------------------------------------------------------------------------


def test_a_run_is_made_shown_and_queried_beside_packages_of_the_same_names(
    installed: Installation, elsewhere: Path
) -> None:
    # What is asked for below, and no more: the web interface makes and checks every table.
    made = installed.ask("teetotal", "run", "--to", "gold.step_times", cwd=elsewhere)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("one: 6 events, ")
    words = ("show", "gold.step_times", "--columns", "run_id,step_ns", "--format", "csv")
    shown = installed.ask("teetotal", *words, cwd=elsewhere)
    assert shown.stdout.splitlines()[1:] == ['"one",100000'], shown.stderr
    sql = "SELECT count(*) AS steps FROM silver.steps WHERE run_id = $run"
    words = ("query", sql, "--param", "run=one", "--format", "csv")
    assert installed.ask("python", "-m", "teetotal", *words, cwd=elsewhere).stdout.splitlines() == ['"steps"', "3"]
    program = f"import teetotal; print(teetotal.open().query({sql!r}, run='one').to_dicts())"
    assert installed.ask("python", "-c", program, cwd=elsewhere).stdout == "[{'steps': 3}]\n"


def test_the_bundled_recordings_are_found(installed: Installation, tmp_path: Path) -> None:
    program = (
        "from teetotal.lake.landing_zone import LandingZone; from teetotal.lake.locations import Location; "
        "from teetotal.pipelines.cli.demo import land_samples; "
        "print(*land_samples(LandingZone(Location.of('landing')), ('resnet50-plain-w1',)))"
    )
    asked = installed.ask("python", "-c", program, cwd=tmp_path)
    assert asked.stdout.split() == ["resnet50-plain-w1", "resnet50-plain-w1-again1", "resnet50-plain-w1-again2"]


def test_the_module_calls_itself_what_was_typed(installed: Installation, elsewhere: Path) -> None:
    asked = installed.ask("python", "-m", "teetotal", "--help", cwd=elsewhere)
    assert asked.stdout.startswith("Usage: python -m teetotal [OPTIONS] COMMAND"), asked.stderr


@pytest.mark.parametrize("program", ["import teetotal, pipelines", "import pipelines, teetotal"])
def test_somebody_who_imports_teetotal_keeps_packages_of_their_own(
    installed: Installation, tmp_path: Path, program: str
) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").write_text("")
    program += "; import sys; print(pipelines.__path__[0], *sorted({name.split('.')[0] for name in sys.modules}))"
    found, *modules = installed.ask("python", "-c", program, cwd=tmp_path).stdout.split()
    assert found == str(tmp_path / "pipelines")
    assert set(modules) & _PACKAGES == {"pipelines"}


def test_the_web_interface_loads_and_launches_beside_packages_of_the_same_names(
    installed: Installation, tmp_path: Path
) -> None:
    # Dagster's own processes look for Dagster, and for us, where they are installed too.
    place = occupy_names(tmp_path / "place", [*GENERIC, "teetotal", "dagster", "yaml"])
    land_run(place, "one")
    log = tmp_path / "log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [str(installed.directory / "bin" / "teetotal"), "ui", "--port", "0"],
            cwd=place,
            env=environment(TEETOTAL_SENSOR_SECONDS="10"),
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        eventually(lambda: process.poll() is not None or "http://" in log.read_text(), "an address")
        address = re.search(r"http://\S+", log.read_text())
        assert address, log.read_text()
        (location,) = ask_graphql(address[0], _LOCATIONS)["workspaceOrError"]["locationEntries"]
        assert location == {"loadStatus": "LOADED", "locationOrLoadError": {"__typename": "RepositoryLocation"}}
        # The daemon's sensor finds the run, and a process of the code server's makes its tables.
        ended = eventually(lambda: find_ended(address[0]), "a launch that ended")
        assert ended == ["SUCCESS"], log.read_text()
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(90)


def ask_graphql(address: str, query: str) -> dict[str, dict[str, list[dict[str, object]]]]:
    asked = urllib.request.Request(  # noqa: S310 - loopback
        f"{address}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
        found: dict[str, dict[str, list[dict[str, object]]]] = json.load(answer)["data"]
    return found


def find_ended(address: str) -> list[str]:
    launches = ask_graphql(address, _LAUNCHES)["runsOrError"]["results"]
    return [status for one in launches if (status := str(one["status"])) in {"SUCCESS", "FAILURE"}][:1]


# -- other ways in ------------------------------------------------------------------------------------------------


def test_uv_installs_it_as_a_tool(wheel: Path, elsewhere: Path, tmp_path: Path) -> None:
    project = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]
    names = [found[0] for one in project["dependencies"] if (found := _REQUIREMENT.match(one))]
    # No dependency is fetched here: each is said to be needed by no Python, and borrowed instead.
    (tmp_path / "none.txt").write_text("".join(f"{name}; python_version < '3'\n" for name in names))
    variables = environment(UV_TOOL_DIR=str(tmp_path / "tools"), UV_TOOL_BIN_DIR=str(tmp_path / "bin"))
    words = ["tool", "install", "--offline", "--no-index", "--overrides", str(tmp_path / "none.txt")]
    subprocess.run(
        [sys.executable, "-m", "uv", *words, "--python", sys.executable, str(wheel)],
        env=variables,
        check=True,
        capture_output=True,
    )
    Installation(tmp_path / "tools" / "teetotal").borrow_packages()
    asked = ask(str(tmp_path / "bin" / "teetotal"), "show", "bronze.run", cwd=elsewhere)
    assert asked.stderr == "teetotal: there is no table 'bronze.run' (did you mean 'bronze.runs'?)\n"
    assert asked.returncode == 2


@pytest.mark.parametrize("words", [("-m", "teetotal"), ("-c", "from teetotal.__main__ import main; main()")])
def test_a_checkout_goes_on_working(words: tuple[str, ...], tmp_path: Path) -> None:
    asked = ask(sys.executable, *words, "--version", cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert re.fullmatch(r".*, version \d+\.\d+\.\d+\n", asked.stdout), asked.stderr


def test_an_editable_install_is_the_checkout_itself(tmp_path: Path) -> None:
    made = install_editable(tmp_path / "environment")
    found = {path.name for path in made.packages.iterdir() if not path.name.endswith(".dist-info")}
    assert found == {"_teetotal.pth", "third_party.pth"}
    program = "import teetotal, lake; print(teetotal.__file__, lake.__file__)"
    assert made.ask("python", "-c", program, cwd=tmp_path).stdout.split() == [
        str(ROOT / name / "__init__.py") for name in ("teetotal", "lake")
    ]
    assert made.ask("teetotal", "--version", cwd=tmp_path).stdout.startswith("teetotal, version ")
