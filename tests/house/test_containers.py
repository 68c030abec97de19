"""The image and the deployment of containers: what can be held of them where none can be built."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.installed_wheel import copy_image_sources, is_ignored, read_ignore_rules

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("server", "daemon", "teetotal")
KUBERNETES: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "docs" / "kubernetes.yaml").read_text("utf-8")))
# What is read of the environment, wherever it is read.
SOURCES = "\n".join(path.read_text("utf-8") for path in (ROOT / "pipelines").rglob("*.py"))


def test_the_image_passes_the_linter() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_not_root_and_takes_every_dependency_by_its_hash() -> None:
    text = DOCKERFILE.read_text("utf-8")
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    installs = re.findall(r"pip install [^&\n]*", text)
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation ." in line for line in installs)


def test_every_file_that_a_step_takes_is_given_to_the_image(tmp_path: Path) -> None:
    # That the wheel can be built of these files is what tests/pipelines/test_wheel.py begins with.
    sources = copy_image_sources(tmp_path)
    taken = {*re.findall(r"requirements/\w+\.lock", DOCKERFILE.read_text("utf-8")), "hatch_build.py"}
    assert len(taken) == 3
    assert {name for name in taken if not (sources / name).is_file()} == set()
    assert sorted(path.name for path in sources.glob("requirements/*.lock")) == sorted(
        path.name for path in ROOT.glob("requirements/*.lock")
    )


@pytest.mark.parametrize(
    "name", [".env", ".git/config", ".venv-dev/bin/python", "data/keyring.json", "secrets/key.pem", "lake/keyring.json"]
)
def test_no_secret_and_no_environment_gets_into_the_image(name: str) -> None:
    assert is_ignored(name, read_ignore_rules((ROOT / ".dockerignore").read_text("utf-8")))


@pytest.mark.parametrize(
    ("rules", "ignored", "kept"),
    [
        ("*\n!a", ["b", "b/c"], ["a", "a/b/c"]),
        ("*\n!a\n**/x", ["a/x", "a/b/x/y", "x"], ["a/y", "a/xy"]),
        ("# why\n\na/*\n!a/b/c", ["a/b", "a/d/e"], ["a", "a/b/c", "a/b/c/d"]),
        ("a?/**", ["ab/c", "ab/c/d"], ["ab", "a/b"]),
        ("*.key\n!*.key", [], ["a.key"]),
    ],
)
def test_files_are_left_out_as_docker_does(rules: str, ignored: list[str], kept: list[str]) -> None:
    found = read_ignore_rules(rules)
    assert [path for path in [*ignored, *kept] if is_ignored(path, found)] == ignored


@pytest.mark.parametrize("name", OURS)
def test_a_service_of_ours_can_write_to_its_volume_alone(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["user"] == "10001:10001"
    assert all(volume.endswith(":ro") or volume == "state:/data" for volume in service["volumes"])


def test_a_launch_has_a_minute_to_stop_as_the_page_asks() -> None:
    assert "Give the stop 60 seconds" in (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert {SERVICES[name]["stop_grace_period"] for name in OURS} == {"60s"}
    assert {pod["terminationGracePeriodSeconds"] for pod in list_pods().values()} == {60}


def test_no_directory_of_the_host_is_made_where_no_recordings_are_named() -> None:
    (incoming,) = (one for one in SERVICES["teetotal"]["volumes"] if ":/incoming:" in one)
    named = incoming.partition(":-")[2].partition("}")[0]
    assert named in COMPOSE["volumes"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_says_how_its_health_is_seen(name: str) -> None:
    service = SERVICES[name]
    is_in_image = service.get("image") == "teetotal" and "HEALTHCHECK" in DOCKERFILE.read_text("utf-8")
    assert "healthcheck" in service or is_in_image


@pytest.mark.parametrize("name", [name for name in SERVICES["server"]["environment"] if name.startswith("TEETOTAL_")])
def test_every_setting_is_one_that_teetotal_reads(name: str) -> None:
    assert f'"{name}"' in SOURCES


def test_no_password_is_written_down() -> None:
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if "PASSWORD" in name or "SECRET" in name or "POSTGRES_URL" in name:
                assert "${" in value
                assert ":?" in value, "a password that is not set must stop the start"


def test_only_the_proxy_can_be_reached_from_outside() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["server"]
    assert SERVICES["server"]["ports"] == ["8443:8443"]
    assert SERVICES["proxy"]["network_mode"] == "service:server"
    assert "listen 8443 ssl" in (ROOT / "docs" / "nginx-compose.conf").read_text("utf-8")


@pytest.mark.parametrize("resource", KUBERNETES, ids=lambda one: f"{one['kind']} {one['metadata']['name']}")
def test_every_kubernetes_resource_is_what_its_schema_says(resource: dict[str, Any]) -> None:
    import kubernetes_validate  # whose grammars take two seconds, in every process that collects tests

    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


def list_pods() -> dict[str, dict[str, Any]]:
    """The pods of the deployments, by name."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in KUBERNETES if one["kind"] == "Deployment"
    }


@pytest.mark.parametrize("name", list_pods())
def test_a_pod_is_not_root_and_writes_to_its_volumes_alone(name: str) -> None:
    pod = list_pods()[name]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} <= container["resources"].keys()
        assert "livenessProbe" in container or "readinessProbe" in container


def test_kubernetes_reads_settings_that_are_read_and_no_password_stands_in_them() -> None:
    (settings,) = (one["data"] for one in KUBERNETES if one["kind"] == "ConfigMap")
    assert all(f'"{name}"' in SOURCES for name in settings if name.startswith("TEETOTAL_"))
    assert not any("PASSWORD" in name or "SECRET" in name or "POSTGRES" in name for name in settings)


def test_only_one_daemon_launches_schedules() -> None:
    (daemon,) = (one["spec"] for one in KUBERNETES if one["metadata"]["name"] == "teetotal-daemon")
    assert (daemon["replicas"], daemon["strategy"]) == (1, {"type": "Recreate"})
