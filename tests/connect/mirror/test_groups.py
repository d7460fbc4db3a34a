"""MirrorCheckpointConnector: a group that moves to the target continues where it was."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.client.groups import all_committed
from penstock.connect.connectors.mirror.checkpoints import read_checkpoints
from tests.connect.conftest import Worker
from tests.connect.mirror.conftest import Pair, connect, partition, until, until_equal
from tests.connect.mirror.test_source import SOURCE, write

pytestmark = pytest.mark.timeout(400)

OFTEN: dict[str, object] = {
    "refresh__groups__interval__seconds": 1,
    "emit__checkpoints__interval__seconds": 1,
    "sync__group__offsets__interval__seconds": 1,
}


def consume(bootstrap: str, group: str, topic: str, count: int | None) -> list[bytes]:
    """What a member of the group reads: so many records, or up to the end; it commits and leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    ends: set[int] = set()

    def enough() -> bool:
        for message in consumer.consume(min(100, count - len(found)) if count else 100, 0.5):
            if message.error() is not None:
                ends.add(message.partition() or 0)
            else:
                found.append(message.value() or b"")
            if count is not None and len(found) == count:
                return True
        return count is None and len(ends) == 3

    until(enough, f"{group} reads {count or 'all'} of {topic}")
    if found:
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


@pytest.mark.promise(
    "mirror",
    "A group that moves to the target cluster misses no record and reads at most `offset.lag.max` "
    "records again in a partition",
)
@pytest.mark.parametrize("location", ["source", pytest.param("target", marks=pytest.mark.long)])
def test_a_group_that_moves_continues_where_it_was(clusters: Pair, mirror: Worker, location: str) -> None:
    topic, group, alias = f"moving-{location}", f"readers-{location}", f"m-{location}"
    remote = f"{alias}.{topic}"
    clusters.source.create_topic(topic, partitions=3)
    write(clusters.source, topic, 3000)
    common = clusters.config(alias, topics=topic, **{"offset-syncs.topic.location": location})
    mirror.put(f"s-{location}", {"connector.class": SOURCE, **common, "offset.lag.max": 10})
    read = consume(clusters.source.bootstrap, group, topic, 1234)
    until_equal(clusters, topic, remote, 3)
    with connect(clusters.source.bootstrap) as source:
        committed = all_committed(source, group)
    assert sum(each.offset for each in committed.values()) == 1234
    options: dict[str, object] = {
        **common,
        "groups": group,
        "sync.group.offsets.enabled": True,
        **{name.replace("__", "."): value for name, value in OFTEN.items()},
    }
    mirror.put(f"c-{location}", {"connector.class": "MirrorCheckpointConnector", **options})
    with connect(clusters.target.bootstrap) as target:
        until(
            lambda: len(all_committed(target, group)) == len(committed),
            "the group has its offsets in the target",
            lambda: f"{mirror.status(f'c-{location}')} {mirror.log.read_text()[-3000:]}",
        )

        def agreed() -> bool:
            """The checkpoints are written with the next transaction of the task."""
            checkpoints = read_checkpoints(target, f"{alias}.checkpoints.internal").get(group, {})
            return {place: each.downstream_offset for place, each in checkpoints.items()} == {
                place: each.offset for place, each in all_committed(target, group).items()
            }

        until(agreed, "the checkpoints say what is committed")
        translated = all_committed(target, group)
        for (_, number), each in committed.items():
            here = partition(target, remote, number)[0]
            unread = here[each.offset] if each.offset < len(here) else None  # each record is here once
            again = [one for one in here if translated[remote, number].offset <= one.offset]
            assert unread is None or unread in again
            assert len(again) - (len(here) - each.offset) <= 11
    rest = consume(clusters.target.bootstrap, group, remote, None)
    everything = {f"value {i} ".encode() * 5 for i in range(3000)}
    assert set(read) | set(rest) == everything
    assert len(read) + len(rest) <= 3000 + 3 * 11


def test_an_active_group_of_the_target_keeps_its_offsets(clusters: Pair, mirror: Worker) -> None:
    """Its members there decide where it is."""
    topic, group = "active", "active-readers"
    clusters.source.create_topic(topic, partitions=3)
    write(clusters.source, topic, 300)
    common = clusters.config("a1", topics=topic)
    mirror.put("s-active", {"connector.class": SOURCE, **common})
    until_equal(clusters, topic, f"a1.{topic}", 3)
    member = Consumer({"bootstrap.servers": clusters.target.bootstrap, "group.id": group})
    member.subscribe([f"a1.{topic}"])
    until(lambda: member.poll(0.2) is not None or member.assignment(), "a member joins")
    member.commit(offsets=[TopicPartition(f"a1.{topic}", 0, 1)], asynchronous=False)
    consume(clusters.source.bootstrap, group, topic, 300)
    options = {**common, "groups": group, "sync.group.offsets.enabled": True}
    options |= {name.replace("__", "."): value for name, value in OFTEN.items()}
    mirror.put("c-active", {"connector.class": "MirrorCheckpointConnector", **options})
    with connect(clusters.target.bootstrap) as target:
        until(lambda: group in read_checkpoints(target, "a1.checkpoints.internal"), "there are checkpoints")
        assert all_committed(target, group)[f"a1.{topic}", 0].offset == 1
        member.close()
        until(lambda: all_committed(target, group)[f"a1.{topic}", 0].offset > 1, "an idle group follows")
