"""One row per pattern of a site's own `span_kinds.toml`, as the file in a run's directory says it."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from bronze import json_text
from bronze.records import RecordReader
from lake.errors import EvidenceRejected
from lake.tables import RUN_ID, Table, boolean, int64, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits

VERSION = 1
FILE_NAME = "span_kinds.toml"
MOST_BYTES = 1 << 20
_MARK = b"[[pattern]]"
_KEYS = {"id": str, "kind": str, "categories": list, "name": str, "is_step": bool}

TABLE = Table(
    tier="bronze",
    name="span_patterns",
    grain="One row per pattern of a site's own `span_kinds.toml` in a run's directory.",
    key=("source_sha256", "ordinal"),
    partition_by=("run_id", "source_sha256"),
    columns=(
        RUN_ID,
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the pattern in its file, from 0: the first that matches wins.", minimum=0),
        text("pattern_id", "What the site calls it."),
        text("kind", "Kind of span that it stands for."),
        text(
            "categories",
            "Categories whose events it is asked of, as a JSON list; null where it does not say.",
            nullable=True,
        ),
        text("name_pattern", "Regular expression that a name has to match."),
        boolean("is_step", "Whether a range of that name is a training step."),
    ),
)


def is_site_patterns(head: bytes) -> bool:
    """Whether it is a TOML file of patterns: comments and a version at most before the first of them."""
    lines = (line.strip() for line in head.splitlines())
    first = [line for line in lines if line and not line.startswith((b"#", b"version"))]
    return bool(first) and first[0] == _MARK


def parse_patterns(data: bytes, where: str) -> list[dict[str, Any]]:
    """The patterns of a site's file; anything else in it is refused by name."""
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise EvidenceRejected(f"{where} is no TOML: {error}"[:300]) from error
    strangers = sorted(document.keys() - {"version", "pattern"})
    if strangers:
        raise EvidenceRejected(f"{where} has {', '.join(strangers)}", "a site's file has [[pattern]] entries alone")
    entries = document.get("pattern", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise EvidenceRejected(f"{where}: `pattern` is no list of tables", "write each as [[pattern]]")
    return [_check_entry(entry, where) for entry in entries]


def _check_entry(entry: dict[str, Any], where: str) -> dict[str, Any]:
    name = str(entry.get("id", "?"))[:64]
    wrong = [key for key, value in entry.items() if key not in _KEYS or not isinstance(value, _KEYS[key])] + [
        key for key in ("id", "kind", "name") if key not in entry
    ]
    if wrong:
        raise EvidenceRejected(
            f"{where}: pattern {name} has a wrong or missing {', '.join(sorted(set(wrong)))}",
            f"a pattern has {', '.join(_KEYS)}; id, kind and name are needed",
        )
    categories = entry.get("categories")
    return {
        "pattern_id": entry["id"],
        "kind": entry["kind"],
        "categories": None if categories is None else json_text.write_json([str(one) for one in categories]),
        "name_pattern": entry["name"],
        "is_step": entry.get("is_step", False),
    }


class SpanPatternsReader(RecordReader):
    """One pass over one file, which is small."""

    def __init__(self, blocks: Iterator[bytes], _limits: Limits) -> None:
        super().__init__(TABLE)
        self._blocks = blocks

    def _read(self) -> Iterator[None]:
        data = b""
        for block in self._blocks:
            data += block
            if len(data) > MOST_BYTES:
                raise EvidenceRejected(f"it has more than {MOST_BYTES:,} bytes, which no file of patterns has")
        for row in parse_patterns(data, "it"):
            self.add(TABLE, row, 256)
            yield
