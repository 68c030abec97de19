"""What Dagster imports and a launch does not use comes when it is used, and is then what it always was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
# Each use in a process that has imported what Dagster keeps its records with, and nothing else.
USES = {
    "a call": "import alembic.config\ntold = type(sql.get_alembic_config(sql.__file__)) is alembic.config.Config",
    "an attribute": "from alembic.script import ScriptDirectory\ntold = sql.ScriptDirectory.from_config is not None",
    "a base": "class One(sql.MigrationContext): ...\ntold = One.mro()[1].__module__ == 'alembic.runtime.migration'",
    "an import": "import rich.console\ntold = rich.console.Console is not None",
}
USE = f"""
import os, sys
from pipelines.deferred_imports import import_dagster_storage
import_dagster_storage()
from dagster._core.storage import sql
for name, use in {USES}.items():
    if not os.fork():
        before = {UNUSED}
        names = {{'sql': sql}}
        exec(use, names)
        os.write(1, f"{{name}}: {{before}} {{names['told']}}\\n".encode())
        os._exit(0)
    os.wait()
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


def test_what_is_used_is_imported_and_real() -> None:
    assert tell(USE) == [f"{name}: [] True" for name in USES]


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


# A signal can come before any line; one that is in the middle of it all leaves stand-ins behind.
INTERRUPT = """
import os, sys
from pipelines import deferred_imports
from pipelines.instance import open_instance
from pipelines.settings import settings
home = settings(sys.argv[1], environment={}).home
waits = deferred_imports.defer_imports.__wrapped__.__code__
removes = deferred_imports._remove_stand_ins.__code__
lines = sorted({(code.co_name, line) for code in (waits, removes) for *_, line in code.co_lines() if line})
for place in lines:
    def interrupt(frame, event, _):
        if event == 'line' and (frame.f_code.co_name, frame.f_lineno) == place:
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt if frame.f_code in (waits, removes) else None
    if not os.fork():
        sys.settrace(interrupt)
        try:
            open_instance(home)
            told = 'opened'
        except BaseException as error:
            told = type(error).__name__
        os.write(1, f'{told}\\n'.encode())
        os._exit(0)
    os.wait()
"""


def test_records_whose_opening_is_interrupted_say_nothing_else(tmp_path: Path) -> None:
    told = tell(INTERRUPT, str(tmp_path / "lake"))
    assert len(told) > 8
    # Where a definition or an annotation stands, no line is run.
    assert {*told} == {"KeyboardInterrupt", "opened"}
    assert told.count("KeyboardInterrupt") > 5
