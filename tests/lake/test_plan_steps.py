"""The answers that are kept are those that narwhals gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TELL = """
import sys
from narwhals import _expression_parsing as parsing
from lake.plan_steps import keep_answers

def tell():
    kinds = ("is_orderable", "is_elementwise", "preserves_length", "is_scalar_like")
    found = {(kind.name, name): getattr(kind, name) for kind in parsing.ExprKind for name in kinds}
    counts = ("is_multi_output", "is_multi_unnamed")
    return found | {(count.name, name): getattr(count, name)() for count in parsing.ExpansionKind for name in counts}

before = tell()
keep_answers()
assert "is_elementwise" not in vars(parsing.ExprKind)
assert tell() == before, (tell(), before)
keep_answers()
assert tell() == before
print(len(before), sum(before.values()))
for name in ("ExprKind", "ExpansionKind"):
    delattr(parsing, name)
keep_answers()
"""


def test_each_kind_of_step_answers_as_before_and_a_version_without_them_is_left_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TELL], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout == "70 30\n"
