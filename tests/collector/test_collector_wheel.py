"""The collector's own wheel, installed as a training image has it, beside packages that are called as ours are."""

from __future__ import annotations

import tomllib
import zipfile
from email import message_from_bytes
from typing import TYPE_CHECKING

import pytest

from bronze import manifest
from tests.support.installed_wheel import (
    GENERIC,
    ROOT,
    Installation,
    build_wheel,
    install_wheel,
    occupy_names,
)

if TYPE_CHECKING:
    from pathlib import Path

LOOP = """
import torch
from teetotal_collector import Window, record

model = torch.nn.Linear(8, 1)
with record("landing", "run-1", window=Window(1, 1, 2), module=model, model="line", regime="cc_off") as recording:
    for _ in range(6):
        model(torch.ones(4, 8)).sum().backward()
        recording.step()
"""
HOPS = ("--worlds", "2", "--chunks-kib", "64", "--transports", "tcp", "--bucket-mib", "1", "--seconds", "0.01")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT / "collector", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install_wheel(wheel, tmp_path_factory.mktemp("installed") / "environment")


@pytest.fixture(scope="module")
def installed_alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install_wheel(wheel, tmp_path_factory.mktemp("alone") / "environment", is_alone=True)


def test_it_installs_one_name_and_brings_what_a_training_image_lacks_at_most(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = {name.partition("/")[0] for name in file.namelist()}
        (path,) = (name for name in file.namelist() if name.endswith("/METADATA"))
        said = message_from_bytes(file.read(path))
    assert names == {"teetotal_collector", f"teetotal_collector-{said['Version']}.dist-info"}
    assert [one.partition(">")[0].partition("<")[0] for one in said.get_all("Requires-Dist", [])] == ["cryptography"]


def test_both_wheels_have_one_version_and_one_cryptography() -> None:
    ours, theirs = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"] for folder in (".", "collector")
    )
    assert theirs["version"] == ours["version"]
    assert set(theirs["dependencies"]) <= set(ours["dependencies"])


def test_a_loop_is_recorded_beside_packages_of_the_same_names(installed: Installation, tmp_path: Path) -> None:
    place = occupy_names(tmp_path, GENERIC)
    (place / "train.py").write_text(LOOP)
    asked = installed.ask("python", "train.py", cwd=place)
    assert asked.returncode == 0, asked.stderr
    landed = place / "landing" / "run-1"
    assert {path.name for path in landed.iterdir()} == {"run.toml", "run-1-r0.json.gz", "steps-r0.csv"}
    assert manifest.parse((landed / "run.toml").read_bytes(), "run.toml").claims["model"] == "line"


@pytest.mark.parametrize("words", [("teetotal-collector",), ("python", "-m", "teetotal_collector")])
def test_the_command_starts_ranks_of_its_own_beside_packages_of_the_same_names(
    installed: Installation, tmp_path: Path, words: tuple[str, ...]
) -> None:
    asked = installed.ask(*words, "hop", *HOPS, cwd=occupy_names(tmp_path, GENERIC))
    assert asked.returncode == 0, asked.stderr
    assert "| tcp |" in asked.stdout


@pytest.mark.parametrize("words", [("teetotal-collector", "facts"), ("python", "-m", "teetotal_collector", "facts")])
def test_without_torch_it_says_so_in_one_line(installed_alone: Installation, words: tuple[str, ...]) -> None:
    asked = installed_alone.ask(*words, cwd=installed_alone.directory)
    assert asked.returncode == 2
    assert asked.stderr == "collector: torch is not installed: install it in the environment that you train in\n"
