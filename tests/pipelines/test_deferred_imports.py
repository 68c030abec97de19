"""What Dagster imports and a launch does not use comes when it is used, and is then what it always was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNUSED = "sorted({'alembic', 'mako', 'rich'} & set(sys.modules))"
OPEN = f"""
import sys
from pipelines.instance import open_instance
from pipelines.settings import settings
home = settings(sys.argv[1], environment={{}}).home
with open_instance(home) as records:
    records.get_runs()
    print({UNUSED})
"""
USE = """
import sys
from pipelines.deferred_imports import import_dagster_storage
import_dagster_storage()
from dagster._core.storage import sql
print({unused})
{use}
"""


def tell(program: str, *args: str) -> list[str]:
    """What a process says."""
    done = subprocess.run([sys.executable, "-c", program, *args], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_records_that_are_set_up_are_opened_without_what_migrates_them(tmp_path: Path) -> None:
    first, second = (tell(OPEN, str(tmp_path / "lake")) for _ in range(2))
    assert "alembic" in first[0]
    assert second == ["[]"]


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (
            "import alembic.config\nprint(type(sql.get_alembic_config(sql.__file__)) is alembic.config.Config)",
            "True",
        ),
        ("from alembic.script import ScriptDirectory\nprint(sql.ScriptDirectory.from_config is not None)", "True"),
        (
            "class Migrations(sql.MigrationContext): ...\nprint(Migrations.mro()[1].__module__)",
            "alembic.runtime.migration",
        ),
        ("import rich.console\nprint(rich.console.Console is not None)", "True"),
    ],
    ids=["a call", "an attribute", "a base", "an import"],
)
def test_what_is_used_is_imported_and_real(use: str, told: str) -> None:
    assert tell(USE.format(use=use, unused=UNUSED)) == ["[]", told]


def test_a_stand_in_that_is_used_at_once_is_the_real_module() -> None:
    program = (
        "from pipelines.deferred_imports import defer_imports\n"
        "with defer_imports('colorsys', 'wave'):\n"
        "    import colorsys\n"
        "    print(colorsys.rgb_to_hsv(0, 0, 0))\n"
        "    import wave\n"
        "    print(wave.open.__name__)\n"
    )
    assert tell(program) == ["(0.0, 0.0, 0)", "open"]
