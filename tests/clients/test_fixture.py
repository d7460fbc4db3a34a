"""The test fixture: its life, its clock, its faults, and that nothing of it is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from penstock.errors import NotLeaderOrFollower, TopicAlreadyExists
from penstock.testing import PenstockBroker, WireClient
from penstock.testing.broker import BrokerFailed
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, encode_request
from tests.clients.adapters import CLIENTS, Client, Rec
from tests.clients.every_request import REQUESTS, advertised, errors_in

WAIT = 20.0


def gone(pid: int) -> bool:
    """Whether a process that is not our child has ended (a zombie has)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + WAIT
    while not gone(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


@pytest.mark.promise(
    "fixture", "Each test has its own empty broker, which is removed after the test, however it ends"
)
def test_each_test_has_an_empty_broker(penstock: PenstockBroker) -> None:
    with WireClient(penstock.port) as wire:
        assert wire.request(ApiKey.METADATA, 12, Message(topics=None)).topics == []


def test_topics_and_records_in_three_lines(penstock: PenstockBroker) -> None:
    penstock.create_topic("orders", partitions=2, config={"retention.ms": 1000})
    third = {"value": "c", "headers": {"h": "1"}, "partition": 1}
    sent = penstock.produce("orders", ["a", (b"key", b"b"), third])
    assert [(r.partition, r.offset) for r in sent] == [(0, 0), (0, 1), (1, 0)]
    read = penstock.consume("orders")
    assert sorted(read, key=lambda r: (r.partition, r.offset)) == sent
    assert read[0].value is not None
    assert penstock.consume("orders", 1, partition=0, offset=1)[0].key == b"key"
    penstock.delete_topic("orders")


def test_records_are_read_from_a_leader_that_does_not_know_its_end_yet(penstock: PenstockBroker) -> None:
    penstock.create_topic("orders")
    penstock.produce("orders", [b"one"])
    # As after a restart, before the log is on disk.
    penstock.faults.fail("ListOffsets", "OFFSET_NOT_AVAILABLE", times=3)
    assert [record.value for record in penstock.consume("orders")] == [b"one"]


def test_errors_of_helpers_are_typed(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    with pytest.raises(TopicAlreadyExists):
        penstock.create_topic("t")
    with pytest.raises(TimeoutError, match="0 of 1 records of t"):
        penstock.consume("t", 1, timeout=0.2)


def test_a_setting_that_does_not_exist_is_named() -> None:
    with (
        pytest.raises(BrokerFailed, match=r"log\.retention\.hous"),
        PenstockBroker({"log.retention.hous": 3}),
    ):
        pass


@pytest.mark.penstock(settings={"num.partitions": 4})
def test_settings_come_from_the_mark(penstock: PenstockBroker) -> None:
    with WireClient(penstock.port) as wire:
        answer = wire.request(
            ApiKey.METADATA, 12, Message(topics=[Message(name="auto")], allow_auto_topic_creation=True)
        )
    assert len(answer.topics[0].partitions) == 4


def test_a_given_data_directory_is_kept(tmp_path: Path) -> None:
    with PenstockBroker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("t")
        broker.produce("t", ["kept"])
    assert (tmp_path / "data" / "t-0").is_dir()
    with PenstockBroker(data_dir=tmp_path / "data") as broker:
        assert [r.value for r in broker.consume("t")] == [b"kept"]


@pytest.mark.promise(
    "fixture", "Each test has its own empty broker, which is removed after the test, however it ends"
)
def test_the_process_and_its_directory_are_gone_afterwards() -> None:
    with PenstockBroker() as broker:
        pid, directory = broker.pid, broker.data_dir
        assert os.path.isdir(directory)
    assert gone(pid)
    assert not os.path.exists(os.path.dirname(directory))
    with pytest.raises(BrokerFailed):
        broker.produce("t", ["x"])


@pytest.mark.promise(
    "fixture", "Each test has its own empty broker, which is removed after the test, however it ends"
)
@pytest.mark.parametrize("paused", [False, True])
def test_the_broker_goes_when_the_test_process_is_killed(paused: bool) -> None:
    program = f"""
        from penstock.testing import PenstockBroker
        import time
        broker = PenstockBroker()
        broker.start()
        if {paused}:
            broker.pause()
        print(broker._process.pid, broker.data_dir, flush=True)
        time.sleep(600)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid, directory = parent.stdout.readline().split()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until_gone(int(pid))
    assert not os.path.exists(directory)


def test_importing_the_plugin_loads_neither_the_broker_nor_a_client() -> None:
    program = (
        "import sys, penstock.testing.plugin, penstock.testing;"
        "bad = {'penstock.broker', 'penstock.wire', 'confluent_kafka', 'kio', 'asyncio'} & set(sys.modules);"
        "assert not bad - {'asyncio'}, bad"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_clean_restart_keeps_port_and_data(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["before"])
    port, pid = penstock.port, penstock.pid
    penstock.restart()
    assert penstock.port == port
    assert penstock.pid != pid
    penstock.produce("t", ["after"])
    assert [r.value for r in penstock.consume("t")] == [b"before", b"after"]


@pytest.mark.promise("clients", "A client survives kill -9 and restart of its broker")
def test_a_client_lives_through_kill_and_restart(penstock: PenstockBroker, client: Client) -> None:
    penstock.create_topic("t")
    client.produce(penstock.bootstrap, "t", [Rec(b"before")])
    penstock.kill()
    assert not penstock.running
    penstock.restart()
    client.produce(penstock.bootstrap, "t", [Rec(b"after")])
    assert client.consume(penstock.bootstrap, "t", 2) == [Rec(b"before"), Rec(b"after")]


@pytest.mark.promise(
    "fixture",
    "The fixture can inject faults: errors, delays, dropped connections, lost responses, pause, kill and "
    "restart",
)
def test_a_paused_broker_answers_nothing_until_it_resumes(penstock: PenstockBroker) -> None:
    with WireClient(penstock.port, timeout=WAIT) as wire:
        assert wire.request(ApiKey.API_VERSIONS, 0, Message()).error_code == 0
        penstock.pause()
        wire.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            wire.request(ApiKey.API_VERSIONS, 0, Message())
        with pytest.raises(BrokerFailed, match="paused"):
            penstock.clock.advance(seconds=1)
        penstock.resume()
        wire.socket.settimeout(WAIT)
        assert wire.receive(ApiKey.API_VERSIONS, 0).error_code == 0


@pytest.mark.promise("fixture", "The broker's clock can be advanced")
def test_advancing_the_clock_ends_a_long_poll(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    with WireClient(penstock.port, timeout=WAIT) as wire:
        partition = Message(partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1000)
        request = Message(
            replica_id=-1,
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1000,
            isolation_level=0,
            session_epoch=-1,
            topics=[Message(topic="t", partitions=[partition])],
        )
        sent = wire.send(ApiKey.FETCH, 11, encode_request(ApiKey.FETCH, 11, request))
        penstock.wait_for_requests("Fetch")
        penstock.clock.advance(seconds=61)
        answer = wire.receive(ApiKey.FETCH, 11, sent)
        assert not answer.responses[0].partitions[0].records


@pytest.mark.promise("fixture", "The broker's clock can be advanced")
def test_advancing_the_clock_closes_idle_connections(penstock: PenstockBroker) -> None:
    with WireClient(penstock.port, timeout=WAIT) as wire:
        assert wire.request(ApiKey.API_VERSIONS, 0, Message()).error_code == 0
        penstock.clock.advance(seconds=3600)
        assert wire.socket.recv(1) == b""


@pytest.mark.promise("fixture", "The broker's clock can be advanced")
def test_the_clock_keeps_its_advance_over_a_restart(penstock: PenstockBroker) -> None:
    penstock.clock.advance(seconds=86_400)
    before = penstock.clock.now_ms()
    assert before > time.time() * 1000 + 80_000_000
    penstock.restart()
    assert penstock.clock.now_ms() >= before


@pytest.mark.promise(
    "fixture",
    "The fixture can inject faults: errors, delays, dropped connections, lost responses, pause, kill and "
    "restart",
)
def test_an_api_fails_as_often_as_it_was_told(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    penstock.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    for _ in range(2):
        with pytest.raises(NotLeaderOrFollower):
            penstock.produce("t", ["refused"])
    penstock.produce("t", ["accepted"])
    assert [r.value for r in penstock.consume("t")] == [b"accepted"]
    assert penstock.faults.hits == {"Produce": 2}


def test_clients_retry_through_errors_that_are_retriable(penstock: PenstockBroker, client: Client) -> None:
    penstock.create_topic("t")
    penstock.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
    client.produce(penstock.bootstrap, "t", [Rec(b"once")])
    assert [r.value for r in penstock.consume("t")] == [b"once"]
    assert penstock.requests["Produce"] >= 4


def test_every_api_can_be_failed_in_every_version_without_breaking_the_client(
    penstock: PenstockBroker,
) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["x"])
    with WireClient(penstock.port) as wire:
        versions = advertised(wire)
        for api, make in REQUESTS.items():
            if api == ApiKey.API_VERSIONS:
                continue
            for version in range(versions[api][0], versions[api][1] + 1):
                request = make(wire, "t", version)
                penstock.faults.fail(api.name, "POLICY_VIOLATION")
                answer = wire.request(api, version, request)
                if api == ApiKey.DESCRIBE_LOG_DIRS and version < 3:
                    assert answer.results == []  # there is no place for an error before v3
                    continue
                if api == ApiKey.ELECT_LEADERS and version == 0:
                    continue  # nor here, where no partition is named
                assert 44 in set(errors_in(answer)), f"{api.name} v{version}: {answer}"
                penstock.faults.clear()


@pytest.mark.promise(
    "fixture",
    "The fixture can inject faults: errors, delays, dropped connections, lost responses, pause, kill and "
    "restart",
)
def test_a_dropped_connection_is_not_handled_and_a_lost_answer_is(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    penstock.faults.drop("Produce")
    with pytest.raises(ConnectionError):
        penstock.produce("t", ["dropped"])
    penstock.faults.drop("Produce", after=True)
    with pytest.raises(ConnectionError):
        penstock.produce("t", ["handled"])
    assert [r.value for r in penstock.consume("t")] == [b"handled"]


@pytest.mark.promise(
    "fixture",
    "The fixture can inject faults: errors, delays, dropped connections, lost responses, pause, kill and "
    "restart",
)
def test_a_delayed_request_is_answered_when_the_clock_has_come_there(penstock: PenstockBroker) -> None:
    penstock.faults.delay("ApiVersions", ms=60_000)
    with WireClient(penstock.port, timeout=WAIT) as wire:
        sent = wire.send(ApiKey.API_VERSIONS, 0, b"")
        penstock.wait_for_requests("ApiVersions")
        wire.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            wire.receive_frame()
        penstock.clock.advance(seconds=61)
        wire.socket.settimeout(WAIT)
        assert wire.receive(ApiKey.API_VERSIONS, 0, sent).error_code == 0


def test_faults_that_make_no_sense_are_refused(penstock: PenstockBroker) -> None:
    for arguments in [("Produse", "NOT_LEADER_OR_FOLLOWER"), ("Produce", "NO_SUCH_ERROR")]:
        with pytest.raises(RuntimeError, match="Kafka has no such"):
            penstock.faults.fail(*arguments)


def test_two_brokers_do_not_know_each_other() -> None:
    with PenstockBroker() as one, PenstockBroker() as two:
        one.create_topic("t")
        two.create_topic("t")
        CLIENTS["confluent"].produce(one.bootstrap, "t", [Rec(b"x")])
        assert two.consume("t") == []
        assert one.port != two.port


def test_a_broker_that_dies_by_itself_says_so_with_its_log(penstock: PenstockBroker) -> None:
    os.kill(penstock.pid, signal.SIGKILL)
    assert penstock._process is not None
    penstock._process.wait()
    with pytest.raises(BrokerFailed, match="died with exit code -9"):
        penstock.faults.clear()


def test_a_failure_is_shown_with_the_brokers_log(tmp_path: Path) -> None:
    example = """
        import socket

        def test_fails(penstock):
            with socket.create_connection(("127.0.0.1", penstock.port)) as hostile:
                hostile.sendall(b"\\xff" * 100)
                assert hostile.recv(1) == b"an answer"
    """
    (tmp_path / "test_example.py").write_text(textwrap.dedent(example), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    outcome = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert "penstock broker log" in outcome.stdout
    assert "closed: " in outcome.stdout
