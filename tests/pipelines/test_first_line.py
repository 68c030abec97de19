"""What a person sees first: the help, and a line on the terminal before anything that takes seconds to import."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.cli.command_group import SECTIONS
from pipelines.cli.main import main

_ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (["run"], "looking at the runs in "),
        (["demo"], "landing the bundled recordings in "),
        (["status"], "looking at the runs in "),
        (["report"], "reading "),
        (["verify"], "reading every data file of "),
        (["compare", "a", "b"], "reading "),
        (["gate"], "reading "),
        (["what-if"], "reading "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_first_line_on_a_terminal_needs_no_engine_and_no_dagster(words: list[str], first: str) -> None:
    """The process stops at its first line, so that it says what was imported before."""
    code = (
        "import sys; from pipelines.cli import session\n"
        "heavy = {'dagster', 'polars', 'duckdb', 'pyarrow', 'rich'}\n"
        "def stop(text, **_): print(sorted(heavy & set(sys.modules)), text); sys.exit()\n"
        "session.print_lines = stop\n"
        "from pipelines.cli.main import main; main(sys.argv[1:])"
    )
    screen, far_end = pty.openpty()
    said = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=_ROOT, stdout=subprocess.PIPE, stderr=far_end, text=True, check=False
    )
    os.close(far_end)
    os.close(screen)
    assert said.stdout.startswith(f"[] {first}"), said


def test_help_lists_every_command_once_by_purpose_and_cuts_no_sentence() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(main.commands)
    said = CliRunner().invoke(main, ["--help"]).output
    assert "..." not in said.partition("From recordings to answers:")[2]
    for command in main.commands.values():
        sentence = (command.help or "").partition("\n\n")[0].replace("-", " ").split()
        assert " ".join(sentence) in " ".join(said.replace("-", " ").split())
