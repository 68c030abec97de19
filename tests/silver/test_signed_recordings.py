from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bronze import recording_statements, runs, source_files
from silver import attestations, recordings
from tests.support.silver_rows import rows_of, run_plan, sort_rows

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

# Of each case: statements, files (digest, format), tokens, and what becomes of it.
Case = tuple[list[dict[str, Any]], Sequence[tuple[str | None, str]], list[dict[str, Any]], tuple[Any, ...]]


def signed(digest: str = "a", **fields: Any) -> dict[str, Any]:
    """A file that a statement names."""
    key = {"verdict": "verified", "signing_key_id": "k1", "key_nonce": "n1", "is_manifest": False}
    return {**key, "file_sha256": digest, **fields}


def manifest(digest: str = "m") -> dict[str, Any]:
    return signed(digest, is_manifest=True)


def token(nonce: str = "N1", standing: str = "attested") -> dict[str, Any]:
    return {"nonce": nonce, "standing": standing}


STATEMENT, TOKEN = ("s", "recording_statement"), ("t", "eat_bundle")
FILES = [("a", "kineto"), ("b", "training_csv")]
ALL = [signed("a"), signed("b"), manifest()]
FORGED = (
    "a signature is not by the key that its statement names; 2 of its files nobody signed; nobody signed its run.toml"
)
CASES: dict[str, Case] = {
    "unsigned": ([], FILES, [token()], ("unsigned", None, 2, 0, 0, None)),
    "signed": (ALL, [*FILES, STATEMENT], [], ("signed", "k1", 2, 2, 0, None)),
    "attested": (ALL, [*FILES, STATEMENT, TOKEN], [token()], ("attested", "k1", 2, 2, 0, None)),
    "another-nonce": (ALL, [*FILES, STATEMENT, TOKEN], [token("n2")], ("signed", "k1", 2, 2, 0, None)),
    "a-token-that-does-not-stand": (
        *(ALL, [*FILES, STATEMENT, TOKEN], [token(standing="stale")]),
        ("signed", "k1", 2, 2, 0, None),
    ),
    "one-file-more": (
        *(ALL, [*FILES, ("c", "dcgm"), STATEMENT], [token()]),
        ("partial", "k1", 3, 2, 0, "1 of its files nobody signed"),
    ),
    "a-file-that-may-not-be-read": (
        *(ALL, [*FILES, (None, "unknown"), STATEMENT], []),
        ("partial", "k1", 3, 2, 0, "1 of its files nobody signed"),
    ),
    "no-manifest": (ALL[:2], [*FILES, STATEMENT], [], ("partial", "k1", 2, 2, 0, "nobody signed its run.toml")),
    "a-file-changed": (
        *([signed("x"), *ALL[1:]], [*FILES, STATEMENT], [token()]),
        (
            *("broken", "k1", 2, 1, 1),
            "1 of the files that were signed have not landed as they were; 1 of its files nobody signed",
        ),
    ),
    "a-file-gone": (
        *(ALL, [FILES[0], STATEMENT], []),
        ("broken", "k1", 1, 1, 1, "1 of the files that were signed have not landed as they were"),
    ),
    "another-manifest": (
        *([*ALL[:2], manifest("o")], [*FILES, STATEMENT], []),
        ("broken", "k1", 2, 2, 0, "run.toml is not the one that was signed"),
    ),
    "of-another-run": (
        *([{**row, "statement_run_id": "signed"} for row in ALL], [*FILES, STATEMENT], []),
        (
            *("broken", None, 2, 0, 0),
            "a statement was made for another run; 2 of its files nobody signed; nobody signed its run.toml",
        ),
    ),
    "forged": (
        *([{**row, "verdict": "forged"} for row in ALL], [*FILES, STATEMENT], []),
        (
            *("forged", None, 2, 0, 0),
            FORGED,
        ),
    ),
    "two-keys": (
        *([*ALL[:1], *(signed(one, signing_key_id="k2", key_nonce="n2") for one in "ab"), manifest()],),
        *([*FILES, STATEMENT, TOKEN], [token()], ("signed", None, 2, 2, 0, None)),
    ),
}


def test_a_recording_is_held_against_what_was_signed(engine: Bench) -> None:
    statements: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    tokens: list[dict[str, Any]] = []
    for run_id, (said, landed, given, _) in CASES.items():
        statements += [{"run_id": run_id, "statement_run_id": run_id, **row} for row in said]
        files += [{"run_id": run_id, "source_sha256": digest, "format": name} for digest, name in landed]
        claims.append({"run_id": run_id, "manifest_sha256": "m"})
        tokens += [{"run_id": run_id, **row} for row in given]
    plan = recordings.conform(
        engine.wrap(rows_of(recording_statements.TABLE, statements)),
        engine.wrap(rows_of(source_files.TABLE, files)),
        engine.wrap(rows_of(runs.TABLE, claims)),
        engine.wrap(rows_of(attestations.TABLE, tokens)),
    )
    rows = sort_rows(recordings.TABLE, run_plan(engine, plan, recordings.TABLE)).rows()
    assert {row[0]: row[1:] for row in rows} == {run_id: expected for run_id, (*_, expected) in CASES.items()}
