#!/usr/bin/env python3
"""Posts the review of snapshots as the one comment of a pull or merge request, and replaces it when it changes.

`python3 .ci/comment.py review.md`, standard library only. The review is text that anyone may have caused: it is sent as
it is and nothing in it is run. On GitHub: GITHUB_API_URL, GITHUB_REPOSITORY, GITHUB_TOKEN and PULL_REQUEST. On GitLab:
CI_API_V4_URL, CI_MERGE_REQUEST_PROJECT_ID, CI_MERGE_REQUEST_IID and SNAPSHOT_REVIEW_TOKEN.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "<!-- teetotal snapshot review -->"
NOTHING = "Snapshot review: no snapshot changed"
MOST_CHARACTERS = 65_536
PAGE = 100
MOST_PAGES = 50


@dataclass(frozen=True)
class Host:
    """Where comments are kept: how they are listed, added and replaced, and which of them are ours."""

    comments: str
    one: str
    replace: str
    headers: dict[str, str]
    me: str
    is_github: bool

    def ask(self, method: str, address: str, body: str | None = None) -> Any:
        """One request; its answer, read."""
        if not address.startswith(("https://", "http://127.0.0.1:")):
            raise SystemExit(f"comment: {address} is no address of an API: https:// was expected")
        data = None if body is None else json.dumps({"body": body}).encode()
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310 - checked above
        for name, value in self.headers.items():
            request.add_unredirected_header(name, value)  # another host is not handed the token
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - checked above
            return json.load(answer)

    def mine(self) -> str | None:
        """The id of the comment that an earlier run left."""
        for page in range(1, MOST_PAGES + 1):
            found = self.ask("GET", f"{self.comments}?per_page={PAGE}&page={page}")
            for comment in found:
                author = comment["user"]["login"] if self.is_github else comment["author"]["id"]
                if str(author) == self.me and comment["body"].startswith(MARK):
                    return str(comment["id"])
            if len(found) < PAGE:
                break
        return None


def main(words: list[str], environment: dict[str, str]) -> int:
    """Post, replace, or leave alone; the exit status."""
    if len(words) != 1:
        say("usage: comment.py REVIEW.md")
        return 2
    text = Path(words[0]).read_text("utf-8") if Path(words[0]).is_file() else ""
    if not text.startswith(MARK):
        say("there is no review to post: the gate gave none")
        return 0
    try:
        host = find_host(environment)
        if host is None:
            say("neither GitHub nor GitLab is named in the environment, or no token: nothing is posted")
            return 2
        return post_comment(host, text[:MOST_CHARACTERS])
    except urllib.error.HTTPError as error:
        say(f"{error.code} {error.reason} from {urllib.parse.urlsplit(error.url).path}: may the token comment here?")
    except (urllib.error.URLError, TimeoutError) as error:
        say(f"the host did not answer: {error}")
    return 1


def post_comment(host: Host, text: str) -> int:
    """Replace the comment that is there; add one only where there is something to say."""
    before = host.mine()
    if before is not None:
        host.ask(host.replace, f"{host.one}/{before}", text)
        say(f"comment {before} replaced")
    elif NOTHING in text.partition("\n\n")[0]:
        say("no snapshot changed, and there is no comment to replace")
    else:
        say(f"comment {host.ask('POST', host.comments, text)['id']} added")
    return 0


def find_host(environment: dict[str, str]) -> Host | None:
    """The host that the environment names."""
    given = environment.get
    number, token = given("PULL_REQUEST", ""), given("GITHUB_TOKEN")
    if number.isdigit() and token:
        repository = urllib.parse.quote(environment["GITHUB_REPOSITORY"])
        issues = f"{environment['GITHUB_API_URL']}/repos/{repository}/issues"
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
        return Host(f"{issues}/{number}/comments", f"{issues}/comments", "PATCH", headers, "github-actions[bot]", True)
    number, token = given("CI_MERGE_REQUEST_IID", ""), given("SNAPSHOT_REVIEW_TOKEN")
    if number.isdigit() and token:
        api, project = environment["CI_API_V4_URL"], urllib.parse.quote(environment["CI_MERGE_REQUEST_PROJECT_ID"])
        notes = f"{api}/projects/{project}/merge_requests/{number}/notes"
        host = Host(notes, notes, "PUT", {"PRIVATE-TOKEN": token}, "", is_github=False)
        return Host(notes, notes, "PUT", host.headers, str(host.ask("GET", f"{api}/user")["id"]), is_github=False)
    return None


def say(text: str) -> None:
    """One line to the log of the job."""
    sys.stderr.write(f"comment: {text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dict(os.environ)))
