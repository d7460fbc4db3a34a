"""DescribeLogDirs (key 35), versions 1-5.

2  flexible   3  error code at the top   4  size and free space of the volume (KIP-827)   5  cordoned

The size of a replica is the size of its segments. A directory that has failed gets KAFKA_STORAGE_ERROR.
Left out: future replicas (AlterReplicaLogDirs is not served) and cordoned directories.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import KafkaStorageError
from penstock.log.partition_log import PartitionLog
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import CanUseThreads, HasLogs

    class DescribeLogDirsParts(CanUseThreads, HasLogs, Protocol): ...


async def handle(broker: DescribeLogDirsParts, context: RequestContext, request: Message) -> Message:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    logs: defaultdict[str, list[PartitionLog]] = defaultdict(list)
    for key, log in list(broker.logs.logs.items()):
        if wanted is None or key in wanted:
            logs[os.path.dirname(log.directory)].append(log)
    results = []
    for directory in broker.logs.directories:
        try:
            volume = await broker.in_thread(os.statvfs, directory)
        except OSError:
            results.append(_result(KafkaStorageError.code, directory, [], -1, -1))
            continue
        total, usable = volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
        results.append(_result(0, directory, _topics(logs[directory]), total, usable))
    return Message(throttle_time_ms=0, error_code=0, results=results)


def _topics(logs: list[PartitionLog]) -> list[Message]:
    topics: defaultdict[str, list[Message]] = defaultdict(list)
    for log in sorted(logs, key=lambda log: (log.topic, log.partition)):
        topics[log.topic].append(
            Message(
                partition_index=log.partition,
                partition_size=log.size,
                offset_lag=max(log.high_watermark - log.log_end_offset, 0),
                is_future_key=False,
            )
        )
    return [Message(name=name, partitions=partitions) for name, partitions in topics.items()]


def _result(code: int, directory: str, topics: list[Message], total: int, usable: int) -> Message:
    return Message(
        error_code=code,
        log_dir=directory,
        topics=topics,
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, error_code=code, results=[])


register(ApiKey.DESCRIBE_LOG_DIRS, range(1, 6), handle, error_response)
