"""The checks of a running cluster. They read, and change nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence

from penstock.admin.cluster import MAX_TIMESTAMP, Cluster, TopicDescription
from penstock.admin.doctor.finding import Finding
from penstock.admin.groups.model import Group, TopicPartitionKey
from penstock.admin.groups.state import describe_groups, list_groups
from penstock.admin.transactions import open_transactions, owners
from penstock.admin.wire_client import WireCluster
from penstock.admin.words import plural
from penstock.errors import ApiError

CHECKS = ("listeners", "replicas", "clocks", "transactions", "groups")
_CONNECT_SECONDS = 3.0


def listeners(cluster: Cluster) -> Iterator[Finding]:
    """Whether the address that each broker advertises can be reached from here."""
    # Asked at the bootstrap address: librdkafka goes on to the advertised one, which may be what is wrong.
    with WireCluster(cluster) as wire:
        brokers = list(wire.metadata([]).brokers)
    for each in sorted(brokers, key=lambda one: one.node_id):
        node, host, port = each.node_id, each.host, each.port
        try:
            socket.create_connection((host, port), _CONNECT_SECONDS).close()
        except OSError as error:
            yield Finding(
                "listeners",
                f"broker {node}",
                f"its advertised address {host}:{port} cannot be reached from here: {error.strerror}",
                "set advertised.listeners of the broker to an address that clients can reach, or open the "
                "port in the firewall between",
            )


def replicas(topics: Mapping[str, TopicDescription]) -> Iterator[Finding]:
    for topic in topics.values():
        for each in topic.partitions:
            where = f"{topic.name}-{each.index}"
            missing = sorted(set(each.replicas) - set(each.isr))
            if each.leader < 0:
                yield Finding(
                    "offline",
                    where,
                    f"offline: no leader. Its replicas are on the brokers {_numbers(each.replicas)}",
                    f"start one of the brokers {_numbers(each.isr or each.replicas)}, in sync last; "
                    "if all are lost, `penstock cluster elect --unclean` takes another replica and may lose "
                    "records",
                )
            elif missing:
                yield Finding(
                    "under-replicated",
                    where,
                    f"under-replicated: in sync on {_numbers(each.isr)}, missing on {_numbers(missing)}",
                    f"start the brokers {_numbers(missing)}, or see their logs for why they do not follow; "
                    "`penstock cluster decommission` moves their replicas if they do not come back",
                )


def clocks(
    cluster: Cluster, topics: Mapping[str, TopicDescription], most_seconds: float
) -> Iterator[Finding]:
    """Newest records that are of a later time than it is here."""
    led = [
        (topic.name, each.index) for topic in topics.values() for each in topic.partitions if each.leader >= 0
    ]
    now = time.time()
    for (topic, partition), newest in sorted(cluster.offsets_of(led, MAX_TIMESTAMP).items()):
        ahead = newest.timestamp / 1000 - now
        if newest.offset >= 0 and ahead > most_seconds:
            yield Finding(
                "clocks",
                f"{topic}-{partition}",
                f"the record at offset {newest.offset} is {ahead:.0f} s in the future: the clock of its "
                "producer, of the broker (LogAppendTime) or of this machine is wrong",
                "synchronise the clocks (chrony, systemd-timesyncd). Until that time, retention.ms does "
                "not delete the record's segment; message.timestamp.after.max.ms refuses such records",
            )


def transactions(cluster: Cluster, older_seconds: float) -> Iterator[Finding]:
    with WireCluster(cluster) as wire:
        oldest = (time.time() - older_seconds) * 1000
        try:
            candidates = [each for each in open_transactions(wire) if each.last_timestamp <= oldest]
            hanging = [each for each, owner in owners(wire, candidates).items() if owner is None]
        except ApiError as error:
            yield Finding(
                "transactions", "cluster", f"could not be checked: {error}", "look at the brokers", "warning"
            )
            return
    for each in hanging:
        place = f"--topic {each.topic} --partition {each.partition} --start-offset {each.start_offset}"
        yield Finding(
            "transactions",
            f"{each.topic}-{each.partition}",
            f"a transaction of producer {each.producer_id} hangs at offset {each.start_offset}: consumers "
            "with read_committed get nothing after it",
            f"penstock transactions abort {place}",
        )


def groups(cluster: Cluster, seconds: float) -> Iterator[Finding]:
    """Groups that are behind and commit nothing for `seconds`."""
    names = [each.group for each in list_groups(cluster) if each.type in ("classic", "consumer", "Unknown")]
    if not names:
        return
    before = _behind(describe_groups(cluster, names))
    if not before:
        return
    time.sleep(seconds)
    for group in describe_groups(cluster, sorted(before)):
        now = _behind([group]).get(group.group, {})
        stuck = [key for key, committed in before[group.group].items() if now.get(key) == committed]
        if not stuck:
            continue
        lag = sum(each.lag or 0 for each in group.partitions if (each.topic, each.partition) in stuck)
        where, few = f"group {group.group}", ", ".join(f"{topic}-{index}" for topic, index in stuck[:4])
        if not group.members:
            yield Finding(
                "groups",
                where,
                f"has no members and is {plural(lag, 'record')} behind ({few})",
                f"start its consumers, or delete it: penstock groups delete {group.group}",
                "warning",
            )
        else:
            yield Finding(
                "groups",
                where,
                f"makes no progress: {plural(lag, 'record')} behind, and nothing committed in {seconds:g} s "
                f"({few})",
                "look at the logs of its members for a record that they cannot process or a processing that "
                "takes longer than max.poll.interval.ms. Who has which partition: "
                f"penstock groups describe {group.group}",
            )


def _behind(found: list[Group]) -> dict[str, dict[TopicPartitionKey, int]]:
    """What each group has committed of partitions that have more."""
    behind = {
        group.group: {
            (each.topic, each.partition): each.committed or 0 for each in group.partitions if _has_more(each)
        }
        for group in found
    }
    return {name: partitions for name, partitions in behind.items() if partitions}


def _has_more(partition: object) -> bool:
    lag, end = getattr(partition, "lag", None), getattr(partition, "end", None)
    committed = getattr(partition, "committed", None)
    return bool(lag) if committed is not None else bool(end)


def _numbers(brokers: object) -> str:
    assert isinstance(brokers, tuple | list)
    return ", ".join(map(str, brokers)) or "none"


def check_cluster(
    cluster: Cluster, *, watch: float = 5.0, older: float = 900.0, skew: float = 60.0
) -> tuple[Sequence[str], list[Finding]]:
    """The checks that were made, and what they found.

    watch   how many seconds a group that is behind may commit nothing
    older   only transactions whose last record is so many seconds old
    skew    how many seconds in the future a record's time may be
    """
    cluster.reach()
    found = list(listeners(cluster))
    if found:
        # The other checks ask brokers at the addresses that do not answer.
        return ("listeners",), found
    topics = cluster.topics()
    found += replicas(topics)
    found += clocks(cluster, topics, skew)
    found += transactions(cluster, older)
    found += groups(cluster, watch)
    return CHECKS, found
