"""docs/operate.md: its files and commands start the servers of three machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.testing.ports import free_port
from tests.doc_blocks import blocks, commands
from tests.doc_shell import Shell

pytestmark = pytest.mark.timeout(500)
PAGE = "docs/operate.md"
MACHINES = (1, 2, 3)
RECORDS = "-n 2000"


class Machines:
    """What the page puts on three machines: a ZooKeeper and a broker each, here in a directory each."""

    def __init__(self, home: Path, zookeeper: str) -> None:
        self.home = home
        self.ports = {number: free_port() for number in MACHINES}
        self._zookeeper_ports = {number: [free_port() for _ in range(3)] for number in MACHINES}
        instead = {"/etc/penstock": str(home), "-n 1000000": RECORDS}
        for number, (peers, election, clients) in self._zookeeper_ports.items():
            own = f"127.0.0.1:{peers}:{election}:{clients}"
            instead[f"={number}=host{number}:2888:3888:2181"] = f"={number}={own}"
            instead[f" {number}=host{number}:2888:3888:2181"] = f" {number}={own}"
            instead[f"host{number}:9092"] = f"127.0.0.1:{self.ports[number]}"
        self.shell = Shell(home, {"PENSTOCK_BOOTSTRAP": f"127.0.0.1:{self.ports[1]}"}, instead)
        self.shell.run(zookeeper)

    def start_zookeeper(self, running: ExitStack) -> None:
        text = (self.home / "zookeeper.env").read_text()
        options = text.removeprefix("PENSTOCK_ZOOKEEPER=").strip()
        servers = []
        for number in MACHINES:
            own = options.replace("--id 1", f"--id {number}")
            line = f"penstock zookeeper start --data {self.home}/zookeeper-{number} {own}"
            servers.append(running.enter_context(self.shell.running(line, f"zookeeper-{number}")))
        for server in servers:
            server.wait_for("it serves", lambda server=server: "serves at" in server.output())

    def write_settings(self, chroot: str = "/penstock") -> None:
        (text,) = (block.text for block in blocks(PAGE, "properties"))
        addresses = ",".join(f"127.0.0.1:{ports[2]}" for ports in self._zookeeper_ports.values())
        text = text.replace("host1:2181,host2:2181,host3:2181/penstock", addresses + chroot)
        for number, port in self.ports.items():
            own = text.replace("node.id=1", f"node.id={number}").replace("rack=host1", f"rack=host{number}")
            own = own.replace("0.0.0.0:9092", f"127.0.0.1:{port}").replace("host1:9092", f"127.0.0.1:{port}")
            own = own.replace("/var/lib/penstock", f"{self.home}/broker-{number}").replace(":9404", ":0")
            own += "zookeeper.session.timeout.ms=20000\n"  # that a busy machine does not end
            (self.home / f"server-{number}.properties").write_text(own)

    @contextmanager
    def brokers(self, command: str) -> Iterator[None]:
        with ExitStack() as running:
            started = []
            for number in MACHINES:
                line = command.replace("/etc/penstock/", "").replace("server.", f"server-{number}.")
                ready = self.home / f"broker-{number}.json"
                ready.unlink(missing_ok=True)
                broker = running.enter_context(
                    self.shell.running(f"{line} --ready-file {ready}", f"broker-{number}")
                )
                started.append((broker, ready))
            for broker, ready in started:
                broker.wait_until_ready(ready)
            yield


@pytest.mark.promise("docs", "The commands of operate.md for a cluster and a single broker run as printed")
def test_the_commands_for_three_machines_run(tmp_path: Path) -> None:
    zookeeper, describe, create, doctor = commands(PAGE, "Three machines, step by step")
    sizing = commands(PAGE, "Sizing")
    save_metadata, save_data, restore_metadata, restore_data, start, check = commands(PAGE, "A cluster")
    machines = Machines(tmp_path, zookeeper)
    shell = machines.shell
    with ExitStack() as running:
        machines.start_zookeeper(running)
        machines.write_settings()
        with machines.brokers("penstock broker --config /etc/penstock/server.properties"):
            assert "controller" in shell.run(describe)
            shell.run(create)
            shell.run(doctor)
            for line in sizing:
                assert "2,000" in shell.run(line)
            shell.run("printf 'one\\ntwo\\n' | penstock produce orders")
            shell.instead = {**shell.instead, "/backup": str(tmp_path)}
            shell.run(save_metadata.replace("server.", "server-1."))
            for number in MACHINES:
                own = save_data.replace("broker-1", f"saved-{number}")
                shell.run(own.replace("/var/lib/penstock", f"{tmp_path}/broker-{number}"))
        # All is lost, the store as well: what is there is under another chroot.
        machines.write_settings("/restored")
        shell.run(restore_metadata.replace("server.", "server-1."))
        for number in MACHINES:
            (tmp_path / f"broker-{number}").rename(tmp_path / f"lost-{number}")
            own = restore_data.replace("broker-1", f"saved-{number}")
            shell.run(own.replace("/var/lib/penstock", f"{tmp_path}/broker-{number}"))
        with machines.brokers(start):
            shell.run(check)
            assert sorted(shell.run("penstock consume orders").splitlines()[:2]) == ["one", "two"]


@pytest.mark.promise("docs", "The commands of operate.md for a cluster and a single broker run as printed")
def test_the_commands_for_a_single_broker_run(tmp_path: Path) -> None:
    save, restore, start = commands(PAGE, "A single broker")
    port = free_port()
    (tmp_path / "server.properties").write_text(f"listeners=PLAINTEXT://127.0.0.1:{port}\n")
    places = {"/var/lib": str(tmp_path), "/backup": str(tmp_path)}
    shell = Shell(tmp_path, {"PENSTOCK_BOOTSTRAP": f"127.0.0.1:{port}"}, places)
    ready = tmp_path / "ready.json"
    with shell.running(f"{start.replace('-restored', '')} --ready-file {ready}") as broker:
        broker.wait_until_ready(ready)
        shell.run("penstock topics create orders; printf 'one\\ntwo\\n' | penstock produce orders")
        shell.run(save)
    ready.unlink(missing_ok=True)
    shell.run(restore)
    with shell.running(f"{start} --ready-file {ready}") as broker:
        broker.wait_until_ready(ready)
        assert shell.run("penstock consume orders").splitlines()[:2] == ["one", "two"]
