"""Penstock's own client against a real broker: what is asked, and what happens while things move."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from penstock.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ClientSettings,
    Cluster,
    ClusterTimeout,
)
from penstock.client.groups import committed_metadata, list_groups
from penstock.errors import (
    GroupAuthorizationFailed,
    InvalidPartitions,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnsupportedVersion,
)
from penstock.pipelines.run.clusters import Clusters
from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import iter_records
from penstock.wire.codec import Message
from tests.clients.frame_proxy import Disguise, Proxy, Request, Session
from tests.clients.txn_wire import WireProducer

Name = Callable[[], str]


def connect(bootstrap: str, **settings: str) -> Cluster:
    return Cluster(ClientSettings.from_kafka({"bootstrap.servers": bootstrap, **settings}))


@pytest.fixture
def cluster(broker: PenstockBroker) -> Cluster:
    return connect(broker.bootstrap)


def test_topics_are_listed_without_kafkas_own(cluster: Cluster, topic: str) -> None:
    with cluster:
        cluster.commit_offsets("makes-the-offsets-topic", {(topic, 0): 1})
        names = cluster.topics()
        assert topic in names
        assert "__consumer_offsets" not in names
        assert cluster.topics(internal=True) >= {topic, "__consumer_offsets"}


def test_a_cluster_has_one_id_by_whatever_address_it_is_reached(broker: PenstockBroker) -> None:
    with connect(broker.bootstrap) as cluster, connect(f"localhost:{broker.port}") as other:
        assert cluster.id() == other.id()
        assert cluster.id()


def test_a_pipelines_source_knows_its_cluster_unless_that_is_away(broker: PenstockBroker) -> None:
    clusters = Clusters()
    told = clusters.id_of({"Kafka.Bootstrap.Servers": broker.bootstrap, "subscribe": "a"})
    assert told and told == clusters.id_of({"kafka.bootstrap.servers": f"localhost:{broker.port}"})
    with socket.socket() as closed:  # bound, and nobody listens
        closed.bind(("127.0.0.1", 0))
        away = f"127.0.0.1:{closed.getsockname()[1]}"
        assert clusters.id_of({"kafka.bootstrap.servers": away}) is None
        assert clusters.id_of({"kafka.bootstrap.servers": f"{away},{broker.bootstrap}"}) == told
    assert clusters.id_of({"kafka.bootstrap.servers": "no:port:here"}) is None
    assert clusters.id_of({"path": "files"}) is None


def test_asking_for_topics_creates_none(cluster: Cluster, topic: str, topic_name: Name) -> None:
    absent = topic_name()
    with cluster:
        found = cluster.partitions([topic, absent])
        assert found.keys() == {topic}
        assert found[topic].partition_count == 1
        assert found[topic].id.int != 0
        assert absent not in cluster.topics()


def test_a_topic_is_created_once(cluster: Cluster, topic_name: Name) -> None:
    name = topic_name()
    with cluster:
        assert cluster.create_topic(name, 3, {"cleanup.policy": "compact"})
        assert cluster.partitions([name])[name].partition_count == 3
        assert not cluster.create_topic(name, 3, if_absent=True)
        with pytest.raises(TopicAlreadyExists, match=name):
            cluster.create_topic(name, 3)
        with pytest.raises(InvalidPartitions):
            cluster.create_topic(topic_name(), 0)


def test_a_topic_whose_creation_lost_its_answer_is_ours(penstock: PenstockBroker) -> None:
    penstock.faults.drop("CreateTopics", after=True)
    with connect(penstock.bootstrap) as cluster:
        assert cluster.create_topic("t", 2)
        assert cluster.partitions(["t"])["t"].partition_count == 2


def test_offsets_by_place_and_by_time(cluster: Cluster, broker: PenstockBroker, topic_name: Name) -> None:
    name = topic_name()
    broker.create_topic(name, 2)
    broker.produce(name, [{"value": "v", "timestamp": 1000 * i} for i in range(1, 6)])
    places = [(name, 0), (name, 1)]
    with cluster:
        assert cluster.list_offsets(dict.fromkeys(places, EARLIEST)) == dict.fromkeys(places, 0)
        assert cluster.list_offsets(dict.fromkeys(places, LATEST)) == {(name, 0): 5, (name, 1): 0}
        assert cluster.list_offsets({(name, 0): 2001, (name, 1): 2001}) == {(name, 0): 2, (name, 1): None}
        assert cluster.list_offsets({(name, 0): 5001}) == {(name, 0): None}


def test_the_latest_offset_of_a_committed_reader_is_before_an_open_transaction(
    cluster: Cluster, wire: WireClient, topic: str
) -> None:
    producer = WireProducer(wire, f"{topic}-transaction")
    assert producer.init() == 0
    assert producer.add(topic, 0) == [0]
    assert producer.produce(topic, b"open") == 0
    with cluster:
        assert cluster.list_offsets({(topic, 0): LATEST}, READ_UNCOMMITTED) == {(topic, 0): 1}
        assert cluster.list_offsets({(topic, 0): LATEST}, READ_COMMITTED) == {(topic, 0): 0}
    assert producer.end(commit=True) == 0


def test_offsets_of_a_group_are_kept(cluster: Cluster, topic: str) -> None:
    group = f"{topic}-group"
    with cluster:
        assert cluster.committed(group, [(topic, 0)]) == {(topic, 0): None}
        cluster.commit_offsets(group, {(topic, 0): 41})
        cluster.commit_offsets(group, {(topic, 0): 42}, "with a note")
        assert cluster.committed(group, [(topic, 0), (topic, 7)]) == {(topic, 0): 42, (topic, 7): None}


def test_groups_are_listed_with_what_was_noted_at_a_commit(cluster: Cluster, topic: str) -> None:
    group = f"{topic}-noted"
    with cluster:
        cluster.commit_offsets(group, {(topic, 0): 1}, "a note")
        assert group in list_groups(cluster)
        assert committed_metadata(cluster, group, [(topic, 0), (topic, 7)]) == {(topic, 0): "a note"}
        cluster.commit_offsets(group, {(topic, 0): 2})
        assert committed_metadata(cluster, group, [(topic, 0)]) == {(topic, 0): ""}


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_a_commit_waits_for_its_coordinator(penstock: PenstockBroker, error: str) -> None:
    penstock.create_topic("t")
    with connect(penstock.bootstrap) as cluster:
        penstock.faults.fail("OffsetCommit", error, times=2)
        penstock.faults.drop("FindCoordinator")
        cluster.commit_offsets("g", {("t", 0): 5})
        penstock.faults.fail("OffsetFetch", error)
        assert cluster.committed("g", [("t", 0)]) == {("t", 0): 5}
        assert penstock.faults.hits["OffsetCommit"] == 2


def test_what_is_not_allowed_is_not_tried_again(penstock: PenstockBroker) -> None:
    penstock.faults.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=None)
    with connect(penstock.bootstrap) as cluster:
        with pytest.raises(GroupAuthorizationFailed, match="group g"):
            cluster.commit_offsets("g", {("t", 0): 5})
    assert penstock.requests["OffsetCommit"] == 1


def test_a_fetch_gives_the_bytes_of_the_log(cluster: Cluster, broker: PenstockBroker, topic: str) -> None:
    broker.produce(topic, ["a", "b"])
    with cluster:
        found = cluster.fetch(topic, 0, 0)
        assert found.error is None
        assert [record.value for record in iter_records(found.data)] == [b"a", b"b"]
        assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (2, 2, 0)
        assert not cluster.fetch(topic, 0, 2, max_wait_ms=0).data
        assert isinstance(cluster.fetch(topic, 0, 3, max_wait_ms=0).error, OffsetOutOfRange)


def test_a_fetch_waits_for_what_comes(cluster: Cluster, broker: PenstockBroker, topic: str) -> None:
    with cluster:
        pending = cluster.start_fetch(topic, 0, 0, max_wait_ms=60_000)
        broker.produce(topic, ["late"])
        assert [record.value for record in iter_records(pending.result().data)] == [b"late"]


def test_answers_go_to_who_asked_whatever_the_order(
    cluster: Cluster, broker: PenstockBroker, topic_name: Name
) -> None:
    name = topic_name()
    broker.create_topic(name, 3)
    for partition in range(3):
        broker.produce(name, [f"p{partition}"], partition=partition)
    with cluster:
        pending = [cluster.start_fetch(name, partition, 0) for partition in range(3)]
        pending[1].drop()
        for partition in (2, 0):
            (record,) = iter_records(pending[partition].result().data)
            assert record.value == b"p%d" % partition
        assert cluster.list_offsets({(name, 1): LATEST}) == {(name, 1): 1}
        (record,) = iter_records(cluster.fetch(name, 1, 0).data)
        assert record.value == b"p1"


@pytest.mark.promise(
    "client library",
    "The client retries through moving leaders, lost connections, and dead, hanging or restarted brokers "
    "until `default.api.timeout.ms`",
)
def test_a_fault_that_passes_is_not_seen(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["v"])
    for api in ("Fetch", "ListOffsets", "Metadata"):
        for fault in ("drop", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_ID", "REQUEST_TIMED_OUT"):
            if fault == "drop":
                penstock.faults.drop(api, times=2)
            else:
                penstock.faults.fail(api, fault, times=2)
            before = penstock.faults.hits.get(api, 0)
            with connect(penstock.bootstrap, **{"retry.backoff.ms": "10"}) as cluster:
                assert cluster.list_offsets({("t", 0): LATEST}) == {("t", 0): 1}
                (record,) = iter_records(cluster.fetch("t", 0, 0).data)
                assert record.value == b"v"
            assert penstock.faults.hits[api] == before + 2


@pytest.mark.promise(
    "client library",
    "The client retries through moving leaders, lost connections, and dead, hanging or restarted brokers "
    "until `default.api.timeout.ms`",
)
def test_a_leader_that_moves_is_followed(broker: PenstockBroker, topic: str) -> None:
    broker.produce(topic, ["v"])
    with Disguise(3) as disguise:
        disguise.serve(broker.port)
        with connect(disguise.bootstrap, **{"retry.backoff.ms": "10"}) as cluster:
            for leader, member in disguise.members.items():
                disguise.leader = leader
                assert cluster.fetch(topic, 0, 0).data
                assert cluster.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 1}
                assert member.fetches == 1


@pytest.mark.promise(
    "client library",
    "The client retries through moving leaders, lost connections, and dead, hanging or restarted brokers "
    "until `default.api.timeout.ms`",
)
def test_a_broker_that_is_gone_is_gone_around(broker: PenstockBroker, topic: str) -> None:
    broker.produce(topic, ["v"])
    with Disguise(3) as disguise:
        disguise.serve(broker.port)
        with connect(disguise.bootstrap, **{"retry.backoff.ms": "10"}) as cluster:
            assert cluster.fetch(topic, 0, 0).data
            disguise.leader = 103
            disguise.members[101].close()
            assert cluster.fetch(topic, 0, 0).data
            disguise.members[102].close()
            assert cluster.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 1}


@pytest.mark.promise("client library", "A reader reads from a replica in its rack (KIP-392)")
def test_a_reader_goes_where_the_leader_sends_it_and_back(broker: PenstockBroker, topic: str) -> None:
    broker.produce(topic, ["v"])
    with Disguise(2) as disguise:
        disguise.serve(broker.port)
        with connect(disguise.bootstrap, **{"client.rack": "here", "retry.backoff.ms": "10"}) as cluster:
            disguise.preferred = 102
            assert cluster.fetch(topic, 0, 0).data
            assert cluster.fetch(topic, 0, 0).data
            assert (disguise.members[101].fetches, disguise.members[102].fetches) == (0, 2)
            disguise.preferred = -1
            assert cluster.fetch(topic, 0, 0).data
            assert disguise.members[101].fetches == 1


class OldBroker(Proxy):
    """A broker of Kafka 2.8: the newest versions that it had."""

    CHANGED = (*Proxy.CHANGED, ApiKey.API_VERSIONS)
    NEWEST = {
        ApiKey.FETCH: 12,
        ApiKey.LIST_OFFSETS: 6,
        ApiKey.METADATA: 11,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.OFFSET_FETCH: 7,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.CREATE_TOPICS: 7,
    }

    def on_request(self, session: Session, request: Request) -> bytes | None:
        if request.version > self.NEWEST.get(request.api, 99):
            raise ConnectionResetError
        return None

    def on_answer(self, request: Request, answer: Message) -> None:
        if request.api is not ApiKey.API_VERSIONS:
            super().on_answer(request, answer)
            return
        for each in answer.api_keys:
            each.max_version = min(each.max_version, self.NEWEST.get(ApiKey(each.api_key), 99))


@pytest.mark.promise(
    "client library", "The client works with Apache Kafka 4.1, and with the request versions of Kafka 2.8"
)
def test_the_versions_of_kafka_2_8_do(broker: PenstockBroker, topic_name: Name) -> None:
    name = topic_name()
    with OldBroker() as old, connect(old.serve(broker.port).address) as cluster:
        assert cluster.create_topic(name, 2)
        broker.produce(name, ["v"])
        assert cluster.list_offsets({(name, 0): LATEST}) == {(name, 0): 1}
        assert cluster.fetch(name, 0, 0).data
        cluster.commit_offsets(f"{name}-g", {(name, 0): 1})
        assert cluster.committed(f"{name}-g", [(name, 0), (name, 1)]) == {(name, 0): 1, (name, 1): None}
        assert committed_metadata(cluster, f"{name}-g", [(name, 0)]) == {(name, 0): ""}
        assert f"{name}-g" in list_groups(cluster)


def test_a_broker_without_an_api_is_told_apart(broker: PenstockBroker) -> None:
    class Without(OldBroker):
        def on_answer(self, request: Request, answer: Message) -> None:
            super().on_answer(request, answer)
            if request.api is ApiKey.API_VERSIONS:
                answer.api_keys = [each for each in answer.api_keys if each.api_key != ApiKey.METADATA]

    with Without() as proxy, connect(proxy.serve(broker.port).address) as cluster:
        with pytest.raises(UnsupportedVersion, match=rf"Metadata: .*{proxy.address} does not serve it"):
            cluster.topics()


@pytest.mark.promise(
    "client library", "After the timeout, the error names the address, the reason and what to check"
)
def test_a_cluster_that_is_not_there_is_named_with_what_to_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with connect(address, **{"default.api.timeout.ms": "300"}) as cluster:
        with pytest.raises(ClusterTimeout) as failed:
            cluster.topics()
    message = str(failed.value)
    assert message.startswith("listing the topics did not succeed within 300 ms")
    assert f"cannot reach the broker at {address} (connection refused)" in message
    assert "bootstrap.servers" in message


@pytest.mark.promise(
    "client library", "After the timeout, the error names the address, the reason and what to check"
)
def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = {"default.api.timeout.ms": "300", "request.timeout.ms": "100"}
        with connect(address, **settings) as cluster, pytest.raises(ClusterTimeout, match="within 100 ms"):
            cluster.topics()


@pytest.mark.promise(
    "client library", "After the timeout, the error names the address, the reason and what to check"
)
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\2xx", bytes(40), b""])
def test_a_server_that_is_no_broker_is_told_apart(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                client.recv(1000)
                client.sendall(answer)
                client.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with connect(address, **{"default.api.timeout.ms": "200"}) as cluster:
                with pytest.raises(ClusterTimeout, match=r"Kafka broker|unknown correlation id"):
                    cluster.topics()
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(20)


def test_a_bootstrap_server_that_is_down_is_passed_over(broker: PenstockBroker, topic: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        down = f"127.0.0.1:{taken.getsockname()[1]}"
    with connect(f"{down},{broker.bootstrap}") as cluster:
        assert topic in cluster.topics()


@pytest.mark.promise(
    "client library",
    "The client retries through moving leaders, lost connections, and dead, hanging or restarted brokers "
    "until `default.api.timeout.ms`",
)
def test_a_bootstrap_server_that_hangs_is_passed_over(broker: PenstockBroker, topic: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = {"socket.connection.setup.timeout.ms": "200"}
        with connect(f"{address},{broker.bootstrap}", **settings) as cluster:
            assert topic in cluster.topics()


def test_a_topic_that_does_not_exist_is_named_after_the_wait(
    cluster: Cluster, broker: PenstockBroker
) -> None:
    with connect(broker.bootstrap, **{"default.api.timeout.ms": "200"}) as cluster:
        with pytest.raises(ClusterTimeout, match="topic nowhere does not exist"):
            cluster.list_offsets({("nowhere", 0): LATEST})


@pytest.mark.promise(
    "client library",
    "The client retries through moving leaders, lost connections, and dead, hanging or restarted brokers "
    "until `default.api.timeout.ms`",
)
def test_a_broker_that_was_killed_is_found_again(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["v"])
    with connect(penstock.bootstrap) as cluster:
        assert cluster.fetch("t", 0, 0).data
        penstock.kill()
        back = threading.Thread(target=penstock.restart)
        back.start()
        assert cluster.list_offsets({("t", 0): LATEST}) == {("t", 0): 1}
        assert cluster.fetch("t", 0, 0).data
        back.join(60)
