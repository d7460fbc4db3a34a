"""The cluster's metadata on one broker: the image follows the shared metadata store.

Any broker may make self-contained changes (topics, settings, producer ids, its own registration): each is one
transaction that checks the versions it was planned with. Only the elected controller changes leaders and
in-sync replicas of existing partitions (`elected_controller.py`), except for a returning broker before it
registers.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar, overload

from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.controller.configs import plan_alter
from penstock.controller.controller import Controller
from penstock.controller.elections import PartitionChange, plan_return
from penstock.controller.requests import (
    AlterConfigsResult,
    AlterResource,
    CreatePartitionsResult,
    CreateTopicResult,
    DeleteTopicResult,
    PartitionsSpec,
    TopicRef,
    TopicSpec,
)
from penstock.controller.topics import plan_create, plan_create_partitions, plan_delete
from penstock.errors import ApiError, TopicAlreadyExists, UnknownTopicId, UnknownTopicOrPartition
from penstock.metadata import layout
from penstock.metadata.image import BrokerInfo, ClusterImage, PartitionImage
from penstock.metadata.image_reader import ImageReader
from penstock.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Op,
    Set,
    StoreError,
    Versioned,
)

CHUNK = 250
"""The number of operations in one transaction, well below ZooKeeper's message limit."""
# Topic nodes can be large, and a ZooKeeper message has at most 1 MiB.
_LARGEST_TOPICS = 512 * 1024
_BYTES_OF_A_TOPIC, _BYTES_OF_A_REPLICA = 200, 12

# Errors that may be outdated: retry after the changes of other brokers have been read.
_OF_THE_MOMENT = (TopicAlreadyExists, UnknownTopicOrPartition, UnknownTopicId)

log = logging.getLogger(__name__)

T = TypeVar("T")


class _Result(Protocol):
    @property
    def error(self) -> ApiError | None: ...


class FollowedStore(MetadataStore, Protocol):
    """A store that other brokers change too. `nodes` is its content, as far as this process has read it; of
    those in `unannounced`, watchers do not know yet."""

    nodes: dict[str, Versioned]
    unannounced: set[str]

    async def catch_up(self) -> None:
        """Waits until `nodes` has every change that was made before the call."""
        ...


class _Versions(Mapping[str, int]):
    """The node versions that the image is based on. BadVersion for a node that was read and is not in the
    image yet: otherwise a change that was planned with the old image would be stored with the newest
    version."""

    def __init__(self, store: FollowedStore, reader: ImageReader) -> None:
        self._nodes: Mapping[str, Versioned] = store.nodes
        self._unannounced = store.unannounced
        self._reader = reader

    def __getitem__(self, path: str) -> int:
        if path not in self:
            raise NoNode(path)  # deleted, but still in the image
        return self._nodes[path][1]

    def __contains__(self, path: object) -> bool:
        if isinstance(path, str) and (path in self._unannounced or self._reader.is_behind(path)):
            raise BadVersion(path)
        return path in self._nodes

    @overload
    def get(self, path: str, /) -> int | None: ...
    @overload
    def get(self, path: str, default: int | T, /) -> int | T: ...
    def get(self, path: str, default: object = None, /) -> object:
        return self._nodes[path][1] if path in self else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class ClusterController(Controller):
    def __init__(
        self,
        store: FollowedStore,
        broker_id: int,
        clock: Clock,
        config: BrokerConfig | None = None,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        super().__init__(store, broker_id, clock, config, new_id)
        self._followed = store
        self._reader = ImageReader()
        self._mirrored = _Versions(store, self._reader)
        self.broker_epoch = -1

    @property
    def _versions(self) -> Mapping[str, int]:
        return self._mirrored

    # following

    async def _load(self) -> ClusterImage:
        for path, value in (
            (layout.CLUSTER_ID, base64.urlsafe_b64encode(self._new_id().bytes).rstrip(b"=")),
            (layout.PRODUCER_IDS, layout.encode({"next": 0})),
            (layout.BROKER_EPOCH, b"{}"),
            (layout.CONTROLLER_EPOCH, layout.epoch_value(0)),
        ):
            if path not in self._followed.nodes:
                try:
                    await self._store.create(path, value)
                except NodeExists:
                    await self._followed.catch_up()  # another broker has created it first
        await self._store.watch("/", self._heard)
        self._heard(self._followed.nodes)
        await self._identify_topics()
        return self.image

    def _heard(self, paths: Iterable[str]) -> None:
        """Called when this or another broker has changed the store; the mirror already has the change."""
        self._show(self._reader.read(self._followed.nodes, paths))

    async def _reload(self) -> None:
        await self._followed.catch_up()

    async def _commit(self, ops: Iterable[Op], image: ClusterImage) -> None:
        """Stores the operations. The planned image is not used, because other changes may have arrived: the
        image is always read from the store."""
        batch = list(ops)
        if batch:
            await self._store.multi(batch)

    # requests of clients: they must not fail because of a change that this broker has not read yet

    async def _create_topics(
        self, specs: Sequence[TopicSpec], validate_only: bool
    ) -> list[CreateTopicResult]:
        await self._hear_before_refusing(plan_create(self.image, self.broker_config, specs, self._new_id)[0])
        return await super()._create_topics(specs, validate_only)

    async def _delete_topics(self, refs: Sequence[TopicRef]) -> list[DeleteTopicResult]:
        await self._hear_before_refusing(plan_delete(self.image, refs)[0])
        return await super()._delete_topics(refs)

    async def _create_partitions(
        self, specs: Sequence[PartitionsSpec], validate_only: bool
    ) -> list[CreatePartitionsResult]:
        await self._hear_before_refusing(plan_create_partitions(self.image, specs)[0])
        return await super()._create_partitions(specs, validate_only)

    async def _alter(
        self, resources: Sequence[AlterResource], validate_only: bool, *, incremental: bool
    ) -> list[AlterConfigsResult]:
        await self._hear_before_refusing(
            plan_alter(self.image, self.broker_config, resources, incremental=incremental)[0]
        )
        return await super()._alter(resources, validate_only, incremental=incremental)

    async def _hear_before_refusing(self, results: Iterable[_Result]) -> None:
        if any(isinstance(result.error, _OF_THE_MOMENT) for result in results):
            await self._followed.catch_up()

    # the registration of this broker

    async def return_to_cluster(self) -> int:
        """Called before registering: give up leadership of partitions of which another replica may have more
        records. Returns how many partitions changed."""
        return await self._change(self._return)

    async def _return(self) -> int:
        stale = layout.broker_path(self._broker_id)
        if stale in self._followed.nodes:
            # It belongs to a former session: while it exists, the controller may elect this broker.
            await self._store.delete(stale)
        changes = list(plan_return(self.image, self._broker_id))
        for start in range(0, len(changes), CHUNK):
            await self._store.multi(state_ops(changes[start : start + CHUNK]))
        return len(changes)

    async def _register_broker(self, host: str, port: int, rack: str | None) -> BrokerInfo:
        epoch = self._versions[layout.BROKER_EPOCH] + 1
        broker = BrokerInfo(self._broker_id, host, port, rack, epoch, self.listeners)
        path, value = layout.broker_path(broker.id), layout.broker_value(broker)
        leaving = layout.leaving_path(broker.id)
        ops: list[Op] = [Set(layout.BROKER_EPOCH, b"{}", epoch - 1)]
        if path in self._versions:
            # It belongs to a former session: it would be deleted with that session, and our registration with
            # it.
            ops.append(Delete(path))
        if leaving in self._versions:
            ops.append(Delete(leaving))
        ops.append(Create(path, value, ephemeral=True))
        await self._store.multi(ops)
        self.broker_epoch = epoch
        return broker

    # for the election of the controller

    async def catch_up(self) -> None:
        await self._followed.catch_up()

    async def replan(self, conflict: StoreError) -> None:
        """Waits until the image has the change that caused the conflict of a controller's transaction."""
        await self._followed.catch_up()
        if layout.is_id_path(conflict.path):
            await self._identify_topics()

    def version_of(self, path: str) -> int:
        return self._mirrored[path]

    def controller_epoch(self) -> int:
        """The epoch of the current controller node; NoNode if there is none."""
        node = self._followed.nodes.get(layout.CONTROLLER)
        if node is None:
            raise NoNode(layout.CONTROLLER)
        epoch: int = layout.decode(node[0])["epoch"]
        return epoch

    def still_registered(self, brokers: Collection[int]) -> list[Op]:
        """The checks that make a transaction fail if these brokers are no longer registered as in the image.

        Every registration changes the node of broker epochs. A restarted broker may have lost the end of its
        logs, so it must not join the ISR because of what its leader knew before the restart (KIP-903).
        """
        if not brokers:
            return []
        return [
            Check(layout.BROKER_EPOCH, self._versions[layout.BROKER_EPOCH]),
            *(Check(layout.broker_path(broker), ANY_VERSION) for broker in sorted(brokers)),
        ]

    def change_ops(self, changes: Sequence[PartitionChange]) -> list[Op]:
        """The operations for the partition states, and for topic nodes if replicas change."""
        ops = state_ops(changes)
        moved: dict[str, dict[int, PartitionImage]] = {}
        for change in changes:
            if _shape(change.old) != _shape(change.new):
                moved.setdefault(change.topic, {})[change.new.index] = change.new
        for name, partitions in moved.items():
            topic = self.image.topics.get(name)
            if topic is None:
                raise NoNode(layout.topic_path(name))
            new = replace(topic, partitions=tuple(partitions.get(p.index, p) for p in topic.partitions))
            ops.append(layout.put_topic(new, self._versions))
        return ops

    def transactions_of(self, changes: Iterable[PartitionChange]) -> Iterator[list[PartitionChange]]:
        """Divides the changes into parts that fit into one transaction."""
        part: list[PartitionChange] = []
        topics: set[str] = set()
        size = 0
        for change in changes:
            added = 0
            if _shape(change.old) != _shape(change.new) and change.topic not in topics:
                topic = self.image.topics.get(change.topic)
                replicas = 0 if topic is None else sum(len(p.replicas) + 1 for p in topic.partitions)
                added = _BYTES_OF_A_TOPIC + replicas * _BYTES_OF_A_REPLICA
            if part and (len(part) + len(topics) >= CHUNK or size + added > _LARGEST_TOPICS):
                yield part
                part, topics, size = [], set(), 0
            part.append(change)
            if added:
                topics.add(change.topic)
                size += added
        if part:
            yield part


def _shape(partition: PartitionImage) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The part of a partition that is stored in the topic node."""
    return partition.replicas, partition.adding, partition.removing


def state_ops(changes: Iterable[PartitionChange]) -> list[Op]:
    """The operations for the new states, with checks that the topics were not recreated."""
    changes = list(changes)
    ops: list[Op] = [layout.same_topic(topic) for topic in dict.fromkeys(one.topic_id for one in changes)]
    ops += (layout.put_state(one.topic, one.old, one.new) for one in changes)
    return ops
