"""No value meets a query's text: what is handed to an engine is a literal, or made of literals alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("lake", "bronze", "silver", "gold", "assets", "pipelines", "report", "collector", "benchmarks")
ASKS = {"sql", "execute", "executemany", "query", "from_query", "run_query"}
TEXTS = {"sql", "query", "statement", "predicate"}  # keywords that carry query text, whatever the method is called
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Queries:
    """All queries of one module, and whether their texts come from literals alone."""

    def __init__(self, source: str) -> None:
        self._module = ast.parse(source)
        self._functions = {node.name: node for node in ast.walk(self._module) if isinstance(node, Function)}
        self._constants = {
            target.id: statement.value
            for statement in self._module.body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }

    def faults(self) -> list[int]:
        """The lines on which a text meets an engine that is no literal."""
        return sorted(
            node.lineno
            for scope, node in self._calls(self._module, None)
            for text in self._texts(node)
            if not self._is_literal(text, scope)
        )

    @property
    def count(self) -> int:
        """How many texts meet an engine here."""
        return sum(len(self._texts(call)) for _, call in self._calls(self._module, None))

    def _calls(self, node: ast.AST, scope: Function | None) -> list[tuple[Function | None, ast.Call]]:
        found = [(scope, node)] if isinstance(node, ast.Call) else []
        inner = node if isinstance(node, Function) else scope
        return found + [call for child in ast.iter_child_nodes(node) for call in self._calls(child, inner)]

    @staticmethod
    def _texts(call: ast.Call) -> list[ast.expr]:
        texts = [keyword.value for keyword in call.keywords if keyword.arg in TEXTS]
        if isinstance(call.func, ast.Attribute) and call.func.attr in ASKS:
            texts += call.args[:1]
        return texts

    def _is_literal(self, text: ast.expr, scope: Function | None) -> bool:
        if isinstance(text, ast.Constant):
            return True
        if isinstance(text, ast.Name) and scope is not None and text.id in parameters(scope):
            return self._is_handed_literals(scope, text.id)
        if isinstance(text, ast.Name):
            return isinstance(self._constants.get(text.id), ast.Constant)
        if isinstance(text, ast.Call) and isinstance(text.func, ast.Name) and not text.args and not text.keywords:
            maker = self._functions.get(text.func.id)
            return maker is not None and not any(map(is_put_together, ast.walk(maker)))
        return False

    def _is_handed_literals(self, function: Function, parameter: str) -> bool:
        """Whether every caller of a private function hands it literals; a public one may be handed anything."""
        if not function.name.startswith("_"):
            return False
        place = parameters(function).index(parameter)
        handed = []
        for scope, call in self._calls(self._module, None):
            is_method = isinstance(call.func, ast.Attribute)
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
            if called != function.name:
                continue
            given = dict(zip(range(int(is_method), 99), call.args, strict=False))
            named = {keyword.arg: keyword.value for keyword in call.keywords}
            handed.append((given.get(place) or named.get(parameter), scope))
        return bool(handed) and all(text is not None and self._is_literal(text, scope) for text, scope in handed)


def parameters(function: Function) -> list[str]:
    return [argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def is_put_together(node: ast.AST) -> bool:
    """Whether a text may be made of parts here."""
    return (
        isinstance(node, ast.JoinedStr | ast.BinOp)
        or (isinstance(node, ast.Attribute) and node.attr in {"format", "format_map", "join", "replace", "substitute"})
        or isinstance(node, ast.AugAssign)
    )


MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_no_value_meets_a_query_text() -> None:
    queries = {str(path.relative_to(ROOT)): Queries(path.read_text("utf-8")) for path in MODULES}
    assert {name: found.faults() for name, found in queries.items() if found.faults()} == {}
    assert sum(found.count for found in queries.values()) >= 2


PLANTED = {
    "f-string": "def f(c, x):\n    c.sql(f'SELECT {x}')",
    "percent": "def f(c, x):\n    c.execute('SELECT %s' % x)",
    "format": "def f(c, x):\n    c.execute('SELECT {}'.format(x))",
    "plus": "def f(c, x):\n    c.query('SELECT ' + x)",
    "local name": "def f(c, x):\n    q = f'SELECT {x}'\n    c.sql(q)",
    "constant of parts": "Q = f'SELECT {1}'\ndef f(c):\n    c.sql(Q)",
    "parameter of a public function": "def f(c, q):\n    c.sql(q)",
    "keyword": "def f(c, x):\n    c.sql(query=f'SELECT {x}')",
    "predicate": "def f(t, x):\n    t.delete(predicate=f'a = {x}')",
    "maker of parts": "def _q():\n    return 'SELECT ' + now()\ndef f(c):\n    c.sql(_q())",
    "maker with a value": "def _q(x):\n    return x\ndef f(c, x):\n    c.sql(_q(x))",
    "private function handed a value": "def _ask(c, q):\n    c.sql(q)\ndef f(c, x):\n    _ask(c, f'SELECT {x}')",
    "private method handed a value": (
        "class A:\n    def _ask(self, q):\n        self.c.sql(q)\n    def f(self, x):\n        self._ask('SELECT ' + x)"
    ),
}
HARMLESS = {
    "literal": "def f(c, x):\n    c.sql('SELECT $x', params={'x': x})",
    "constant": "Q = 'SELECT $x'\ndef f(c, x):\n    c.sql(Q, params={'x': x})",
    "maker of a literal": "def _q():\n    return read('a.sql')\ndef f(c):\n    c.sql(_q())",
    "private function handed a literal": "def _ask(c, q):\n    c.sql(q)\ndef f(c):\n    _ask(c, 'SELECT 1')",
    "private method handed a literal": (
        "Q = 'SELECT 1'\nclass A:\n  def _ask(self, q):\n    self.c.sql(q)\n  def f(self):\n    self._ask(q=Q)"
    ),
}


@pytest.mark.parametrize("source", PLANTED.values(), ids=PLANTED.keys())
def test_a_value_in_a_query_text_would_be_found(source: str) -> None:
    assert len(Queries(source).faults()) == 1


@pytest.mark.parametrize("source", HARMLESS.values(), ids=HARMLESS.keys())
def test_a_query_of_literals_is_let_pass(source: str) -> None:
    assert Queries(source).faults() == []
