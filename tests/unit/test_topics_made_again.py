"""A topic that was deleted and made again under its name is another topic, also while that is being done."""

from __future__ import annotations

import asyncio
import errno
import struct
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.api import produce as produce_api
from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.controller import TopicSpec
from penstock.controller.requests import TopicRef
from penstock.fs import FaultyFs
from penstock.metadata.image import PartitionImage
from penstock.replication.partition import Partition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import decode_response
from penstock.wire.primitives import INT32, encode_uvarint
from tests.unit.test_transactions_broker import running

VERSION = 13


class Gate:
    """Holds the making of one topic's logs, in the thread that makes them."""

    def __init__(self, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        create = broker.logs.create

        def gated(name: str, *args: Any) -> Any:
            if name == topic:
                self.reached.set()
                assert self.open.wait(30)
            return create(name, *args)

        monkeypatch.setattr(broker.logs, "create", gated)

    async def is_reached(self) -> None:
        assert await asyncio.get_running_loop().run_in_executor(None, self.reached.wait, 30)


def produce(broker: Broker, topic_id: UUID) -> int:
    """The error code of a record for this topic, by its id."""
    data = build_batch([Record(0, 1, None, b"of the topic before")])
    body = (
        b"\0"
        + struct.pack(">hi", 1, 5000)
        + encode_uvarint(2)
        + topic_id.bytes
        + encode_uvarint(2)
        + INT32.pack(0)
        + encode_uvarint(len(data) + 1)
        + data
        + b"\0\0\0"
    )
    context = RequestContext(ApiKey.PRODUCE, VERSION, 1, "c", "p:1")
    answer = produce_api.handle(broker, context, bytearray(body), 0, len(body))
    assert isinstance(answer, bytes)
    decoded = decode_response(ApiKey.PRODUCE, VERSION, answer, 0)
    code: int = decoded.responses[0].partition_responses[0].error_code
    return code


@pytest.mark.promise(
    "protocol",
    "A record for a deleted topic is not written to a new topic of the same name, and no log is created "
    "for a topic that was deleted in the meantime",
)
def test_a_record_for_a_deleted_topic_is_not_written_to_the_one_that_has_its_name_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            controller, deleted = broker.controller, broker.image.topics["t"].id
            first, last = Gate(broker, "a", monkeypatch), Gate(broker, "z", monkeypatch)
            await controller.create_topics([TopicSpec("a", 1, 1)])
            await first.is_reached()
            # What comes while an image is applied is applied at once afterwards: the topic is another then.
            await controller.delete_topics([TopicRef("t")])
            await controller.create_topics([TopicSpec("t", 1, 1), TopicSpec("z", 1, 1)])
            first.open.set()
            await last.is_reached()
            try:
                code = produce(broker, deleted)
            finally:
                last.open.set()
            await broker.caught_up()
            assert broker.image.topics["t"].id != deleted
            assert broker.partitions["t", 0].log.log_end_offset == 0
            assert code != 0

    asyncio.run(main())


@pytest.mark.promise(
    "cluster", "An image that could not be applied is applied later, and no older one after a part of it"
)
def test_a_log_is_not_made_by_an_image_that_is_older_than_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        fs = FaultyFs()
        async with running(tmp_path, fs) as broker:
            fs.fail("makedirs", "/full-", errno.ENOSPC, times=1)
            await broker.controller.create_topics([TopicSpec("full", 2, 1)])
            await broker.caught_up()
            assert len(broker.topics.unavailable) == 1
            topic = broker.image.topics["full"]
            led = tuple(replace(one, leader_epoch=9, partition_epoch=9) for one in topic.partitions)
            newer = broker.image.with_topics([replace(topic, partitions=led)])
            with monkeypatch.context() as patched:
                patched.setattr(broker.coordinators, "on_image", lambda image: 1 / 0)
                fs.fail("makedirs", "/full-", errno.ENOSPC, times=1)
                broker.topics.changed(broker.image, newer)
                with pytest.raises(ZeroDivisionError):
                    await broker.topics.caught_up()
            broker.topics.image = broker.image.with_topics([topic])  # as where it fails before the last step
            epochs: list[int] = []
            update = Partition.update

            def noted(one: Partition, image: PartitionImage) -> None:
                epochs.append(image.leader_epoch)
                update(one, image)

            monkeypatch.setattr(Partition, "update", noted)
            await broker.topics.retry_unavailable()
            assert set(epochs) <= {9}

    asyncio.run(main())


@pytest.mark.promise(
    "protocol",
    "A record for a deleted topic is not written to a new topic of the same name, and no log is created "
    "for a topic that was deleted in the meantime",
)
def test_a_log_that_could_be_made_at_last_is_not_there_when_its_topic_was_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        fs = FaultyFs()
        async with running(tmp_path, fs) as broker:
            fs.fail("makedirs", "/full-0", errno.ENOSPC)
            await broker.controller.create_topics([TopicSpec("full", 1, 1)])
            await broker.caught_up()
            assert ("full", 0) in broker.topics.unavailable
            gate = Gate(broker, "full", monkeypatch)
            making = asyncio.ensure_future(broker.topics.retry_unavailable())
            await gate.is_reached()
            await broker.controller.delete_topics([TopicRef("full")])
            await asyncio.sleep(0)
            gate.open.set()
            await making
            await broker.caught_up()
            assert ("full", 0) not in broker.partitions
            await broker.controller.create_topics([TopicSpec("full", 1, 1)])
            await broker.caught_up()
            assert broker.partitions["full", 0].log.topic_id == broker.image.topics["full"].id

    asyncio.run(main())
