"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: their responses and records."""

from __future__ import annotations

from uuid import UUID

from penstock.coordinator import StateRecord
from penstock.errors import (
    GroupSubscribedToTopic,
    OffsetMetadataTooLarge,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from penstock.groups.group import Group, TopicsView
from penstock.groups.lengths import fits
from penstock.groups.offsets import records as records_offsets
from penstock.groups.offsets.committed import OffsetStore
from penstock.groups.settings import GroupSettings
from penstock.metadata.image import TopicImage
from penstock.wire.message import Message
from penstock.wire.primitives import INT32, ZERO_UUID

COMMIT_TOPIC_IDS_SINCE = 10
FETCH_TOPIC_IDS_SINCE = 10


def named_topic(item: Message, topics: TopicsView, by_id: bool) -> tuple[TopicImage | None, int]:
    """The topic of an item with a name or, in the newest versions, an id; and the error if there is none."""
    if by_id:
        return topics.topics_by_id.get(item.topic_id), UnknownTopicId.code
    return topics.topics.get(item.name), UnknownTopicOrPartition.code


def commit(
    request: Message,
    topics: TopicsView,
    settings: GroupSettings,
    now_ms: int,
    topic_ids: dict[str, UUID],
    *,
    by_id: bool = False,
    expire_timestamp: int = -1,
) -> tuple[list[StateRecord], Message]:
    """For OffsetCommit and TxnOffsetCommit: the result of each partition, and the records of the valid ones.

    `topic_ids` records the topic id of the offsets under a name.
    """
    records: list[StateRecord] = []
    answers = []
    prefix = records_offsets.key_prefix(request.group_id)
    longest = settings.offset_metadata_max_bytes
    for item in request.topics:
        topic, unknown = named_topic(item, topics, by_id)
        count = 0 if topic is None else len(topic.partitions)
        start = b"" if topic is None else prefix + records_offsets.topic_tail(topic.name)
        partitions = []
        if topic is not None:
            topic_ids.setdefault(topic.name, topic.id)
        for partition in item.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            code = 0
            if not 0 <= index < count:
                code = unknown if topic is None else UnknownTopicOrPartition.code
            elif len(metadata) > longest or not fits(metadata):
                code = OffsetMetadataTooLarge.code
            else:
                value = records_offsets.encode_value(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    metadata,
                    now_ms,
                    expire_timestamp,
                )
                records.append(StateRecord(start + INT32.pack(index), value))
            partitions.append(Message(partition_index=index, error_code=code))
        answers.append(_topic_answer(item, topic, by_id, partitions))
    return records, Message(throttle_time_ms=0, topics=answers)


def _topic_answer(item: Message, topic: TopicImage | None, by_id: bool, partitions: list[Message]) -> Message:
    topic_id = item.topic_id if by_id else ZERO_UUID
    name = (topic.name if topic is not None else "") if by_id else item.name
    return Message(name=name, topic_id=topic_id, partitions=partitions)


def commit_error(request: Message, code: int) -> Message:
    """The same error for every partition."""
    topics = [
        Message(
            name=getattr(item, "name", ""),
            topic_id=getattr(item, "topic_id", ZERO_UUID),
            partitions=[
                Message(partition_index=partition.partition_index, error_code=code)
                for partition in item.partitions
            ],
        )
        for item in request.topics
    ]
    return Message(throttle_time_ms=0, topics=topics)


def fetch(
    group_request: Message,
    exists: bool,
    store: OffsetStore,
    topics: TopicsView,
    *,
    by_id: bool,
    require_stable: bool,
) -> Message:
    """One group of an OffsetFetch; without a list of topics, all that the group has."""
    group_id = group_request.group_id
    if group_request.topics is None:
        answers = _fetch_all(group_id, store, topics, by_id, require_stable) if exists else []
    else:
        answers = _fetch_named(group_request, exists, store, topics, by_id, require_stable)
    return Message(group_id=group_id, error_code=0, topics=answers)


def _fetch_named(
    group_request: Message, exists: bool, store: OffsetStore, topics: TopicsView, by_id: bool, stable: bool
) -> list[Message]:
    group_id = group_request.group_id
    offsets = store.by_group.get(group_id, {}) if exists else {}
    unstable = stable and store.is_open(group_id)
    answers = []
    for item in group_request.topics:
        topic_id = item.topic_id if by_id else ZERO_UUID
        if by_id:
            topic = topics.topics_by_id.get(topic_id)
            if topic is None:
                failed = [fetched(index, code=UnknownTopicId.code) for index in item.partition_indexes]
                answers.append(Message(name="", topic_id=topic_id, partitions=failed))
                continue
            name = topic.name
        else:
            name = item.name
            if not fits(name):  # longer than any topic's that has offsets
                none = [fetched(index) for index in item.partition_indexes]
                answers.append(Message(name=name, topic_id=topic_id, partitions=none))
                continue
        start = records_offsets.topic_tail(name)
        partitions = []
        for index in item.partition_indexes:
            tail = start + INT32.pack(index)
            pending = unstable and store.is_pending(group_id, tail)
            partitions.append(_fetched(index, offsets.get(tail), pending))
        answers.append(Message(name=name, topic_id=topic_id, partitions=partitions))
    return answers


def _fetch_all(
    group_id: str, store: OffsetStore, topics: TopicsView, by_id: bool, stable: bool
) -> list[Message]:
    unstable = stable and store.is_open(group_id)
    found: dict[str, list[Message]] = {}
    for tail, value in store.by_group.get(group_id, {}).items():
        name, index = records_offsets.read_tail(tail)
        pending = unstable and store.is_pending(group_id, tail)
        found.setdefault(name, []).append(_fetched(index, value, pending))
    answers = []
    for name, partitions in found.items():
        topic = topics.topics.get(name)
        if by_id and topic is None:
            continue  # it was just deleted, and has no id
        answers.append(
            Message(name=name, topic_id=topic.id if topic is not None else ZERO_UUID, partitions=partitions)
        )
    return answers


def _fetched(index: int, value: bytes | None, pending: bool) -> Message:
    if pending:
        return fetched(index, code=UnstableOffsetCommit.code)
    if value is None:
        return fetched(index)
    offset, epoch, metadata, _, _ = records_offsets.decode_value(value)
    return Message(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        metadata=metadata,
        error_code=0,
    )


def fetched(index: int, *, code: int = 0) -> Message:
    """A partition without an offset, or with an error."""
    return Message(
        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
    )


def fetch_error(group_id: str, code: int) -> Message:
    return Message(group_id=group_id, error_code=code, topics=[])


def delete(
    request: Message, group: Group, store: OffsetStore, topics: TopicsView
) -> tuple[list[StateRecord], Message]:
    """OffsetDelete: offsets of topics to which the group subscribes are in use, and are kept."""
    group_id = request.group_id
    committed = store.by_group.get(group_id, {})
    gone: list[bytes] = []
    answers = []
    for item in request.topics:
        topic = topics.topics.get(item.name)
        count = 0 if topic is None else len(topic.partitions)
        subscribed = group.subscribes_to(item.name)
        partitions = []
        for partition in item.partitions:
            index, code = partition.partition_index, 0
            if not 0 <= index < count:
                code = UnknownTopicOrPartition.code
            elif subscribed:
                code = GroupSubscribedToTopic.code
            else:
                tail = records_offsets.key_tail(item.name, index)
                if tail in committed or store.is_pending(group_id, tail):
                    gone.append(tail)
            partitions.append(Message(partition_index=index, error_code=code))
        answers.append(Message(name=item.name, partitions=partitions))
    return store.tombstones(group_id, gone), Message(throttle_time_ms=0, error_code=0, topics=answers)


def expired(group: Group, store: OffsetStore, retention_ms: int, now_ms: int) -> tuple[list[bytes], bool]:
    """The tails of a group's expired offsets, and whether the group is empty without them."""
    offsets = store.by_group.get(group.group_id)
    is_open = store.is_open(group.group_id)
    if offsets is None:
        return [], not is_open
    gone = []
    topics_in_use: dict[bytes, bool] = {}
    for tail, value in offsets.items():
        topic = tail[:-4]
        in_use = topics_in_use.get(topic)
        if in_use is None:
            in_use = topics_in_use[topic] = group.subscribes_to(str(topic[2:], "utf-8"))
        if not in_use and _is_expired(group, value, retention_ms, now_ms):
            if not is_open or not store.is_pending(group.group_id, tail):
                gone.append(tail)
    return gone, len(gone) == len(offsets) and not is_open


def _is_expired(group: Group, value: bytes, retention_ms: int, now_ms: int) -> bool:
    _, _, _, committed_at, expires_at = records_offsets.decode_value(value)
    start = group.retention_start(committed_at)
    if start is None:
        return False
    if expires_at != -1:
        return now_ms >= expires_at
    return now_ms - start >= retention_ms
