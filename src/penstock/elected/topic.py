"""Creates the state topic if it is missing, and checks it: compacted, and one partition if order matters.

A topic that deletes old records would lose state after a week; a server refuses to start on one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock.client.errors import ClientError
from penstock.client.librdkafka import first_metadata, own_words, with_login
from penstock.elected.errors import CannotStart

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

log = logging.getLogger(__name__)


def prepare(
    settings: dict[str, str], topic: str, *, replication_factor: int, timeout: float, partitions: int = 1
) -> str:
    """Create or check the topic. Returns the cluster's id. More than one partition is only used when creating
    it.
    """
    from confluent_kafka import KafkaException

    admin, metadata = reach(settings, timeout)
    try:
        if topic not in metadata.topics:
            _create(admin, topic, partitions, min(replication_factor, len(metadata.brokers)), timeout)
        _check(admin, topic, timeout, ordered=partitions == 1)
    except KafkaException as error:
        raise CannotStart(f"the topic {topic} cannot be created or checked: {error.args[0].str()}") from error
    return str(metadata.cluster_id or "")


def reach(settings: dict[str, str], timeout: float) -> tuple[AdminClient, Any]:
    """A client and the cluster's metadata. Raises CannotStart if no broker responds or the login fails."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    errors: list[KafkaError] = []

    def failed(error: KafkaError) -> None:
        if not errors or error.code() != error._ALL_BROKERS_DOWN:  # less specific than the error before it
            errors[:] = [error]

    # Errors are raised here; librdkafka's own log lines would repeat for each attempt.
    admin = AdminClient(with_login({**settings, "log_level": 0, "error_cb": failed}))
    where = settings.get("bootstrap.servers", "")
    try:
        return admin, first_metadata(admin, timeout, lambda: errors[0] if errors else None, where)
    except ClientError as error:
        raise CannotStart(f"{error} (--client-config)") from error
    except KafkaException as error:
        why = own_words(errors[0] if errors else error.args[0])
        raise CannotStart(
            f"no broker answers at {where} ({why}): see --bootstrap and its security settings"
        ) from error


def _create(admin: AdminClient, topic: str, partitions: int, replication_factor: int, timeout: float) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.cimpl import NewTopic

    if replication_factor < 3:
        log.info("creating %s with %d replica(s): the cluster has no more brokers", topic, replication_factor)
    new = NewTopic(topic, partitions, replication_factor, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([new], operation_timeout=timeout, request_timeout=timeout)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another registry was first
            raise


def _check(admin: AdminClient, topic: str, timeout: float, *, ordered: bool) -> None:
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    description = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout)[topic].result()
    partitions = len(description.partitions)
    if ordered and partitions != 1:
        raise CannotStart(
            f"the topic {topic} has {partitions} partitions and must have 1: the order of its records is "
            "the order of changes. Name another topic."
        )
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs: dict[str, Any] = admin.describe_configs([resource], request_timeout=timeout)[resource].result()
    policy = configs["cleanup.policy"].value
    if policy != "compact":
        raise CannotStart(
            f"the topic {topic} has cleanup.policy={policy} and must have compact, or the cluster deletes "
            f"state when it is old. Set it: penstock configs set topic {topic} cleanup.policy=compact"
        )
