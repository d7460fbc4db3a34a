"""A member of a share group that speaks the protocol itself, one request at a time."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import HEADER_SIZE, Record, iter_records, read_header
from penstock.wire.codec import Message
from tests.clients.raw import topic_id

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def alter_group(wire: WireClient, group: str, **settings: str) -> None:
    """`share_auto_offset_reset="earliest"`: underscores are dots."""
    configs = [
        Message(name=name.replace("_", "."), value=value, config_operation=0)
        for name, value in settings.items()
    ]
    resource = Message(resource_type=32, resource_name=group, configs=configs)
    answer = wire.request(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, Message(resources=[resource], validate_only=False)
    )
    assert answer.responses[0].error_code == 0, answer


class ShareMember:
    """Joins at once. `fetch` gives the records that were acquired: offset, value and delivery count."""

    def __init__(self, broker: PenstockBroker | int, group: str, topic: str, *, version: int = 2) -> None:
        """`broker` may be a port."""
        port = broker if isinstance(broker, int) else broker.port
        self.wire = WireClient(port, client_id="member", timeout=60)
        self.group = group
        # As Kafka writes a UUID; its brokers take no other form.
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.topic_id = topic_id(self.wire, topic)
        self.version = version
        self.epoch = 0
        find = Message(key_type=0, coordinator_keys=[group])
        assert self.wire.request(ApiKey.FIND_COORDINATOR, 6, find).coordinators[0].error_code == 0
        self.joined = self.heartbeat(0, [topic])
        deadline = time.monotonic() + 30
        while (
            self.joined.error_code in (14, 15, 16) and time.monotonic() < deadline
        ):  # loading, as Kafka does
            self.joined = self.heartbeat(0, [topic])
        assert self.joined.error_code == 0, self.joined

    def __enter__(self) -> ShareMember:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wire.close()

    def heartbeat(self, epoch: int, topics: list[str] | None = None) -> Message:
        request = Message(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=topics,
        )
        return self.wire.request(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)

    def request(self, acknowledged: Iterable[tuple[int, int, list[int]]], **more: Any) -> Message:
        """Of ShareFetch."""
        waiting = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        }
        return self.acknowledgements(acknowledged, **{**waiting, "forgotten_topics_data": [], **more})

    def acknowledgements(self, acknowledged: Iterable[tuple[int, int, list[int]]], **more: Any) -> Message:
        """Of ShareAcknowledge."""
        partition = Message(
            partition_index=more.pop("partition", 0),
            acknowledgement_batches=[
                Message(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in acknowledged
            ],
        )
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "topics": [Message(topic_id=self.topic_id, partitions=[partition])],
        }
        return Message(**{**fields, **more})

    def share_fetch(self, *acknowledged: tuple[int, int, list[int]], **more: Any) -> Message:
        answer = self.wire.request(ApiKey.SHARE_FETCH, self.version, self.request(acknowledged, **more))
        if answer.error_code == 0 and "share_session_epoch" not in more:
            self.epoch += 1
        return answer

    def fetch(self, *acknowledged: tuple[int, int, list[int]], **more: Any) -> list[tuple[int, str, int]]:
        answer = self.share_fetch(*acknowledged, **more)
        assert answer.error_code == 0, answer
        return received(answer)

    def begin_fetch(self, max_wait_ms: int = 30_000) -> int:
        """Sends the request of a fetch that waits; `end_fetch` has its answer."""
        from penstock.wire.codec import encode_request

        body = encode_request(ApiKey.SHARE_FETCH, self.version, self.request([], max_wait_ms=max_wait_ms))
        self.epoch += 1
        return self.wire.send(ApiKey.SHARE_FETCH, self.version, body)

    def end_fetch(self, correlation_id: int) -> list[tuple[int, str, int]]:
        answer = self.wire.receive(ApiKey.SHARE_FETCH, self.version, correlation_id)
        assert answer.error_code == 0, answer
        return received(answer)

    def acknowledge(self, *acknowledged: tuple[int, int, list[int]], **more: Any) -> Message:
        request = self.acknowledgements(acknowledged, **more)
        answer = self.wire.request(ApiKey.SHARE_ACKNOWLEDGE, self.version, request)
        if answer.error_code == 0 and "share_session_epoch" not in more:
            self.epoch += 1
        return answer

    def close_session(self) -> Message:
        return self.share_fetch(share_session_epoch=-1)


def received(answer: Message) -> list[tuple[int, str, int]]:
    found = []
    for topic in answer.responses:
        for partition in topic.partitions:
            assert partition.error_code == partition.acknowledge_error_code == 0, partition
            counts = {
                offset: batch.delivery_count
                for batch in partition.acquired_records
                for offset in range(batch.first_offset, batch.last_offset + 1)
            }
            for record in records_in(partition.records or b""):
                if record.offset in counts:
                    found.append((record.offset, (record.value or b"").decode(), counts[record.offset]))
    return found


def records_in(data: bytes) -> Iterable[Record]:
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if not header.is_control:
            yield from iter_records(data, position)
        position += header.size


def offsets(wire: WireClient, group: str) -> dict[int, tuple[int, int]]:
    """Start offset and lag by partition, of the only topic."""
    request = Message(groups=[Message(group_id=group, topics=None)])
    [answer] = wire.request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, request).groups
    assert answer.error_code == 0, answer
    return {one.partition_index: (one.start_offset, one.lag) for one in answer.topics[0].partitions}
