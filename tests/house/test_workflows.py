"""What runs on pushes and pull requests: pinned, with few rights, and nothing of a stranger's change is run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.groups import PARTS

ROOT = Path(__file__).parent.parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40}")


def read(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def steps(path: Path) -> list[tuple[str, dict[str, Any]]]:
    found = [(name, step) for name, job in read(path)["jobs"].items() for step in job["steps"]]
    assert found
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_and_says_which_version_it_is(path: Path) -> None:
    used = [step["uses"] for _, step in steps(path) if "uses" in step]
    assert used
    assert [name for name in used if not PINNED.fullmatch(name)] == []
    assert path.read_text("utf-8").count(" # v") == len(used)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_value_of_an_event_meets_the_text_of_a_script(path: Path) -> None:
    assert [step["run"] for _, step in steps(path) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_rights_are_given_one_by_one(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    writing = {
        (name, right)
        for name, job in workflow["jobs"].items()
        for right, level in job.get("permissions", {}).items()
        if level != "read"
    }
    # A comment on a pull request; and, for what was pushed, a signed statement of who built a wheel.
    assert writing <= {("comment", "pull-requests"), ("wheel", "id-token"), ("wheel", "attestations")}
    if "wheel" in workflow["jobs"]:
        assert set(workflow[True]) == {"push"}


def test_a_workflow_that_has_rights_on_a_fork_runs_nothing_of_the_change() -> None:
    trusted = [path for path in WORKFLOWS if "pull_request_target" in read(path)[True]]  # YAML reads `on` as true
    assert [path.name for path in trusted] == ["snapshots.yml"]
    for path in trusted:
        for job, step in steps(path):
            given = step.get("with", {})
            if "checkout" in step.get("uses", ""):
                assert given["persist-credentials"] is False
                assert ("ref" in given) == (given.get("path") == "change")
                assert job == "gate" or "ref" not in given
            if step.get("working-directory") == "change":
                (command,) = [line for line in step["run"].splitlines() if "gate/" in line]
                assert command.startswith("../gate/.venv/bin/python -P -m pipelines.review --gate ")
            assert "secrets." not in str(step)


def test_the_job_that_may_write_sees_only_the_finished_review() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "snapshots.yml")["jobs"]
    assert "write" not in jobs["gate"]["permissions"].values()
    runs = [step["run"] for step in jobs["comment"]["steps"] if "run" in step]
    assert runs == ["python3 .ci/comment.py review/review.md"]


def test_gitlab_runs_the_gate_of_the_base_and_posts_only_with_a_token() -> None:
    jobs = read(ROOT / ".gitlab-ci.yml")
    gate = jobs["snapshots"]["script"]
    assert gate[0] == 'git worktree add --detach ../gate "$CI_MERGE_REQUEST_DIFF_BASE_SHA"'
    assert gate[-1].startswith("../gate/.venv/bin/python -P -m pipelines.review --gate --base ")
    assert jobs["snapshots"]["variables"]["GIT_DEPTH"] == "0"
    (rule,) = jobs["comment"]["rules"]
    assert rule["if"].endswith("&& $SNAPSHOT_REVIEW_TOKEN")
    assert jobs["comment"]["variables"]["GIT_STRATEGY"] == "none"


def test_snapshots_and_their_gate_have_owners() -> None:
    lines = (ROOT / "CODEOWNERS").read_text("utf-8").splitlines()
    owned = {line.split()[0] for line in lines if line and not line.startswith("#")}
    assert "__snapshots__/" in owned
    assert {name for name in owned - {"__snapshots__/"} if not (ROOT / name.strip("/")).exists()} == set()


def test_the_jobs_of_both_hosts_run_every_part_of_the_suite_once() -> None:
    everything = {*PARTS, f"not ({' or '.join(PARTS)})"}
    github = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]
    assert set(github["strategy"]["matrix"]["part"]) == everything
    gitlab = read(ROOT / ".gitlab-ci.yml")["test"]
    assert set(gitlab["parallel"]["matrix"][0]["PART"]) == everything
    assert github["steps"][-1]["run"] == gitlab["script"][-1] == "make test ARGS=\"-m '$PART'\""


@pytest.mark.parametrize(
    ("job", "command"),
    [("site", ".ci/build-site"), ("image", ".ci/try-image"), ("install", '.ci/try-wheel "$WAY"')],
)
def test_both_hosts_try_what_people_get_in_pull_requests_too(job: str, command: str) -> None:
    workflow = read(ROOT / ".github" / "workflows" / "ci.yml")
    assert "pull_request" in workflow[True]
    github, gitlab = workflow["jobs"][job], read(ROOT / ".gitlab-ci.yml")[job]
    assert command in [step.get("run") for step in github["steps"]]
    assert command in gitlab["script"]
    script = ROOT / command.split(maxsplit=1)[0]
    assert os.access(script, os.X_OK)
    subprocess.run(["sh", "-n", str(script)], check=True)  # noqa: S607
    if job == "install":
        ways = set(re.findall(r"^    (\w+)\)$", script.read_text("utf-8"), re.MULTILINE))
        assert ways == set(github["strategy"]["matrix"]["way"]) == set(gitlab["parallel"]["matrix"][0]["WAY"])
        assert ways == {"pip", "uv", "pipx"}


def test_a_wheel_that_is_kept_was_installed_and_ran() -> None:
    runs = [step.get("run") for _, step in steps(ROOT / ".github" / "workflows" / "wheel.yml")]
    assert runs.index("make wheels bill") < runs.index(".ci/try-wheel pipx")
