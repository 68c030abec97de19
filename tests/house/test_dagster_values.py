"""The values for Dagster's Helm chart: keys of the chart, pods that Kubernetes takes, settings that Dagster takes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config
from dagster_postgres.utils import get_conn_string
from sqlalchemy import create_engine

from lake.errors import ContractBroken
from lake.private_files import read_private

ROOT = Path(__file__).resolve().parents[2]
VALUES: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "dagster-values.yaml").read_text("utf-8"))
KUBERNETES: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "docs" / "kubernetes.yaml").read_text("utf-8")))
(CODE,) = VALUES["dagster-user-deployments"]["deployments"]
PODS = {"code": CODE, "web server": VALUES["dagsterWebserver"], "daemon": VALUES["dagsterDaemon"]}

# No package of PyPI holds the chart or its schema. These keys were read from stored public copies of helm/dagster in
# dagster-io/dagster: its schema (schema/charts/dagster/values.py and what it imports) and its templates.
_POD = """
    image env envConfigMaps envSecrets annotations labels nodeSelector affinity tolerations podSecurityContext
    securityContext resources livenessProbe readinessProbe startupProbe volumes volumeMounts schedulerName
"""
CHART_KEYS = {
    "": """
        dagsterWebserver dagster-user-deployments postgresql generatePostgresqlPasswordSecret rabbitmq redis flower
        generateCeleryConfigSecret ingress imagePullSecrets computeLogManager scheduler runLauncher pythonLogs
        dagsterDaemon busybox migrate telemetry serviceAccount global retention additionalInstanceConfig
    """,
    "global": "postgresqlSecretName dagsterHome serviceAccountName celeryConfigSecretName",
    "postgresql": """
        image enabled postgresqlHost postgresqlUsername postgresqlPassword postgresqlDatabase postgresqlParams
        postgresqlScheme service
    """,
    "dagster-user-deployments": "enabled enableSubchart imagePullSecrets deployments",
    "dagster-user-deployments.deployments": f"""
        {_POD} name dagsterApiGrpcArgs codeServerArgs port includeConfigInLaunchedRuns deploymentStrategy
        initContainers sidecarContainers serviceAccount
    """,
    "dagsterWebserver": f"""
        {_POD} replicaCount nameOverride pathPrefix service workspace deploymentLabels enableReadOnly
        dbStatementTimeout dbPoolRecycle logLevel
    """,
    "dagsterDaemon": f"""
        {_POD} enabled runCoordinator heartbeatTolerance deploymentLabels runMonitoring runRetries sensors schedules
    """,
    "dagsterDaemon.runCoordinator": "enabled type config",
    "dagsterDaemon.runCoordinator.config": "queuedRunCoordinator customRunCoordinator",
    "dagsterDaemon.runMonitoring": """
        enabled startTimeoutSeconds cancelTimeoutSeconds maxResumeRunAttempts pollIntervalSeconds
        freeSlotsAfterRunEndSeconds
    """,
    "runLauncher": "type config",
    "runLauncher.config": "celeryK8sRunLauncher k8sRunLauncher customRunLauncher",
    "runLauncher.config.customRunLauncher": "module class config",
    "computeLogManager": "type config",
}


def test_every_value_is_one_that_the_chart_reads() -> None:
    for place, keys in CHART_KEYS.items():
        found: Any = VALUES
        for name in place.split(".") if place else ():
            found = found[name]
        for one in found if isinstance(found, list) else [found]:
            assert set(one) <= set(keys.split()), place or "the top"


@pytest.mark.parametrize("name", PODS)
def test_a_pod_of_the_chart_is_one_that_kubernetes_takes_and_may_write_to_its_volumes_alone(name: str) -> None:
    import kubernetes_validate  # whose grammars take two seconds, in every process that collects tests

    part = PODS[name]
    probes = {
        probe: {key: value for key, value in {"exec": {"command": ["true"]}, **part[probe]}.items() if key != "enabled"}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        if probe in part
    }
    container = {
        "name": "dagster",
        "image": "{repository}:{tag}".format(**part["image"]),
        **{key: part[key] for key in ("securityContext", "resources", "volumeMounts")},
        **{probe: given | {"exec": None} if "httpGet" in given else given for probe, given in probes.items()},
        "envFrom": [{"secretRef": one} for one in part.get("envSecrets", [])],
        "env": [{"name": key, "value": value} for key, value in part.get("env", {}).items()],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "dagster"},
        "spec": {
            "securityContext": part["podSecurityContext"],
            "containers": [container],
            "initContainers": part.get("initContainers", []),
            "volumes": part["volumes"],
        },
    }
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    assert part["podSecurityContext"]["runAsNonRoot"] is True
    for one in (container, *pod["spec"]["initContainers"]):  # type: ignore[index]
        assert one["securityContext"]["readOnlyRootFilesystem"] is True
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert one["securityContext"]["allowPrivilegeEscalation"] is False
        mounted = {mount["name"] for mount in one["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in part["volumes"]}
    assert {"startupProbe", "livenessProbe"} <= probes.keys()
    assert {"/tmp", VALUES["global"]["dagsterHome"]} <= {mount["mountPath"] for mount in part["volumeMounts"]}  # noqa: S108


def test_dagster_takes_the_settings_that_the_chart_makes_of_the_values(tmp_path: Path) -> None:
    """What templates/configmap-instance.yaml of the chart writes of these values, and how Dagster reads it."""
    daemon, launcher = VALUES["dagsterDaemon"], VALUES["runLauncher"]["config"]["customRunLauncher"]
    assert daemon["runCoordinator"]["config"]["queuedRunCoordinator"] == {}, "what is set there must be written below"
    monitoring = {re.sub("([A-Z])", r"_\1", key).lower(): value for key, value in daemon["runMonitoring"].items()}
    written = {
        "run_launcher": launcher,
        "run_coordinator": {"module": "dagster._core.run_coordinator", "class": "QueuedRunCoordinator"},
        "run_monitoring": monitoring,
        "telemetry": VALUES["telemetry"],
    }
    assert not daemon["runRetries"]["enabled"], "the chart would write run_retries a second time"
    assert not written.keys() & VALUES["additionalInstanceConfig"].keys()
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(written | VALUES["additionalInstanceConfig"]), "utf-8")
    settings, _ = dagster_instance_config(str(tmp_path))
    ours = yaml.safe_load((ROOT / "dagster.yaml").read_text("utf-8"))
    assert settings["concurrency"] == ours["concurrency"]
    assert settings["run_retries"] == ours["run_retries"]
    assert ours["run_monitoring"].items() <= settings["run_monitoring"].items()


def test_the_driver_of_the_records_is_one_that_the_image_has() -> None:
    given = VALUES["postgresql"]
    address = get_conn_string(
        username=given["postgresqlUsername"],
        password="of/a@secret",
        hostname=given["postgresqlHost"],
        port=str(given["service"]["port"]),
        db_name=given["postgresqlDatabase"],
        scheme=given["postgresqlScheme"],
    )
    assert create_engine(address).dialect.driver == "psycopg2"
    assert re.search(r"^psycopg2\S*==", (ROOT / "requirements" / "server.lock").read_text("utf-8"), re.MULTILINE)


def test_the_lake_and_every_password_come_from_secrets() -> None:
    assert CODE["envSecrets"] == [{"name": "teetotal"}]
    assert set(CODE["env"]) == {"TEETOTAL_KEYRING", "TEETOTAL_SIGNING_KEY"}
    assert "postgresqlPassword" not in VALUES["postgresql"]
    assert VALUES["generatePostgresqlPasswordSecret"] is False
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    for secret in ("teetotal", "teetotal-keys", VALUES["global"]["postgresqlSecretName"]):
        assert f"kubectl create secret generic {secret} " in page
    for setting in ("TEETOTAL_LAKE", "TEETOTAL_LANDING"):
        assert f"--from-literal={setting}=" in page


def test_the_image_of_the_chart_has_no_entrypoint_before_the_commands_that_the_chart_writes() -> None:
    (stage,) = re.findall(
        r"^FROM \S+ AS dagster$(.*?)^FROM dagster$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert "ENTRYPOINT" not in stage
    assert CODE["image"]["repository"] == "teetotal-dagster"
    assert f'--port", "{CODE["port"]}"' in stage


def list_key_copies() -> list[str]:
    """The commands that give a pod its copies of keys, of all files for Kubernetes."""
    pods = [one["spec"]["template"]["spec"] for one in KUBERNETES if one["kind"] == "Deployment"]
    containers = [one for pod in [*pods, CODE] for one in pod["initContainers"] if one["name"] == "keys"]
    assert all(one["command"][:2] == ["sh", "-c"] for one in containers)
    return [one["command"][2] for one in containers]


def test_a_key_of_a_secret_can_be_read_by_a_pod_that_is_not_root(tmp_path: Path) -> None:
    # As a kubelet mounts it: links to files that the pod's group may read, whatever mode the volume asks for.
    files, secret, keys = tmp_path / "secret" / "..data", tmp_path / "secret", tmp_path / "keys"
    files.mkdir(parents=True)
    keys.mkdir()
    (files / "keyring.json").write_bytes(b"{}")
    (files / "keyring.json").chmod(0o440)
    (secret / "keyring.json").symlink_to("..data/keyring.json")
    with pytest.raises(ContractBroken, match="others than its owner may read"):
        read_private(secret / "keyring.json", "the keyring", "", "")
    commands = list_key_copies()
    assert len(commands) == 3
    assert len(set(commands)) == 1
    command = commands[0].replace("/secret/", f"{secret}/").replace("/keys/", f"{keys}/")
    subprocess.run(["sh", "-c", command], check=True)  # noqa: S607
    assert read_private(keys / "keyring.json", "the keyring", "", "") == b"{}"
