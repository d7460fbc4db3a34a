"""Leaders and controllers die, stop and come back, and nothing that was acknowledged is lost."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaException, Producer

from tests.cluster.harness import SESSION_MS, Cluster, Node, wait_until
from tests.cluster.history import Writer, check, read_all
from tests.repetitions import times

pytestmark = pytest.mark.timeout(300)


@pytest.mark.promise(
    "cluster",
    "Repeated kill -9 of the leader loses and duplicates no acknowledged record, and a consumer reads to "
    "the end",
)
@pytest.mark.repeated
def test_killing_the_leader_again_and_again_loses_nothing_acknowledged(cluster: Cluster) -> None:
    cluster.create_topic("leader-killed", min_insync_replicas="2")
    with Writer(cluster, "leader-killed") as writer:
        for _ in range(times(2, 5)):
            writer.wait_for_progress()
            leader = cluster.leader("leader-killed")
            leader.kill()
            writer.wait_for_progress()
            leader.start()
            cluster.wait_in_sync("leader-killed")
        history = writer.stop()
    assert not history.failed
    check(history, read_all(cluster, "leader-killed"))


@pytest.mark.promise(
    "cluster",
    "After each kill -9 of the controller another broker takes over, and metadata can be changed again",
)
@pytest.mark.repeated
def test_killing_the_controller_again_and_again_loses_nothing_acknowledged(cluster: Cluster) -> None:
    cluster.create_topic("controller-killed", min_insync_replicas="2")
    with Writer(cluster, "controller-killed") as writer:
        for round_ in range(times(2, 5)):
            controller = cluster.controller()
            controller.kill()
            wait_until("another is controller", lambda was=controller: cluster.controller() is not was)
            # Changes can be made again, and are led.
            cluster.create_topic(f"after-controller-{round_}", partitions=1, replicas=2)
            writer.wait_for_progress()
            controller.start()
            cluster.wait_in_sync("controller-killed")
        history = writer.stop()
    assert not history.failed
    check(history, read_all(cluster, "controller-killed"))


@pytest.mark.promise(
    "cluster", "A rolling restart transfers leadership first, so that no producer sees an error"
)
def test_a_rolling_restart_is_not_noticed_by_producers(cluster: Cluster) -> None:
    cluster.create_topic("rolling", min_insync_replicas="2")
    with Writer(cluster, "rolling") as writer:
        for node in list(cluster.nodes.values()):
            writer.wait_for_progress()
            assert node.stop() == 0
            # It has handed over what it led before it stopped: nobody waits for a session to end.
            assert node.id not in cluster.leaders("rolling").values()
            node.start()
            cluster.wait_in_sync("rolling")
        history = writer.stop()
    assert not history.failed
    check(history, read_all(cluster, "rolling"))


@pytest.mark.promise("cluster", "After kill -9 of all brokers at once, all acknowledged records are back")
def test_all_brokers_killed_at_once_come_back_with_all_that_was_acknowledged(cluster: Cluster) -> None:
    cluster.create_topic("all-killed", min_insync_replicas="2")
    with Writer(cluster, "all-killed") as writer:
        writer.wait_for_progress(300)
        for node in cluster.nodes.values():
            node.kill()
        for node in cluster.nodes.values():
            node.start(wait=False)
        for node in cluster.nodes.values():
            node.wait_until_ready()
        writer.wait_for_progress()
        history = writer.stop()
    assert not history.failed
    cluster.wait_in_sync("all-killed")
    check(history, read_all(cluster, "all-killed"))


@pytest.mark.promise(
    "cluster",
    "A leader that is paused for longer than its session is fenced and acknowledges nothing; a shorter "
    "pause has no effect",
)
def test_a_leader_that_was_stopped_past_its_session_comes_back_fenced(cluster: Cluster) -> None:
    """While it was stopped another was elected. What it is sent when it wakes up, it does not acknowledge."""
    cluster.create_topic("stopped", partitions=1, min_insync_replicas="2")
    # What the stopped leader was sent is sent again after that time, to the one that was elected.
    with Writer(cluster, "stopped", partitions=1, **{"socket.timeout.ms": 6000}) as writer:
        writer.wait_for_progress()
        old = cluster.leader("stopped")
        # A client that knows only the old leader, with a request that waits for it to wake up.
        zombie_client = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "retries": 0, "log_level": 0}
        )
        zombie_client.produce("stopped", b"z:0")
        zombie_client.flush(30)
        old.pause()
        told: list[tuple[object, bytes]] = []
        zombie_client.produce("stopped", b"z:1", on_delivery=lambda e, m: told.append((e, m.value())))
        zombie_client.poll(0)
        wait_until("another leads", lambda: cluster.leaders("stopped")[0] not in (old.id, -1))
        writer.wait_for_progress()
        old.resume()
        wait_until("it is registered again", lambda: old.id in cluster.metadata().brokers)
        zombie_client.flush(60)
        writer.wait_for_progress()
        history = writer.stop()
    assert not history.failed
    cluster.wait_in_sync("stopped")
    log = read_all(cluster, "stopped")
    values = [value for records in log.values() for _, value in records]
    for error, value in told:
        assert error is not None or value in values, "acknowledged by a leader that was none any more"
    check(history, {0: [one for one in log[0] if not one[1].startswith(b"z:")]})


@pytest.mark.promise("cluster", "Idempotent retries across a failover write each record once")
def test_idempotent_retries_over_a_failover_write_each_record_once(cluster: Cluster) -> None:
    """The acknowledgement is lost with the leader; the retry goes to its successor, which knows the batch."""
    cluster.create_topic("retried", partitions=1, min_insync_replicas="2")
    with Writer(cluster, "retried", partitions=1, **{"max.in.flight": 5, "linger.ms": 0}) as writer:
        for _ in range(2):
            writer.wait_for_progress()
            leader = cluster.leader("retried")
            leader.clients.stall()  # requests arrive, answers do not
            time.sleep(0.3)
            leader.kill()
            leader.clients.heal()
            writer.wait_for_progress()
            leader.start()
            cluster.wait_in_sync("retried")
        history = writer.stop()
    assert not history.failed
    check(history, read_all(cluster, "retried"))


@pytest.mark.promise(
    "cluster",
    "A leader that is paused for longer than its session is fenced and acknowledges nothing; a shorter "
    "pause has no effect",
)
def test_a_session_is_longer_than_a_pause_that_is_forgiven(cluster: Cluster) -> None:
    cluster.create_topic("short-pause", partitions=1, min_insync_replicas="2")
    leader = cluster.leader("short-pause")
    leader.pause()
    time.sleep(SESSION_MS / 10_000)
    leader.resume()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    try:
        producer.produce("short-pause", b"v")
        assert producer.flush(30) == 0
    except KafkaException as error:
        raise AssertionError("the record was not taken") from error


@pytest.mark.promise(
    "cluster", "A second broker with the same `node.id` is rejected, and the first keeps running"
)
def test_a_second_broker_with_the_same_number_is_refused_and_the_first_goes_on(cluster: Cluster) -> None:
    """Both would lead the same partitions, and acknowledge different records with the same offsets."""
    cluster.create_topic("numbered", min_insync_replicas="2")
    first = cluster.leader("numbered")
    with Writer(cluster, "numbered") as writer:
        writer.wait_for_progress()
        second = Node(cluster, first.id, {}, name="second")
        second.start(wait=False)
        wait_until("it has ended", lambda: not second.is_running)
        assert f"node.id={first.id} is taken" in second.tail(1)
        writer.wait_for_progress()
        assert cluster.leader("numbered") is first
        history = writer.stop()
    assert not history.failed
    check(history, read_all(cluster, "numbered"))
