"""What we install beside us: named with its hash, under a licence that lets a company use it, and in a bill."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "base.lock"
_PERMISSIVE = re.compile(r"\b(0BSD|Apache|BSD|CC0|ISC|MIT|MIT-0|PSF|Python|Zlib|Unlicense)\b", re.IGNORECASE)
# Licences of single files: a change to such a file would have to be given back, and we change none.
_OF_FILES = re.compile(r"\bMPL\b|Mozilla Public")
_REFUSED = re.compile(r"\b(A?GPL|SSPL|BUSL|Commons Clause)\b|(?<!Lesser )General Public", re.IGNORECASE)
# They say it in a file only: https://protobuf.dev and https://www.antlr.org, both BSD-3-Clause.
_SAID_ELSEWHERE = {"antlr4-python3-runtime", "protobuf"}


def list_locked() -> dict[str, str]:
    """Names and versions of what a user installs."""
    found = re.findall(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", LOCK.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[._-]+", "-", name): version for name, version in found}


def read_licence(name: str) -> str | None:
    """What a package says of its licence; none where this platform does not install it."""
    try:
        said = metadata(name)
    except PackageNotFoundError:
        return None
    classifiers = [one for one in said.get_all("Classifier") or () if one.startswith("License ::")]
    # Some put the whole text into the field: its first line names it.
    fields = [(said.json.get(name) or "")[:100] for name in ("license_expression", "license")]
    return " ".join([*map(str, fields), *classifiers])


def is_permitted(name: str, licence: str) -> bool:
    """Whether a company may install it beside its own code without giving that away."""
    is_known = bool(_PERMISSIVE.search(licence) or _OF_FILES.search(licence)) or name in _SAID_ELSEWHERE
    return is_known and not _REFUSED.search(licence)


@pytest.mark.parametrize(
    ("licence", "answer"),
    [
        ("MIT", True),
        ("Apache-2.0 OR BSD-3-Clause", True),
        ("License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)", True),
        ("GPL-3.0-only", False),
        ("AGPL-3.0-or-later OR MIT", False),
        ("License :: OSI Approved :: GNU General Public License v3 (GPLv3)", False),
        ("Proprietary", False),
        ("", False),
    ],
)
def test_licences_are_told_apart(licence: str, answer: bool) -> None:
    assert is_permitted("some-package", licence) is answer


def test_every_package_that_a_user_installs_has_a_licence_that_permits_it() -> None:
    licences = {name: licence for name in list_locked() if (licence := read_licence(name)) is not None}
    assert len(licences) > 80
    assert {name: licence for name, licence in licences.items() if not is_permitted(name, licence)} == {}


def test_the_bill_of_materials_names_every_package_that_a_user_installs_with_its_hashes(tmp_path: Path) -> None:
    bill = tmp_path / "bill.json"
    words = ["requirements", str(LOCK), "--of", "JSON", "-o", str(bill)]
    subprocess.run([sys.executable, "-m", "cyclonedx_py", *words], check=True, capture_output=True)
    components = json.loads(bill.read_bytes())["components"]
    assert {one["name"]: one["version"] for one in components} == list_locked()
    assert all(one["externalReferences"][0]["hashes"] for one in components)
