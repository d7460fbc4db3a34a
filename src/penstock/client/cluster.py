"""`Cluster`: the requests of Penstock's own Kafka clients, as plain blocking calls.

Every call finds the right broker, and retries while leaders or coordinators move or brokers are down, until
`default.api.timeout.ms`. Works with Apache Kafka since 2.8, and with anything that speaks its protocol. One
thread owns a Cluster; it must not be used across a fork.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType

from penstock.client.brokers import FETCH, Brokers, TopicInfo, check
from penstock.client.connection import Connection
from penstock.client.errors import ConnectionFailed
from penstock.client.fetching import (
    FetchAnswer,
    FetchedBytes,
    FetchQuery,
    decode_fetch,
    encode_fetch,
    version_limit,
)
from penstock.client.settings import ClientSettings
from penstock.errors import (
    ApiError,
    OffsetOutOfRange,
    TopicAlreadyExists,
    WireError,
    error_for_code,
)
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

TopicPartition = tuple[str, int]

EARLIEST, LATEST = -2, -1
_BY_NAME_COMMIT, _BY_NAME_OFFSETS = 9, 9  # the newest versions that identify topics by name
_SAME_EPOCH_END = 4  # with KIP-890 every end of a transaction starts a new epoch
_NO_OFFSET = -1


class Cluster:
    """A context manager that closes its connections at the end."""

    def __init__(self, settings: ClientSettings, *, brokers: Brokers | None = None) -> None:
        self.settings = settings
        self._brokers = brokers if brokers is not None else Brokers(settings)
        self._replicas: dict[TopicPartition, int] = {}  # the follower in our rack that the leader named

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._brokers.close()

    def id(self) -> str | None:
        """The cluster's id; None if brokers do not report it."""
        self._brokers.retry("asking for the cluster's id", lambda: self._brokers.metadata([]))
        return self._brokers.cluster_id

    def broker_count(self) -> int:
        """How many brokers are up."""
        self._brokers.retry("asking for the brokers", lambda: self._brokers.metadata([]))
        return len(self._brokers.node_ids())

    # ---- topics ----

    def topics(self, *, internal: bool = False) -> frozenset[str]:
        """The names of all topics; without Kafka's internal ones unless requested."""
        found = self._brokers.retry("listing the topics", lambda: self._brokers.metadata(None))
        return frozenset(name for name, info in found.items() if internal or not info.is_internal)

    def partitions(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of `topics` that exist, as the cluster knows them now."""
        names = list(dict.fromkeys(topics))
        if not names:
            return {}
        return self._brokers.retry(f"looking up {', '.join(names)}", lambda: self._brokers.metadata(names))

    def remembered(self, topic: str) -> TopicInfo | None:
        """A topic from the latest response, which a retry of another request may have refreshed."""
        return self._brokers.remembered(topic)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        if_absent: bool = False,
        *,
        replication_factor: int = -1,
    ) -> bool:
        """Create a topic and wait for its leaders. Returns False if it existed, which is an error without
        `if_absent`.
        """
        settings = self.settings
        topic = Message(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[],
            configs=[Message(name=key, value=value) for key, value in (config or {}).items()],
        )
        request = Message(topics=[topic], timeout_ms=settings.request_timeout_ms, validate_only=False)
        asked = False

        def create() -> bool:
            nonlocal asked
            connection = self._brokers.controller()
            again, asked = asked, True
            answer = connection.request(ApiKey.CREATE_TOPICS, request).topics[0]
            if answer.error_code == TopicAlreadyExists.code and (if_absent or again):
                # After a lost response our own request may have created it.
                return again and not if_absent
            check(answer.error_code, answer.error_message or f"topic {name}")
            return True

        def known() -> None:
            for partition in range(self._brokers.topic(name).partition_count):
                self._brokers.leader(name, partition)

        created = self._brokers.retry(f"creating topic {name}", create)
        self._brokers.forget()
        self._brokers.retry(f"waiting for the leaders of topic {name}", known)
        return created

    # ---- offsets ----

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: int | None = None
    ) -> dict[TopicPartition, int | None]:
        """The offset of each partition for EARLIEST, LATEST, or the first record at or after a timestamp
        (ms).

        None if there is no such record. LATEST is the high watermark, or with `read_committed` the last
        stable offset.
        """
        level = self.settings.isolation if isolation is None else isolation
        found: dict[TopicPartition, int | None] = {}

        def ask() -> None:
            by_leader: dict[int, dict[str, list[Message]]] = {}
            for (topic, partition), time in wanted.items():
                if (topic, partition) not in found:
                    info, leader = self._brokers.leader(topic, partition)
                    asked = Message(
                        partition_index=partition,
                        current_leader_epoch=info.leader_epochs[partition],
                        timestamp=time,
                    )
                    by_leader.setdefault(leader, {}).setdefault(topic, []).append(asked)
            failed: ApiError | None = None
            for leader, topics in by_leader.items():
                request = Message(
                    replica_id=-1,
                    isolation_level=level,
                    topics=[Message(name=name, partitions=asked) for name, asked in topics.items()],
                    timeout_ms=self.settings.request_timeout_ms,
                )
                answer = self._brokers.broker(leader).request(ApiKey.LIST_OFFSETS, request)
                for each in answer.topics:
                    for one in each.partitions:
                        if one.error_code:
                            failed = error_for_code(one.error_code)(f"{each.name}-{one.partition_index}")
                            if not failed.retriable:
                                raise failed
                        else:
                            offset = one.offset if one.offset != _NO_OFFSET else None
                            found[each.name, one.partition_index] = offset
            if failed is not None:
                raise failed

        self._brokers.retry(f"reading offsets of {_names(wanted)}", ask)
        return found

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Store the offsets of a group without members, as a consumer with manual assignment does."""
        if not offsets:
            return
        topics: dict[str, list[Message]] = {}
        for (topic, partition), offset in offsets.items():
            one = Message(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=-1,
                committed_metadata=metadata,
            )
            topics.setdefault(topic, []).append(one)
        request = Message(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            retention_time_ms=-1,
            topics=[Message(name=name, partitions=partitions) for name, partitions in topics.items()],
        )

        def ask() -> None:
            coordinator = self._brokers.coordinator(group)
            answer = coordinator.request(ApiKey.OFFSET_COMMIT, request, at_most=_BY_NAME_COMMIT)
            for each in answer.topics:
                for one in each.partitions:
                    check(one.error_code, f"{each.name}-{one.partition_index} in group {group}")

        self._brokers.retry(f"committing offsets of group {group}", ask)

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The committed offset of each partition, None if the group has none."""
        wanted = list(dict.fromkeys(partitions))
        topics: dict[str, list[int]] = {}
        for topic, partition in wanted:
            topics.setdefault(topic, []).append(partition)
        asked = [Message(name=name, partition_indexes=indexes) for name, indexes in topics.items()]

        def ask() -> dict[TopicPartition, int | None]:
            coordinator = self._brokers.coordinator(group)
            one_group = Message(group_id=group, member_id=None, member_epoch=-1, topics=asked)
            request = Message(group_id=group, topics=asked, groups=[one_group], require_stable=True)
            answer = coordinator.request(ApiKey.OFFSET_FETCH, request, at_most=_BY_NAME_OFFSETS)
            if coordinator.version(ApiKey.OFFSET_FETCH, _BY_NAME_OFFSETS) >= 8:
                answer = answer.groups[0]
            check(answer.error_code, f"group {group}")
            found: dict[TopicPartition, int | None] = dict.fromkeys(wanted)
            for each in answer.topics:
                for one in each.partitions:
                    check(one.error_code, f"{each.name}-{one.partition_index} in group {group}")
                    if one.committed_offset >= 0:
                        found[each.name, one.partition_index] = one.committed_offset
            return found

        return self._brokers.retry(f"reading the offsets of group {group}", ask) if wanted else {}

    def end_transaction(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Commit or abort a transaction of another process, given the producer's id and epoch."""
        request = Message(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )

        def ask() -> None:
            coordinator = self._brokers.coordinator(transactional_id, transactional=True)
            # Up to these versions ending twice, as after a lost response, is the same as once; later the
            # epoch increases.
            answer = coordinator.request(ApiKey.END_TXN, request, at_most=_SAME_EPOCH_END)
            check(answer.error_code, f"transactional id {transactional_id}")

        self._brokers.retry(f"ending the transaction of {transactional_id}", ask)

    # ---- records ----

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int | None = None,
        min_bytes: int | None = None,
        max_wait_ms: int | None = None,
        isolation: int | None = None,
    ) -> FetchedBytes:
        """Record batches from `offset` on; empty if there are none within `max_wait_ms`."""
        return self.start_fetch(
            topic,
            partition,
            offset,
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
            isolation=isolation,
        ).result()

    def start_fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int | None = None,
        min_bytes: int | None = None,
        max_wait_ms: int | None = None,
        isolation: int | None = None,
    ) -> PendingFetch:
        """Send the request of a `fetch` now and take its response later."""
        settings = self.settings
        query = FetchQuery(
            topic,
            partition,
            offset,
            max_bytes=settings.fetch_bytes if max_bytes is None else max_bytes,
            min_bytes=settings.fetch_min_bytes if min_bytes is None else min_bytes,
            max_wait_ms=settings.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms,
            isolation=settings.isolation if isolation is None else isolation,
        )
        pending = PendingFetch(self, query)
        try:
            pending.send()
        except (ConnectionFailed, ApiError):
            pass  # result() retries, and fails if that does not help
        return pending

    def _send_fetch(self, query: FetchQuery) -> tuple[Connection, int, int]:
        """The connection on which the request was sent, its number there, and its version."""
        info, leader = self._brokers.leader(query.topic, query.partition)
        node_id = self._replicas.get((query.topic, query.partition), leader)
        connection = self._brokers.broker(node_id, FETCH)
        version = connection.version(ApiKey.FETCH, version_limit(info.id))
        epoch = info.leader_epochs[query.partition] if node_id == leader else -1
        body = encode_fetch(version, query, info.id, epoch, self.settings.rack)
        return connection, connection.send(ApiKey.FETCH, version, body), version

    def _fetched(self, query: FetchQuery, answer: FetchAnswer) -> FetchedBytes | None:
        """The response for the caller; None: ask again, at the replica that the leader named."""
        name = f"{query.topic}-{query.partition}"
        place = (query.topic, query.partition)
        error: ApiError | None = None
        if answer.error_code:
            # A follower may be behind or no longer a replica: only the leader's response counts.
            if self._replicas.pop(place, None) is not None:
                return None
            error = error_for_code(answer.error_code)(name)
            if not isinstance(error, OffsetOutOfRange):
                raise error
        elif answer.preferred_read_replica >= 0 and not answer.data:
            if self._replicas.get(place) != answer.preferred_read_replica:
                self._replicas[place] = answer.preferred_read_replica
                return None
        return FetchedBytes(
            error,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            answer.aborted,
            answer.data,
        )


class PendingFetch:
    """A fetch in flight. Take its `result`, or `drop` it."""

    def __init__(self, cluster: Cluster, query: FetchQuery) -> None:
        self._cluster = cluster
        self._query = query
        self._sent: tuple[Connection, int, int] | None = None

    def send(self) -> None:
        self._sent = self._cluster._send_fetch(self._query)

    def result(self) -> FetchedBytes:
        """The response, with as many retries as needed."""
        query = self._query
        return self._cluster._brokers.retry(
            f"reading {query.topic}-{query.partition} from offset {query.offset}", self._take
        )

    def drop(self) -> None:
        """Discard the response."""
        if self._sent is not None:
            connection, ticket, _ = self._sent
            connection.drop(ticket)
            self._sent = None

    def _take(self) -> FetchedBytes:
        while True:
            if self._sent is None:
                self.send()
            assert self._sent is not None
            (connection, ticket, version), self._sent = self._sent, None
            query = self._query
            frame = connection.receive(ticket, self._cluster.settings.request_timeout_ms + query.max_wait_ms)
            try:
                answer = decode_fetch(version, frame, query.topic)
            except WireError as error:
                connection.close()
                raise ConnectionFailed(f"the broker at {connection.address}: {error}") from error
            fetched = self._cluster._fetched(query, answer)
            if fetched is not None:
                return fetched


def _names(partitions: Iterable[TopicPartition]) -> str:
    topics = list(dict.fromkeys(topic for topic, _ in partitions))
    return ", ".join(topics[:5]) + (", …" if len(topics) > 5 else "")
