"""Share groups over three brokers: data, state and group are each led by any of them, and one is killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import NewTopic

from penstock.errors import ApiError, error_for_code
from penstock.groups.share.state_records import SharePartitionKey
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.clients.raw import topic_id
from tests.clients.share_member import alter_group
from tests.cluster.harness import PATIENCE, Cluster, Node, running, wait_until
from tests.cluster.history import History, Writer, read_all

pytestmark = pytest.mark.timeout(300)

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "6",
    # What a dead member or leader held is delivered again soon, and never too often.
    "group.share.record.lock.duration.ms": "3000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.session.timeout.ms": "6000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.delivery.count.limit": "10",
}


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("share"), settings=SETTINGS) as cluster:
        yield cluster


def make_queue(cluster: Cluster, name: str, partitions: int = 3) -> None:
    cluster.create_topic(name, partitions, min_insync_replicas="2")
    with WireClient(cluster.nodes[1].clients.target, timeout=PATIENCE) as wire:
        alter_group(wire, name, share_auto_offset_reset="earliest")


def coordinator(cluster: Cluster, group: str) -> Node:
    found: list[int] = []

    def known() -> bool:
        node = next(one for one in cluster.nodes.values() if one.is_running)
        with WireClient(node.clients.target, timeout=PATIENCE) as wire:
            request = Message(key_type=0, coordinator_keys=[group])
            answer = wire.request(ApiKey.FIND_COORDINATOR, 6, request).coordinators[0]
        found[:] = [answer.node_id]
        return bool(answer.error_code == 0)

    wait_until(f"{group} has a coordinator", known)
    return cluster.nodes[found[0]]


def ask(cluster: Cluster, group: str, api: ApiKey, version: int, request: Message) -> Message:
    with WireClient(coordinator(cluster, group).clients.target, timeout=PATIENCE) as wire:
        return wire.request(api, version, request)


def offsets(cluster: Cluster, group: str) -> dict[int, tuple[int, int]]:
    """Start offset and lag of each partition; empty while they cannot be told."""
    request = Message(groups=[Message(group_id=group, topics=None)])
    answer = ask(cluster, group, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, request).groups[0]
    partitions = [one for topic in answer.topics for one in topic.partitions]
    if answer.error_code or any(one.error_code for one in partitions):
        return {}
    return {one.partition_index: (one.start_offset, one.lag) for one in partitions}


class Workers:
    """Consumers that take records, accept them, and count what they were told is accepted."""

    def __init__(self, cluster: Cluster, queue: str, count: int) -> None:
        self._cluster = cluster
        self._queue = queue
        self._lock = threading.Lock()
        self.delivered: Counter[bytes] = Counter()
        self.accepted: set[bytes] = set()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]

    def __enter__(self) -> Workers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _work(self) -> None:
        member = ShareConsumer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": self._queue,
                "share.acknowledgement.mode": "explicit",
                "reconnect.backoff.max.ms": 500,
                "retry.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 2000,
                "log_level": 0,
            }
        )
        member.subscribe([self._queue])
        try:
            while not self._stopping.is_set():
                taken = [message for message in member.poll(0.5) if message.error() is None]
                for message in taken:
                    member.acknowledge(message, AcknowledgeType.ACCEPT)
                if not taken:
                    continue
                with self._lock:
                    self.delivered.update(message.value() for message in taken)
                results = member.commit_sync(10)
                sound = {(one.topic, one.partition) for one, error in results.items() if error is None}
                with self._lock:
                    self.accepted.update(
                        message.value()
                        for message in taken
                        if (message.topic(), message.partition()) in sound
                    )
        finally:
            member.close()

    def wait_for(self, count: int) -> None:
        wait_until(f"{count} records are accepted", lambda: len(self.accepted) >= count, PATIENCE * 2)


def wait_until_done(cluster: Cluster, queue: str, workers: Workers, history: History) -> None:
    """Every record was delivered; and the group is done with each: acknowledged, and the state knows it.

    Not each is told to its member: an answer may be lost when what it says is written.
    """
    wanted = set(history.acknowledged)
    wait_until("every record was delivered", lambda: wanted <= workers.delivered.keys(), PATIENCE * 2)
    end = time.monotonic() + PATIENCE
    while any(lag for _, lag in (offsets(cluster, queue) or {0: (0, 1)}).values()):
        assert time.monotonic() < end, f"not all is acknowledged: {offsets(cluster, queue)}"
        time.sleep(0.2)


def state_leaders(cluster: Cluster, queue: str) -> dict[int, int]:
    """Who coordinates the state of each partition of the queue."""
    from penstock.coordinator import partition_for

    leaders = cluster.leaders("__share_group_state")
    with WireClient(cluster.nodes[1].clients.target, timeout=PATIENCE) as wire:
        identity = topic_id(wire, queue)
    return {
        index: leaders[partition_for(SharePartitionKey(queue, identity, index).coordinator_key, len(leaders))]
        for index in cluster.leaders(queue)
    }


@pytest.mark.promise(
    "share groups",
    "In a cluster, the data, the state and the group can each be led by a different broker; killing one "
    "of them loses nothing",
)
def test_a_queue_over_brokers_loses_nothing_when_one_is_killed(cluster: Cluster) -> None:
    queue = "orders"
    make_queue(cluster, queue, 9)
    with Writer(cluster, queue, 9) as writer, Workers(cluster, queue, 3) as workers:
        workers.wait_for(300)
        victim = cluster.leader(queue, 0)
        victim.kill()
        workers.wait_for(len(workers.accepted) + 300)
        victim.start()
        workers.wait_for(len(workers.accepted) + 300)
        history = writer.stop()
        wait_until_done(cluster, queue, workers, history)
    assert not history.failed
    log = {value for records in read_all(cluster, queue).values() for _, value in records}
    assert set(workers.delivered) <= log
    assert sum(start for start, _ in offsets(cluster, queue).values()) >= len(history.acknowledged)


@pytest.mark.promise(
    "share groups",
    "In a cluster, the data, the state and the group can each be led by a different broker; killing one "
    "of them loses nothing",
)
def test_what_is_accepted_stays_so_when_leaders_and_coordinators_move(cluster: Cluster) -> None:
    """A rolling restart: no record that was told to be accepted is delivered to anybody again."""
    queue = "moves"
    make_queue(cluster, queue)
    with Writer(cluster, queue) as writer, Workers(cluster, queue, 1) as workers:
        workers.wait_for(100)
        for node in list(cluster.nodes.values()):
            node.restart()
            workers.wait_for(len(workers.accepted) + 100)
        history = writer.stop()
        wait_until_done(cluster, queue, workers, history)
        accepted = set(workers.accepted)
    late = Workers(cluster, queue, 1)
    with Writer(cluster, queue, name="late") as after, late:
        late.wait_for(50)
        wait_until_done(cluster, queue, late, after.stop())
    assert not accepted & late.delivered.keys()


@pytest.mark.promise(
    "share groups",
    "In a cluster, the data, the state and the group can each be led by a different broker; killing one "
    "of them loses nothing",
)
def test_administration_reaches_state_wherever_it_is(cluster: Cluster) -> None:
    queue = "administered"
    make_queue(cluster, queue)
    with Writer(cluster, queue) as writer, Workers(cluster, queue, 1) as workers:
        workers.wait_for(60)
        wait_until_done(cluster, queue, workers, writer.stop())

    def alter(start: int) -> int:
        partitions = [Message(partition_index=index, start_offset=start) for index in range(3)]
        request = Message(group_id=queue, topics=[Message(topic_name=queue, partitions=partitions)])
        answer = ask(cluster, queue, ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, request)
        codes = [one.error_code for topic in answer.responses for one in topic.partitions]
        return int(answer.error_code or max(codes))

    wait_until("the members are gone and the start is moved", lambda: alter(5) == 0)
    described = offsets(cluster, queue)
    ends = {number: len(records) for number, records in read_all(cluster, queue).items()}
    assert described == {number: (5, end - 5) for number, end in ends.items()}

    request = Message(group_id=queue, topics=[Message(topic_name=queue)])
    deleted = ask(cluster, queue, ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, request)
    assert deleted.error_code == 0 and deleted.responses[0].error_code == 0
    assert offsets(cluster, queue) == {}
    named = Message(
        groups=[Message(group_id=queue, topics=[Message(topic_name=queue, partitions=[0, 1, 2])])]
    )
    answer = ask(cluster, queue, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, named).groups[0]
    assert [one.start_offset for one in answer.topics[0].partitions] == [-1, -1, -1]


@pytest.mark.promise(
    "share groups",
    "In a cluster, the data, the state and the group can each be led by a different broker; killing one "
    "of them loses nothing",
)
def test_state_requests_are_fenced_and_answered_by_their_coordinator_only(cluster: Cluster) -> None:
    queue = "fenced"
    make_queue(cluster, queue)
    with Writer(cluster, queue) as writer, Workers(cluster, queue, 1) as workers:
        workers.wait_for(10)
        wait_until_done(cluster, queue, workers, writer.stop())
    leaders = state_leaders(cluster, queue)
    with WireClient(cluster.nodes[1].clients.target, timeout=PATIENCE) as wire:
        identity = topic_id(wire, queue)

    def request(node: Node, api: ApiKey, **fields: object) -> Message:
        partition = Message(partition=0, **fields)
        message = Message(group_id=queue, topics=[Message(topic_id=identity, partitions=[partition])])
        with WireClient(node.clients.target, timeout=PATIENCE) as wire:
            found: Message = wire.request(api, 0, message).results[0].partitions[0]
        return found

    here = cluster.nodes[leaders[0]]
    elsewhere = next(node for node in cluster.nodes.values() if node is not here)
    summary = request(here, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, leader_epoch=-1)
    assert summary.error_code == 0 and summary.start_offset >= 0
    assert _name(request(elsewhere, ApiKey.READ_SHARE_GROUP_STATE, leader_epoch=-1)) == "NOT_COORDINATOR"
    newer = summary.leader_epoch + 5
    assert request(here, ApiKey.READ_SHARE_GROUP_STATE, leader_epoch=newer).error_code == 0
    old = request(
        here,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        state_epoch=summary.state_epoch,
        leader_epoch=summary.leader_epoch,
        start_offset=0,
        state_batches=[],
    )
    assert _name(old) == "FENCED_LEADER_EPOCH"
    again = request(here, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, leader_epoch=-1)
    assert (again.start_offset, again.leader_epoch) == (summary.start_offset, newer)
    assert request(here, ApiKey.DELETE_SHARE_GROUP_STATE).error_code == 0
    gone = request(here, ApiKey.READ_SHARE_GROUP_STATE, leader_epoch=newer)
    assert _name(gone) == "INVALID_REQUEST"
    made = request(here, ApiKey.INITIALIZE_SHARE_GROUP_STATE, state_epoch=3, start_offset=7)
    assert made.error_code == 0
    assert request(here, ApiKey.READ_SHARE_GROUP_STATE, leader_epoch=-1).start_offset == 7


def _name(result: Message) -> str:
    from penstock.errors import error_for_code

    kind: type[ApiError] = error_for_code(result.error_code)
    return kind.kafka_name


@pytest.mark.promise(
    "share groups",
    "In a cluster, the data, the state and the group can each be led by a different broker; killing one "
    "of them loses nothing",
)
def test_dead_letters_reach_their_topic_from_every_leader(cluster: Cluster) -> None:
    queue = "rejected"
    make_queue(cluster, queue)
    cluster.create_topic("letters", 1)
    with WireClient(cluster.nodes[1].clients.target, timeout=PATIENCE) as wire:
        alter_group(wire, queue, penstock_share_dead_letter_topic="letters")
    with Writer(cluster, queue) as writer:
        writer.wait_for_progress(60)
        history = writer.stop()
    member = ShareConsumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": queue,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,
        }
    )
    member.subscribe([queue])
    rejected: set[bytes] = set()
    try:
        end = time.monotonic() + PATIENCE
        while not set(history.acknowledged) <= rejected:
            assert time.monotonic() < end
            for message in member.poll(0.5):
                if message.error() is None:
                    member.acknowledge(message, AcknowledgeType.REJECT)
                    rejected.add(message.value())
            member.commit_sync(10)
    finally:
        member.close()

    def letters() -> set[bytes]:
        return {value for _, value in read_all(cluster, "letters")[0]}

    wait_until("all letters are there", lambda: letters() == rejected)


@pytest.mark.promise(
    "share groups",
    "Deleting a share group also deletes its state, on whichever brokers it is, or the group is not "
    "deleted at all",
)
def test_a_group_whose_state_cannot_be_deleted_stays_until_it_can(tmp_path: Path) -> None:
    """It would else begin again where it was, when somebody makes it again."""
    queue = "deleted"
    with running(tmp_path, settings=SETTINGS) as cluster:
        make_queue(cluster, queue, 1)
        home = coordinator(cluster, queue)
        elsewhere = next(node for node in cluster.nodes.values() if node is not home)
        state = NewTopic("__share_group_state", 1, replica_assignment=[[elsewhere.id]])
        cluster.admin.create_topics([state], request_timeout=30)["__share_group_state"].result()
        with Writer(cluster, queue, 1) as writer, Workers(cluster, queue, 1) as workers:
            workers.wait_for(20)
            wait_until_done(cluster, queue, workers, writer.stop())

        def delete() -> str:
            answer = ask(cluster, queue, ApiKey.DELETE_GROUPS, 2, Message(groups_names=[queue]))
            code = answer.results[0].error_code
            return error_for_code(code).kafka_name if code else ""

        elsewhere.kill()
        wait_until("nobody has its state", lambda: cluster.leaders("__share_group_state")[0] == -1)
        said: list[str] = []
        wait_until("its members are gone", lambda: said.append(delete()) or said[-1] != "NON_EMPTY_GROUP")
        assert said[-1] == "COORDINATOR_NOT_AVAILABLE"
        elsewhere.start()
        wait_until("it is deleted", lambda: delete() == "")
        assert delete() == "GROUP_ID_NOT_FOUND"
        with Workers(cluster, queue, 1) as again:
            again.wait_for(len(workers.accepted))
        assert again.delivered.keys() == workers.delivered.keys()
