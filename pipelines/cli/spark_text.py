"""A statement in Spark's dialect, looked at before Spark sees it: it only reads, and names only tables of the lake.

Spark has no connection that is closed off: a text that it takes can call Java, run a program, open a file or write.
So whatever could hide a word is refused (backslashes, `/*`, `$`), and what is left is read word by word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Container

_TAKEN = ("SELECT", "WITH", "FROM", "VALUES", "DESCRIBE")
_WRITES = {"INSERT", "OVERWRITE", "DELETE", "UPDATE", "MERGE", "DIRECTORY"}
# Functions that run code or take a name from a text, however they are qualified or quoted.
_REACHES_OUT = {"REFLECT", "JAVA_METHOD", "TRY_REFLECT", "IDENTIFIER"}
_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\r\n]*)
      | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[^\W\d]\w*)
      | (?P<number>\d[\w.]*)
      | (?P<cast>::)
      | (?P<value>:[^\W\d]\w*)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_PATH_AFTER = {"word", "quoted", "text", "close"}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str

    @property
    def name(self) -> str:
        """An identifier as Spark compares it."""
        inner = self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text
        return inner.upper()


@dataclass(frozen=True)
class SparkText:
    """One statement that reads: its text with each table as one name, those tables, and the names of its values."""

    text: str
    tables: frozenset[str]
    values: frozenset[str]


def check_spark_statement(sql: str, known: Container[str]) -> SparkText:
    """Refuse what is no single statement that reads; `tier.name` becomes the one name under which Spark has it."""
    if "\\" in sql:
        raise EvidenceRejected("a statement for Spark holds no backslash", "give such a text as a value: --param")
    tokens = _tokens(sql.strip())
    words = [token for token in tokens if token.kind != "space"]
    while words and words[-1].text == ";":
        words.pop()
    _refuse(words)
    tables: set[str] = set()
    text = ""
    place = 0
    while place < len(tokens):
        token = tokens[place]
        name = _table(tokens[place : place + 3], known) if not text.endswith(".") else None
        if name is None:
            text += token.text
            place += 1
        else:
            tables.add(name)
            text += f"`{name}`"
            place += 3
    values = frozenset(token.text[1:] for token in words if token.kind == "value")
    return SparkText(text.rstrip("; \n\t"), frozenset(tables), values)


def _tokens(sql: str) -> list[_Token]:
    found: list[_Token] = []
    before = ""
    place = 0
    while place < len(sql):
        match = _TOKEN.match(sql, place)
        if match is None or match.lastgroup is None:
            raise EvidenceRejected("a statement that cannot be read", "check its quotes")
        kind = match.lastgroup
        if kind == "value" and before in _PATH_AFTER:  # `column:field` is a path into a value, not a value's name
            found.append(_Token("sign", ":"))
            place += 1
            before = ""
            continue
        found.append(_Token(kind, match.group()))
        before = "close" if match.group() in {")", "]"} else kind
        place = match.end()
    return found


def _table(tokens: list[_Token], known: Container[str]) -> str | None:
    """The table that three tokens name, as `tier.name`."""
    if len(tokens) < 3 or tokens[1].text != "." or not {tokens[0].kind, tokens[2].kind} <= {"word", "quoted"}:
        return None
    name = f"{tokens[0].name}.{tokens[2].name}".lower()
    return name if name in known else None


def _refuse(words: list[_Token]) -> None:
    if not words:
        raise EvidenceRejected("expected one statement, found none", "ask one question at a time")
    first = next((word for word in words if word.text != "("), words[0])
    if first.kind != "word" or first.name not in _TAKEN:
        raise EvidenceRejected(f"a query only reads, and this begins with {first.text[:40]!r}", f"{', '.join(_TAKEN)}")
    for word, after in zip(words, [*words[1:], _Token("space", "")], strict=True):
        if word.text == ";":
            raise EvidenceRejected("expected one statement, found more", "ask one question at a time")
        if word.text in {"$", "'", '"', "`"} or (word.text == "/" and after.text == "*"):
            raise EvidenceRejected(
                f"{word.text}{after.text if word.text == '/' else ''} is not taken in a statement for Spark",
                "values are :name here, comments begin with --, and every quote has its end",
            )
        if word.kind == "word" and word.name in _WRITES:
            raise EvidenceRejected(f"a query only reads, and this holds {word.name}", "a column of that name: `name`")
        if word.kind in {"word", "quoted"} and word.name in _REACHES_OUT:
            raise EvidenceRejected(f"{word.name.lower()} is out of reach of a query", "ask the tables of the lake")
        if word.name == "USING" and after.kind == "text":
            raise EvidenceRejected("a query runs no program", "ask the tables of the lake")
