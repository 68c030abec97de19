"""No value meets a query's text: what is handed to an engine is a literal, or made of literals alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# What is no source: tests plant queries on purpose, and hidden folders hold what is installed.
PACKAGES = sorted(
    folder
    for folder in ROOT.iterdir()
    if folder.is_dir() and folder.name != "tests" and not folder.name.startswith(".") and any(folder.rglob("*.py"))
)
ASKS = {"sql", "execute", "executemany", "query", "from_query", "run_query", "read_sql"}
BARE_ASKS = {"sql", "execute"}
# Methods that take frames' expressions as well as texts of SQL: here a text that is put together is a fault.
FRAGMENTS = {
    "filter",
    "where",
    "having",
    "project",
    "aggregate",
    "order",
    "selectExpr",
    "expr",
    "SQLExpression",
    "delete",
}
TEXTS = {"sql", "query", "statement", "predicate"}  # keywords that carry query text, whatever the method is called
TEMPLATE = re.compile(r"\{\{|\{%|\{\w*\}|\$\{|%s|%\(\w+\)")
# What a person types after `teetotal query` is the one text that is no literal. It is one statement that reads, its
# values are bound, and the database is locked: tests/pipelines/test_query.py and test_injection.py hold it to that.
# Spark cannot be locked: its text is parsed, checked and written anew first, which test_spark_query.py doubts.
TYPED = {
    "pipelines/cli/sandbox.py": ["connection.sql(statement, params=values)"],
    "pipelines/cli/spark_query.py": ["session.sql(asked.text, args=values)"],
}
# Declared with its relation: every `query=` is held to be a literal where it is declared.
DECLARED = {"assets/checks/relation.py": ["backend.connection.execute(relation.query)"]}
# Expressions of SQLAlchemy's, by their type no text; of forgotten records one function asks all of them.
BUILT = {
    "pipelines/check_records.py": [
        "index.execute(_ADD, [row for one in group for row in _plan_check(*one)])",
        "index.execute(_END, {**bound, 'of_partition': found.partition, **ended})",
        "index.execute(_ADD, {**key, 'partition': found.partition, **ended})",
    ],
    "pipelines/forgotten_records.py": ["connection.execute(statement)"],
    "pipelines/sqlite_records.py": [
        "self._begun[run_id].execute(_INSERT, rows)",
        "index.execute(_INSERT, rows)",
        "index.execute(select(func.max(SqlEventLogStorageTable.c.id)))",
        "index.execute(_UPDATE_ASSET, {'of_asset': asset_key.to_string(), **values})",
    ],
}
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

    def faults(self) -> list[ast.Call]:
        """The calls in which a text meets an engine that is no literal."""
        return [
            call
            for scope, call in self._calls(self._module, None)
            if not all(self._is_literal(text, scope) for text in self._texts(call))
            or any(self._is_built(text, scope) for text in self._fragments(call))
        ]

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
        if isinstance(call.func, ast.Name) and call.func.id in BARE_ASKS:
            texts += call.args[:1]
        return texts

    @staticmethod
    def _fragments(call: ast.Call) -> list[ast.expr]:
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
        return list(call.args) if called in FRAGMENTS else []

    @staticmethod
    def _is_built(text: ast.expr, scope: Function | None) -> bool:
        """Whether a text is put together of parts, here or in the function where its name is given."""
        if isinstance(text, ast.Name) and scope is not None:
            given = [node.value for node in ast.walk(scope) if isinstance(node, ast.Assign) and names(node, text.id)]
            return any(map(is_text_of_parts, given))
        return is_text_of_parts(text)

    def _is_literal(self, text: ast.expr, scope: Function | None) -> bool:
        if isinstance(text, ast.Constant):
            return True
        if isinstance(text, ast.Name) and scope is not None and text.id in parameters(scope):
            return self._is_handed_literals(scope, text.id)
        if isinstance(text, ast.Name):
            return isinstance(self._constants.get(text.id), ast.Constant)
        if isinstance(text, ast.Subscript) and isinstance(text.value, ast.Name):
            chosen = self._constants.get(text.value.id)
            return isinstance(chosen, ast.Dict) and all(isinstance(value, ast.Constant) for value in chosen.values)
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


def is_text_of_parts(node: ast.expr) -> bool:
    """Whether a text, as far as one can see, is put together here."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        return any(is_text(side) or is_text_of_parts(side) for side in (node.left, node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return is_text(node.func.value) and node.func.attr in {"format", "format_map", "join", "replace"}
    return False


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def names(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def sources(ending: str) -> dict[str, str]:
    """Every file of our own with that ending, by its path."""
    paths = [
        *ROOT.glob(ending),
        *(path for package in PACKAGES for path in sorted(package.rglob(ending)) if ".cache" not in path.parts),
    ]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def test_no_value_meets_a_query_text() -> None:
    queries = {path: Queries(source) for path, source in sources("*.py").items()}
    assert {"lake/store.py", "bronze/land.py", "pipelines/cli/sandbox.py", "collector/__init__.py"} <= queries.keys()
    faults = {path: [ast.unparse(call) for call in found.faults()] for path, found in queries.items()}
    assert {path: calls for path, calls in faults.items() if calls} == TYPED | DECLARED | BUILT
    assert sum(found.count for found in queries.values()) >= 2


def test_a_file_of_sql_is_no_template() -> None:
    assert [path for path, text in sources("*.sql").items() if TEMPLATE.search(text)] == []


@pytest.mark.parametrize(
    "text", ["x = {x}", "x = {{ x }}", "x = '{}'", "x = ${x}", "x = %s", "x = %(x)s", "{% if x %}"]
)
def test_a_template_of_sql_would_be_found(text: str) -> None:
    assert TEMPLATE.search(text)


@pytest.mark.parametrize("text", ["x = $x", "x = ?", "x LIKE '%a'", "x % 2", "{'a': 1}", "x::INTEGER::TEXT"])
def test_bound_values_in_a_file_of_sql_are_let_pass(text: str) -> None:
    assert not TEMPLATE.search(text)


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
    "bare name": "from duckdb import sql\ndef f(x):\n    sql(f'SELECT {x}')",
    "bytes of parts": "def f(c, x):\n    c.execute(b'SELECT ' + x)",
    "joined": "def f(c, x):\n    c.sql(' '.join(['SELECT', x]))",
    "template": "def f(c, x):\n    c.sql(Template('SELECT $x').substitute(x=x))",
    "replaced": "def f(c, x):\n    c.sql('SELECT x'.replace('x', x))",
    "added up": "def f(c, x):\n    q = 'SELECT '\n    q += x\n    c.sql(q)",
    "out of a file and filled in": "def _q():\n    return read('a.sql').format(1)\ndef f(c):\n    c.sql(_q())",
    "one of many, not all literal": "Q = {'a': f'SELECT {1}'}\ndef f(c):\n    c.sql(Q['a'])",
    "one of many that a caller gives": "def f(c, q):\n    c.sql(q['a'])",
    "choice": "def f(c, x, y):\n    c.sql('SELECT 1' if x else y)",
    "lambda": "f = lambda c, x: c.sql(f'SELECT {x}')",
    "spark": "def f(spark, x):\n    spark.sql(f'SELECT {x}', args={})",
    "filter": "def f(r, x):\n    r.filter(f'a = {x}')",
    "filter, plus": "def f(r, x):\n    r.filter('a = ' + x + ' AND b')",
    "filter, percent": "def f(r, x):\n    r.filter('a = %s' % x)",
    "filter, format": "def f(r, x):\n    r.filter('a = {}'.format(x))",
    "filter, local name": "def f(r, x):\n    q = f'a = {x}'\n    r.filter(q)",
    "expression": "def f(x):\n    return duckdb.SQLExpression(f'a + {x}')",
    "delete": "def f(t, x):\n    t.delete(f'a = {x}')",
    "private method handed a value": (
        "class A:\n    def _ask(self, q):\n        self.c.sql(q)\n    def f(self, x):\n        self._ask('SELECT ' + x)"
    ),
}
HARMLESS = {
    "literal": "def f(c, x):\n    c.sql('SELECT $x', params={'x': x})",
    "constant": "Q = 'SELECT $x'\ndef f(c, x):\n    c.sql(Q, params={'x': x})",
    "maker of a literal": "def _q():\n    return read('a.sql')\ndef f(c):\n    c.sql(_q())",
    "one of many literals": "Q = {'a': 'SELECT 1', 'b': 'SELECT 2'}\ndef f(c, x):\n    c.sql(Q[x])",
    "filter of an expression": "def f(r, x):\n    r.filter(field('a') == x, nw.col('b') + 1 > x)",
    "filter of a literal": "def f(r):\n    r.filter('a = 1')",
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
