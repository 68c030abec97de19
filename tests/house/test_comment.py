"""The program that posts a review, against a server on this machine that answers as GitHub or GitLab does."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pipelines.review.page import Review, page
from pipelines.review.section import Reviewed

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent.parent.parent / ".ci" / "comment.py"
CHANGED = page(Review("a with b", (Reviewed("a.txt", "a.txt", "a.txt", "1\n", "2\n"),)))
SAME = page(Review("a with b", ()))
SECRET = "the-token"
PLACES = {
    "github": "/repos/o/r/issues/7/comments",
    "gitlab": "/projects/5/merge_requests/7/notes",
}


@dataclass
class Comments:
    """The comments of one request on a host, and what was asked of it."""

    kind: str
    kept: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    address: str = ""

    def add(self, body: str, author: str | int) -> dict[str, Any]:
        who = {"user": {"login": author}} if self.kind == "github" else {"author": {"id": author}}
        self.kept.append({"id": len(self.kept) + 1, "body": body, **who})
        return self.kept[-1]

    @property
    def me(self) -> str | int:
        return "github-actions[bot]" if self.kind == "github" else 42

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: str | None) -> Any:
        self.asked.append((method, path))
        if path == "/user":
            return {"id": 42}
        if method == "GET" and path == PLACES[self.kind]:
            first = (int(query["page"][0]) - 1) * int(query["per_page"][0])
            return self.kept[first : first + int(query["per_page"][0])]
        if method == "POST" and path == PLACES[self.kind]:
            return self.add(str(body), self.me)
        one = "/repos/o/r/issues/comments" if self.kind == "github" else PLACES["gitlab"]
        folder, _, number = path.rpartition("/")
        if (method, folder) == ("PATCH" if self.kind == "github" else "PUT", one):
            self.kept[int(number) - 1]["body"] = body
            return self.kept[int(number) - 1]
        return None


@contextmanager
def serve(comments: Comments) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            given = json.loads(self.rfile.read(length))["body"] if length else None
            parts = urlsplit(self.path)
            token = self.headers.get("PRIVATE-TOKEN") or (self.headers.get("Authorization") or "").removeprefix(
                "Bearer "
            )
            found = comments.answer(self.command, parts.path, parse_qs(parts.query), given) if token == SECRET else None
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        do_GET = do_POST = do_PATCH = do_PUT = handle_any  # noqa: N815 - called by these names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - called by this name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    comments.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def post(comments: Comments, text: str, folder: Path, **other: str) -> tuple[int, str]:
    (folder / "review.md").write_text(text, "utf-8")
    environment = {
        "github": {
            "GITHUB_API_URL": comments.address,
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_TOKEN": SECRET,
            "PULL_REQUEST": "7",
        },
        "gitlab": {
            "CI_API_V4_URL": comments.address,
            "CI_MERGE_REQUEST_PROJECT_ID": "5",
            "CI_MERGE_REQUEST_IID": "7",
            "SNAPSHOT_REVIEW_TOKEN": SECRET,
        },
    }[comments.kind]
    words = [sys.executable, "-I", str(PROGRAM), "review.md"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=folder, env={**environment, **other})
    assert SECRET not in done.stdout + done.stderr
    return done.returncode, done.stderr


@pytest.fixture(params=["github", "gitlab"])
def comments(request: pytest.FixtureRequest) -> Iterator[Comments]:
    found = Comments(request.param)
    with serve(found):
        yield found


def test_a_review_is_one_comment_that_is_replaced(comments: Comments, tmp_path: Path) -> None:
    for place in range(100):
        comments.add(f"comment {place}", 1)
    assert post(comments, CHANGED, tmp_path) == (0, "comment: comment 101 added\n")
    assert post(comments, SAME, tmp_path) == (0, "comment: comment 101 replaced\n")
    assert [comment["body"] for comment in comments.kept[100:]] == [SAME]


def test_the_comment_of_someone_else_is_left_alone(comments: Comments, tmp_path: Path) -> None:
    comments.add(CHANGED, 1)
    assert post(comments, SAME, tmp_path)[0] == 0
    assert [comment["body"] for comment in comments.kept] == [CHANGED]
    assert {method for method, _ in comments.asked} == {"GET"}


def test_where_nothing_changed_nobody_is_told(comments: Comments, tmp_path: Path) -> None:
    status, said = post(comments, SAME, tmp_path)
    assert (status, comments.kept) == (0, [])
    assert "no snapshot changed" in said


def test_where_the_gate_gave_no_review_nothing_is_posted(comments: Comments, tmp_path: Path) -> None:
    assert post(comments, "", tmp_path) == (0, "comment: there is no review to post: the gate gave none\n")
    assert post(comments, "something else", tmp_path)[0] == 0
    assert comments.asked == []


def test_a_token_that_may_not_comment_is_told_apart_from_success(comments: Comments, tmp_path: Path) -> None:
    wrong = {"GITHUB_TOKEN": "x", "SNAPSHOT_REVIEW_TOKEN": "x"}
    status, said = post(comments, CHANGED, tmp_path, **wrong)
    assert status == 1
    assert "404" in said
    assert "may the token comment here?" in said


def test_an_address_that_is_not_encrypted_is_not_handed_the_token(tmp_path: Path) -> None:
    elsewhere = Comments("github", address="http://192.0.2.1")
    status, said = post(elsewhere, CHANGED, tmp_path)
    assert status == 1
    assert "https:// was expected" in said
