"""docs/cluster.md: its own commands start a ZooKeeper and four brokers, and then administer them."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.testing.ports import free_port
from tests.cluster.harness import wait_until
from tests.doc_blocks import ROOT, commands
from tests.doc_shell import Shell

pytestmark = pytest.mark.timeout(400)
BROKERS = 4
# Sessions that a busy machine does not end.
PATIENT = "--set zookeeper.session.timeout.ms=20000"


def start(shell: Shell, zookeeper: str, broker: str, running: ExitStack) -> str:
    """The page's commands for several machines, on this one; the brokers' addresses."""
    port, ports = free_port(), [free_port() for _ in range(BROKERS)]
    instead = {"zk1:2181,zk2:2181,zk3:2181": f"127.0.0.1:{port}", "--host zk1": "--host 127.0.0.1"}
    shell.instead = {**instead, "--port 2181": f"--port {port}", "/var/lib": str(shell.home)}
    server = running.enter_context(shell.running(zookeeper, "zookeeper"))
    server.wait_for("it serves", lambda: "serves at" in server.output())
    others = []
    for number, own in enumerate(ports, 1):
        line = broker.replace("node.id=1", f"node.id={number}").replace("rack=a", f"rack={'ab'[number % 2]}")
        line = line.replace("0.0.0.0:9092", f"127.0.0.1:{own}").replace("host1:9092", f"127.0.0.1:{own}")
        line = line.replace("/var/lib/penstock", f"{shell.home}/broker-{number}")
        ready = shell.home / f"broker-{number}.json"
        started = running.enter_context(
            shell.running(f"{line} {PATIENT} --ready-file {ready}", f"broker-{number}")
        )
        others.append((started, ready))
    for started, ready in others:
        started.wait_until_ready(ready)
    return ",".join(f"127.0.0.1:{own}" for own in ports)


def replicas(shell: Shell) -> dict[int, list[int]]:
    (topic,) = json.loads(shell.run("penstock topics describe orders --json 2>/dev/null"))
    return {each["partition"]: each["replicas"] for each in topic["partitions"]}


@pytest.mark.promise("docs", "The commands of cluster.md start and administer a cluster as printed")
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    zookeeper, broker, *others = commands("docs/cluster.md")
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    (create,) = re.findall(r"`(penstock topics create [^`]+)`", page)
    shell = Shell(tmp_path)
    with ExitStack() as running:
        addresses = start(shell, zookeeper, broker, running)
        shell.environment = {"PENSTOCK_BOOTSTRAP": addresses}
        shell.run(create)
        printed = ""
        for line in others:
            # `elect --unclean` asks first.
            printed += shell.run(line, answer="y\n")
            if "--move" in line:
                wait_until("the move is done", lambda: replicas(shell)[0] == [2, 3, 4])
        assert "RACK" in printed and "orders" in printed
        assert all(4 not in brokers and len(set(brokers)) == 3 for brokers in replicas(shell).values())
