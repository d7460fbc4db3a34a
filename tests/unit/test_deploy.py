"""The files of deploy/ for systemd, containers and Kubernetes: what they start and probe is there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from penstock.cli.main import cli
from penstock.config import BrokerConfig

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
INSTALLED = "/opt/penstock/bin/penstock"


def check_command(words: list[str]) -> None:
    """That `penstock` has this command with these options."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known, words


@pytest.mark.promise(
    "backups",
    "The files for systemd, containers and Kubernetes in deploy/ match Penstock's commands and settings",
)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_commands_that_exist(unit: Path) -> None:
    for line in re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.M):
        words = shlex.split(line)
        if words[0] == "/bin/sh":
            words = shlex.split(words[2].removeprefix("exec "))
        assert words[0] == INSTALLED
        check_command([word for word in words[1:] if not word.startswith("$PENSTOCK")])


@pytest.mark.promise(
    "backups",
    "The files for systemd, containers and Kubernetes in deploy/ match Penstock's commands and settings",
)
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    penstock = Path(sys.executable).with_name("penstock")
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace(INSTALLED, str(penstock)))
    done = subprocess.run(
        [analyze, "verify", "--man=no", *(str(tmp_path / unit.name) for unit in UNITS)],
        capture_output=True,
        text=True,
    )
    # What it finds in other units of this machine is not ours.
    ours = [line for line in done.stderr.splitlines() if "penstock" in line]
    assert not ours, done.stderr


def objects() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in yaml.safe_load_all((DEPLOY / "kubernetes/penstock.yaml").read_text()):
        assert one["apiVersion"] and one["metadata"]["name"]
        found.setdefault(one["kind"], []).append(one)
    return found


@pytest.mark.promise(
    "backups",
    "The files for systemd, containers and Kubernetes in deploy/ match Penstock's commands and settings",
)
def test_the_kubernetes_example_fits_together() -> None:
    kinds = objects()
    assert sorted(kinds) == ["ConfigMap", "PodDisruptionBudget", "Service", "StatefulSet"]
    (stateful,) = kinds["StatefulSet"]
    spec, pod = stateful["spec"], stateful["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    (budget,) = kinds["PodDisruptionBudget"]
    assert budget["spec"]["selector"]["matchLabels"] == labels and budget["spec"]["maxUnavailable"] == 1
    headless = {service["metadata"]["name"]: service for service in kinds["Service"]}[spec["serviceName"]]
    assert headless["spec"]["clusterIP"] == "None" and headless["spec"]["publishNotReadyAddresses"] is True
    assert all(service["spec"]["selector"] == labels for service in kinds["Service"])
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for service in kinds["Service"]:
        assert all(ports[port["name"]] == port["port"] for port in service["spec"]["ports"])
    # The probes: paths that a broker serves, on the port that the settings name.
    (config,) = kinds["ConfigMap"]
    lines = config["data"]["server.properties"].splitlines()
    values = dict(line.split("=", 1) for line in lines)
    broker = BrokerConfig.parse({**values, "advertised.listeners": "PLAINTEXT://penstock-0.penstock:9092"})
    assert broker.metrics_listener == f"0.0.0.0:{ports['metrics']}"
    assert broker.listeners[0].port == ports["kafka"]
    assert {
        kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")
    } == {
        "startup": "/ready",
        "readiness": "/ready",
        "liveness": "/health",
    }
    # The volumes: the data directory lies on the claim, below the volume's own lost+found.
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (claim,) = spec["volumeClaimTemplates"]
    assert Path(broker.log_dirs[0]).parent == Path(mounts[claim["metadata"]["name"]])
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]} | {claim["metadata"]["name"]}
    assert set(mounts) == volumes
    assert pod["spec"]["shareProcessNamespace"] is True


@pytest.mark.promise(
    "backups",
    "The files for systemd, containers and Kubernetes in deploy/ match Penstock's commands and settings",
)
def test_a_pod_has_a_node_id_and_an_address_of_its_own() -> None:
    (stateful,) = objects()["StatefulSet"]
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["sh", "-c"]
    (script,) = container["args"]
    shown = subprocess.run(
        ["sh", "-c", script.replace("exec penstock", "printf '%s\\n'", 1)],
        env={"HOSTNAME": "penstock-2", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    check_command(shown)
    assert shown == [
        *("broker", "--config", "/etc/penstock/server.properties", "--set", "node.id=3"),
        *("--set", "advertised.listeners=PLAINTEXT://penstock-2.penstock:9092"),
    ]


@pytest.mark.promise(
    "backups",
    "The files for systemd, containers and Kubernetes in deploy/ match Penstock's commands and settings",
)
def test_the_image_has_the_extras_that_a_broker_of_a_cluster_needs() -> None:
    text = (DEPLOY / "container/Containerfile").read_text()
    (extras,) = re.findall(r"\.whl\)\[([\w,-]+)\]", text)
    known = (DEPLOY.parent / "pyproject.toml").read_text()
    assert "cluster" in extras.split(",")
    assert all(re.search(rf"^{extra} = \[", known, re.M) for extra in extras.split(","))
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.M)
    check_command(yaml.safe_load(command))
    (stateful,) = objects()["StatefulSet"]
    user = stateful["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}" in text and f"--uid {user} " in text
