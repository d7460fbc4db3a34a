"""Reads many partitions at once: one fetch in flight at each leader, responses as they arrive.

The reader keeps the positions but does not advance them: the caller says where to continue (`seek`). It
retries partitions whose leader moves or is down, without delaying the others.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from typing import NamedTuple

from penstock.client.brokers import FETCH
from penstock.client.cluster import Cluster, TopicPartition
from penstock.client.connection import Connection
from penstock.client.errors import ConnectionFailed
from penstock.client.fetching import NAMES_AT_MOST, FetchedBytes, version_limit
from penstock.errors import ApiError, OffsetOutOfRange, WireError, error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_response, encode_request
from penstock.wire.frame import response_start

_RETRY_SECONDS = 0.2
_MISSING_SECONDS = 2.0


class _Asked(NamedTuple):
    connection: Connection
    ticket: int
    version: int
    offsets: dict[TopicPartition, int]
    names: dict[object, str]


class PartitionReader:
    """For one thread, as the cluster whose connections it uses."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        *,
        isolation: int | None = None,
        max_wait_ms: int | None = None,
    ) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self.positions = dict(positions)
        self._isolation = settings.isolation if isolation is None else isolation
        self._max_wait_ms = settings.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms
        self._asked: dict[int, _Asked] = {}
        self._not_before: dict[TopicPartition, float] = {}
        self._turn = 0

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.positions[place] = offset

    def close(self) -> None:
        """Discard the responses in flight."""
        for asked in self._asked.values():
            asked.connection.drop(asked.ticket)
        self._asked.clear()

    # Asking

    def request(self) -> None:
        """Send a request to every leader without one in flight. Raises ConnectionFailed if none can be
        reached.
        """
        now = time.monotonic()
        waiting = {place for asked in self._asked.values() for place in asked.offsets}
        by_leader: dict[int, list[TopicPartition]] = {}
        trouble: Exception | None = None
        for place in self._rotated():
            if place in waiting or self._not_before.get(place, 0.0) > now:
                continue
            try:
                _, leader = self._cluster._brokers.leader(*place)
            except (ApiError, ConnectionFailed) as error:
                if isinstance(error, ApiError) and not error.retriable:
                    raise
                trouble = error
                # A deleted topic would otherwise cost a metadata request each time.
                self._not_before[place] = now + (
                    _RETRY_SECONDS if isinstance(error, ConnectionFailed) else _MISSING_SECONDS
                )
                continue
            if leader not in self._asked:
                by_leader.setdefault(leader, []).append(place)
        for leader, places in by_leader.items():
            try:
                self._asked[leader] = self._send(leader, places)
            except (ConnectionFailed, ApiError) as error:
                if isinstance(error, ApiError) and not error.retriable:
                    raise
                trouble = error
                self._later(places)
        if isinstance(trouble, ConnectionFailed) and not self._asked:
            raise trouble

    def _rotated(self) -> list[TopicPartition]:
        """A broker fills its response in the order of the request, so each partition comes first now and
        then.
        """
        places = list(self.positions)
        if not places:
            return []
        self._turn = (self._turn + 1) % len(places)
        return places[self._turn :] + places[: self._turn]

    def _later(self, places: list[TopicPartition]) -> None:
        self._cluster._brokers.forget()
        for place in places:
            self._not_before[place] = time.monotonic() + _RETRY_SECONDS

    def _send(self, leader: int, places: list[TopicPartition]) -> _Asked:
        brokers, settings = self._cluster._brokers, self._cluster.settings
        connection = brokers.broker(leader, FETCH)
        topics: dict[str, list[Message]] = {}
        names: dict[object, str] = {}
        limit = 32767
        for name, partition in places:
            info = brokers.topic(name)
            limit = min(limit, version_limit(info.id))
            names[info.id] = name
            topics.setdefault(name, []).append(
                Message(
                    partition=partition,
                    current_leader_epoch=info.leader_epochs[partition],
                    fetch_offset=self.positions[name, partition],
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    partition_max_bytes=settings.max_partition_fetch_bytes,
                )
            )
        ids = {name: topic_id for topic_id, name in names.items()}
        request = Message(
            cluster_id=None,
            replica_id=-1,
            max_wait_ms=self._max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=self._isolation,
            session_id=0,
            session_epoch=-1,
            topics=[
                Message(topic=name, topic_id=ids[name], partitions=partitions)
                for name, partitions in topics.items()
            ],
            forgotten_topics_data=[],
            rack_id="",
        )
        version = connection.version(ApiKey.FETCH, limit)
        ticket = connection.send(ApiKey.FETCH, version, encode_request(ApiKey.FETCH, version, request))
        return _Asked(connection, ticket, version, {place: self.positions[place] for place in places}, names)

    # Answers

    def poll(self, timeout: float) -> list[tuple[TopicPartition, FetchedBytes]]:
        """Responses for current positions, including empty ones; [] after `timeout` seconds."""
        self.request()
        if not self._asked:
            time.sleep(min(timeout, _RETRY_SECONDS))
            return []
        sockets = {asked.connection.fileno(): leader for leader, asked in self._asked.items()}
        ready, _, _ = select.select(list(sockets), [], [], timeout)
        found: list[tuple[TopicPartition, FetchedBytes]] = []
        for number in ready:
            asked = self._asked.pop(sockets[number])
            try:
                found += self._take(asked)
            except ConnectionFailed:
                self._later(list(asked.offsets))
        return found

    def _take(self, asked: _Asked) -> list[tuple[TopicPartition, FetchedBytes]]:
        connection, version = asked.connection, asked.version
        settings = self._cluster.settings
        frame = connection.receive(asked.ticket, settings.request_timeout_ms + self._max_wait_ms)
        try:
            start = response_start(ApiKey.FETCH, version, frame)
            answer = decode_response(ApiKey.FETCH, version, frame, start)
        except WireError as error:
            connection.close()
            raise ConnectionFailed(f"the broker at {connection.address}: {error}") from error
        if answer.error_code:
            raise ConnectionFailed(
                f"the broker at {connection.address} refused a fetch: "
                f"{error_for_code(answer.error_code).kafka_name}"
            )
        found = []
        for each in answer.responses:
            name = each.topic if version <= NAMES_AT_MOST else asked.names.get(each.topic_id, "")
            for one in each.partitions:
                place = (name, one.partition_index)
                if asked.offsets.get(place) != self.positions.get(place):
                    continue  # it was moved or removed in the meantime
                fetched = self._fetched(place, one)
                if fetched is not None:
                    found.append((place, fetched))
        return found

    def _fetched(self, place: TopicPartition, one: Message) -> FetchedBytes | None:
        error: ApiError | None = None
        if one.error_code:
            error = error_for_code(one.error_code)(f"{place[0]}-{place[1]}")
            if not isinstance(error, OffsetOutOfRange):
                if not error.retriable:
                    raise error
                self._later([place])
                return None
        aborted = tuple((each.producer_id, each.first_offset) for each in one.aborted_transactions or ())
        return FetchedBytes(
            error,
            one.high_watermark,
            one.last_stable_offset,
            one.log_start_offset,
            aborted,
            memoryview(one.records or b""),
        )
