"""Changes the cluster's metadata: plans a change (in pure modules), stores it, and publishes the new image.

Changes are made one after the other. Each is one transaction of the store. When it is durable the new image
replaces the old one and the subscribers are called, before the caller gets its result. If the store was
changed by others meanwhile, the image is read again and the change is planned again.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.controller import tokens
from penstock.controller.access import (
    QuotaChange,
    plan_alter_quotas,
    plan_create_acls,
    plan_delete_acls,
)
from penstock.controller.configs import broker_config_in_force, plan_alter
from penstock.controller.credentials import CredentialChange, plan_credentials
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
from penstock.errors import ApiError, ConfigError, KafkaStorageError, NotController, TopicDeletionDisabled
from penstock.metadata import layout
from penstock.metadata.acls import Acl, AclFilter
from penstock.metadata.image import BrokerInfo, ClusterImage, TopicImage
from penstock.metadata.image_reader import read_image
from penstock.metadata.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Op,
    Set,
    StoreUnavailable,
)
from penstock.metadata.tokens import DelegationToken, token_path, token_value

T = TypeVar("T")
Subscriber = Callable[[ClusterImage, ClusterImage], None]

PRODUCER_ID_BLOCK = 1000
# Each retry is caused by a change of another process, so this many in a row mean a second controller.
_MAX_CONFLICTS = 10

log = logging.getLogger(__name__)


class Controller:
    """Call `load()` first. `image` is the current image, `broker_config` are the current settings of this
    broker."""

    image: ClusterImage
    broker_config: BrokerConfig

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        clock: Clock,
        config: BrokerConfig | None = None,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._new_id = new_id
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()
        self._subscribers: list[Subscriber] = []
        self._written: dict[str, int] = {}
        self._refused = ""  # the error because of which altered settings are not applied here
        self.listeners: tuple[tuple[str, str, int], ...] = ()  # name, host and port; set before registering
        self.broker_config = config or BrokerConfig.parse({"node.id": str(broker_id)})
        self.image = ClusterImage(cluster_id="", controller_id=broker_id)

    def subscribe(self, callback: Subscriber) -> None:
        """callback(old, new) runs on the event loop after every change; it must neither block nor raise."""
        self._subscribers.append(callback)

    async def load(self) -> ClusterImage:
        """Reads the metadata; generates a cluster id if there is none."""
        return await self._change(self._load)

    async def register_broker(self, host: str, port: int, rack: str | None = None) -> BrokerInfo:
        """Registers this broker with its address, until the session of the store ends."""
        return await self._change(lambda: self._register_broker(host, port, rack))

    async def create_topics(
        self, specs: Sequence[TopicSpec], validate_only: bool = False
    ) -> list[CreateTopicResult]:
        return await self._change(lambda: self._create_topics(specs, validate_only))

    async def delete_topics(self, refs: Sequence[TopicRef]) -> list[DeleteTopicResult]:
        """Deletes topics; TopicDeletionDisabled for all of them if delete.topic.enable is false."""
        if not self.broker_config.delete_topic_enable:
            raise TopicDeletionDisabled("Topic deletion is disabled: delete.topic.enable is false.")
        return await self._change(lambda: self._delete_topics(refs))

    async def create_partitions(
        self, specs: Sequence[PartitionsSpec], validate_only: bool = False
    ) -> list[CreatePartitionsResult]:
        return await self._change(lambda: self._create_partitions(specs, validate_only))

    async def alter_configs(
        self, resources: Sequence[AlterResource], validate_only: bool = False
    ) -> list[AlterConfigsResult]:
        """AlterConfigs: the given settings replace all settings of the resource."""
        return await self._change(lambda: self._alter(resources, validate_only, incremental=False))

    async def incremental_alter_configs(
        self, resources: Sequence[AlterResource], validate_only: bool = False
    ) -> list[AlterConfigsResult]:
        return await self._change(lambda: self._alter(resources, validate_only, incremental=True))

    async def create_acls(self, acls: Sequence[Acl]) -> list[ApiError | None]:
        return await self._change(lambda: self._create_acls(acls))

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[dict[str, Acl] | ApiError]:
        """Deletes ACLs. For each filter: the deleted ACLs by the names of their nodes, or the error."""
        return await self._change(lambda: self._delete_acls(filters))

    async def alter_client_quotas(
        self, changes: Sequence[QuotaChange], validate_only: bool = False
    ) -> list[ApiError | None]:
        return await self._change(lambda: self._alter_client_quotas(changes, validate_only))

    async def alter_scram_credentials(
        self, changes: Sequence[CredentialChange]
    ) -> dict[str, ApiError | None]:
        """Alters SCRAM credentials; returns the result for each user."""
        return await self._change(lambda: self._alter_scram_credentials(changes))

    async def create_token(self, token: DelegationToken) -> None:
        await self._change(lambda: self._put_token(token.id, token))

    async def alter_token(self, token_id: str | None, change: tokens.Change) -> DelegationToken | None:
        """Applies a change to a token and returns the new token; DelegationTokenNotFound if it does not
        exist."""
        return await self._change(lambda: self._alter_token(token_id, change))

    # Reads of the store itself. An image may be behind: a topic that it lacks was not necessarily deleted.
    # StoreUnavailable if the store cannot be read.

    async def topic_ids(self, names: Collection[str]) -> dict[str, uuid.UUID]:
        """The ids of those topics that exist."""
        paths = {layout.topic_path(name): name for name in names}
        found = await self._store.read(paths)
        return {paths[path]: layout.topic_id(value) for path, (value, _) in found.items()}

    async def all_topic_ids(self) -> set[uuid.UUID]:
        return {
            layout.topic_id(value)
            for path, (value, _) in (await self._store.list(layout.TOPICS)).items()
            if layout.is_topic_path(path)
        }

    async def missing_partitions(self, keys: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """The given partitions that do not exist."""
        paths = {layout.state_path(*key): key for key in keys}
        found = await self._store.read(paths)
        return {key for path, key in paths.items() if path not in found}

    async def salt_key(self) -> bytes:
        """The secret of the cluster from which the SCRAM salts of unknown users are derived."""
        return await self._change(self._salt_key)

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """Allocates a block of producer ids that are never given out again: (first, count)."""
        return await self._change(self._allocate_producer_ids)

    async def bump_leader_epochs(self) -> int:
        """Raises the leader epoch of every partition led by this broker, in one transaction; returns how
        many.

        After an unclean shutdown a log may have lost its end: with the old leader epoch, the same offsets
        would be assigned to other records, and readers could not tell them apart.
        """
        return await self._change(self._bump_leader_epochs)

    async def close(self) -> None:
        """Waits for the running change, and closes the store."""
        while self._running:
            await asyncio.wait(set(self._running))
        await self._store.close()

    @property
    def _versions(self) -> Mapping[str, int]:
        """The node versions that the image is based on, by path."""
        return self._written

    # How every change runs

    async def _change(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        # In a separate task: if the caller is cancelled (its client has disconnected), a change that may
        # already be stored must still reach the image.
        task = asyncio.get_running_loop().create_task(self._one_at_a_time(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _one_at_a_time(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with self._lock:
            try:
                for _ in range(_MAX_CONFLICTS):
                    try:
                        return await work()
                    except (BadVersion, NodeExists, NoNode) as conflict:
                        await self._reload()
                        if layout.is_id_path(conflict.path):
                            await self._identify_topics()
            except StoreUnavailable as error:
                raise KafkaStorageError(f"The metadata store cannot be used: {error}") from error
            raise NotController("Another controller keeps changing the metadata store")

    async def _commit(self, ops: Iterable[Op], image: ClusterImage) -> None:
        batch = list(ops)
        if batch:
            await self._store.multi(batch)
            for op in batch:
                match op:
                    case Create(path):
                        self._written[path] = 0
                    case Set(path, _, version):
                        self._written[path] = version + 1
                    case Delete(path):
                        self._written.pop(path, None)
                    case Check():
                        pass
            self._show(image)

    def _show(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        try:
            self.broker_config = broker_config_in_force(image, self.broker_config)
            self._refused = ""
        except ConfigError as error:
            # The altered settings do not fit those that this broker was started with. It keeps its settings,
            # and continues to apply all other changes.
            if str(error) != self._refused:
                log.error("could not apply the altered settings on this broker: %s", error)
            self._refused = str(error)
        for callback in list(self._subscribers):
            callback(old, image)

    # The changes, each with the lock held

    async def _load(self) -> ClusterImage:
        if await self._store.get(layout.CLUSTER_ID) is None:
            # 22 characters of URL-safe base64, as Kafka's cluster ids.
            cluster_id = base64.urlsafe_b64encode(self._new_id().bytes).rstrip(b"=")
            await self._store.multi(
                [
                    Create(layout.CLUSTER_ID, cluster_id),
                    Create(layout.PRODUCER_IDS, layout.encode({"next": 0})),
                    Create(layout.BROKER_EPOCH, b"{}"),
                ]
            )
        await self._reload()
        if await self._identify_topics():
            await self._reload()
        return self.image

    async def _identify_topics(self) -> int:
        """Creates the topic id nodes of topics from older versions of Penstock. Returns how many."""
        topics = {layout.id_path(topic.id): topic.name for topic in self.image.topics.values()}
        created = 0
        for path in topics.keys() - (await self._store.read(topics)).keys():
            named = layout.topic_path(topics[path])
            try:
                await self._store.multi([Check(named, self._versions[named]), Create(path, b"")])
                created += 1
            except (BadVersion, NodeExists, NoNode):
                pass  # another broker has created it, or the topic was deleted
        return created

    async def _reload(self) -> None:
        nodes = await self._store.list("/")
        self._written = {path: version for path, (_, version) in nodes.items()}
        image = read_image(nodes, self._broker_id)
        self._show(replace(image, version=self.image.version + 1))

    async def _register_broker(self, host: str, port: int, rack: str | None) -> BrokerInfo:
        epoch = self._versions[layout.BROKER_EPOCH] + 1
        broker = BrokerInfo(self._broker_id, host, port, rack, epoch, self.listeners)
        path, value = layout.broker_path(broker.id), layout.broker_value(broker)
        known = self._versions.get(path)
        await self._commit(
            [
                Set(layout.BROKER_EPOCH, b"{}", epoch - 1),
                Create(path, value, ephemeral=True) if known is None else Set(path, value, known),
            ],
            self.image.with_broker(broker),
        )
        return broker

    async def _alter_scram_credentials(
        self, changes: Sequence[CredentialChange]
    ) -> dict[str, ApiError | None]:
        results, planned = plan_credentials(self.image.credentials, changes)
        ops = layout.put_credentials(planned, self._versions)
        await self._commit(ops, self.image.with_credentials(planned))
        return results

    async def _alter_token(self, token_id: str | None, change: tokens.Change) -> DelegationToken | None:
        token = tokens.found(self.image.tokens, token_id)
        return await self._put_token(token.id, change(token))

    async def _put_token(self, token_id: str, token: DelegationToken | None) -> DelegationToken | None:
        path = token_path(token_id)
        if token is None:
            op: Op = Delete(path, self._versions[path])
        elif path in self._versions:
            op = Set(path, token_value(token), self._versions[path])
        else:
            op = Create(path, token_value(token))
        await self._commit([op], self.image.with_token(token_id, token))
        return token

    async def _salt_key(self) -> bytes:
        known = await self._store.get(layout.SALT_KEY)
        if known is None:
            await self._store.create(layout.SALT_KEY, secrets.token_bytes(32))
            known = await self._store.get(layout.SALT_KEY)
            assert known is not None
        return known[0]

    async def _create_topics(
        self, specs: Sequence[TopicSpec], validate_only: bool
    ) -> list[CreateTopicResult]:
        results, created = plan_create(self.image, self.broker_config, specs, self._new_id)
        if not validate_only:
            ops = (op for topic in created for op in layout.create_topic(topic, self._versions))
            await self._commit(ops, self.image.with_topics(created))
        return results

    async def _delete_topics(self, refs: Sequence[TopicRef]) -> list[DeleteTopicResult]:
        results, deleted = plan_delete(self.image, refs)
        ops = (op for topic in deleted for op in layout.delete_topic(topic, self._versions))
        await self._commit(ops, self.image.without_topics(deleted))
        return results

    async def _create_partitions(
        self, specs: Sequence[PartitionsSpec], validate_only: bool
    ) -> list[CreatePartitionsResult]:
        results, grown = plan_create_partitions(self.image, specs)
        if not validate_only:
            ops = (
                op
                for topic in grown
                for op in layout.add_partitions(self.image.topics[topic.name], topic, self._versions)
            )
            await self._commit(ops, self.image.with_topics(grown))
        return results

    async def _alter(
        self, resources: Sequence[AlterResource], validate_only: bool, *, incremental: bool
    ) -> list[AlterConfigsResult]:
        results, plan = plan_alter(self.image, self.broker_config, resources, incremental=incremental)
        if not validate_only:
            ops: list[Op] = []
            for name, configs in plan.topics.items():
                ops += layout.put_topic_configs(self.image.topics[name], configs, self._versions)
            for name, configs in plan.brokers.items():
                ops += layout.put_broker_configs(name, configs, self._versions)
            for name, configs in plan.groups.items():
                ops += layout.put_group_configs(name, configs, self._versions)
            for name, configs in plan.client_metrics.items():
                ops += layout.put_client_metrics(name, configs, self._versions)
            topics = [
                replace(self.image.topics[name], configs=configs) for name, configs in plan.topics.items()
            ]
            image = self.image.with_topics(topics).with_broker_configs(plan.brokers)
            if plan.client_metrics:
                image = image.with_client_metrics(plan.client_metrics)
            await self._commit(ops, image.with_group_configs(plan.groups))
            for note in plan.notes:
                log.warning("a broker setting was altered: %s", note)
        return results

    async def _create_acls(self, acls: Sequence[Acl]) -> list[ApiError | None]:
        results, created = plan_create_acls(self.image, acls)
        await self._commit(layout.create_acls(created), self.image.with_acls(created))
        return results

    async def _delete_acls(self, filters: Sequence[AclFilter]) -> list[dict[str, Acl] | ApiError]:
        results, deleted = plan_delete_acls(self.image, filters)
        await self._commit(layout.delete_acls(deleted, self._versions), self.image.with_acls({}, deleted))
        return results

    async def _alter_client_quotas(
        self, changes: Sequence[QuotaChange], validate_only: bool
    ) -> list[ApiError | None]:
        results, planned = plan_alter_quotas(self.image, changes)
        if not validate_only:
            ops = (
                op for entity, values in planned.items()
                for op in layout.put_quotas(entity, values, self._versions)
            )  # fmt: skip
            await self._commit(ops, self.image.with_quotas(planned))
        return results

    async def _allocate_producer_ids(self) -> tuple[int, int]:
        found = await self._store.get(layout.PRODUCER_IDS)
        if found is None:
            raise NoNode(layout.PRODUCER_IDS)
        value, version = found
        first: int = layout.decode(value)["next"]
        new = layout.encode({"next": first + PRODUCER_ID_BLOCK})
        self._written[layout.PRODUCER_IDS] = await self._store.compare_and_set(
            layout.PRODUCER_IDS, new, version
        )
        return first, PRODUCER_ID_BLOCK

    async def _bump_leader_epochs(self) -> int:
        ops: list[Op] = []
        topics = []
        for topic in self.image.topics.values():
            bumped = self._bumped(topic)
            changed = [
                layout.put_state(topic.name, old, new)
                for old, new in zip(topic.partitions, bumped.partitions, strict=True)
                if old is not new
            ]
            if changed:
                ops += changed
                topics.append(bumped)
        await self._commit(ops, self.image.with_topics(topics))
        return len(ops)

    def _bumped(self, topic: TopicImage) -> TopicImage:
        return replace(
            topic,
            partitions=tuple(
                replace(
                    partition,
                    leader_epoch=partition.leader_epoch + 1,
                    partition_epoch=partition.partition_epoch + 1,
                )
                if partition.leader == self._broker_id
                else partition
                for partition in topic.partitions
            ),
        )
