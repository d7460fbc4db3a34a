"""Consumer groups of flows: their names, and deleting them when the sources of a flow change.

The position of a flow is in Spark's checkpoint; its group only shows it. Offsets of topics that the flow no
longer reads would stay, with a growing lag.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from penstock.pipelines.plans.fingerprint import PlanNode

log = logging.getLogger(__name__)

_FORMAT, _PREFIX = "penstock", "kafka."
_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class FlowGroup:
    """A group that shows the progress of a flow, and the settings to connect to its cluster."""

    name: str
    kafka: tuple[tuple[str, str], ...]
    own: bool
    """Whether it is named after the flow. A group named by the project may be used by other flows, too."""


def groups_of(plan: PlanNode, query_name: str) -> tuple[FlowGroup, ...]:
    """Those of the streaming sources of a query, as `penstock.spark.source.group` names them."""
    found: dict[FlowGroup, None] = {}
    for node in plan.walk():
        if node.source is None or node.source[0].lower() != _FORMAT:
            continue
        options = {key.lower(): value for key, value in node.source[1].items()}
        if options.get("commitprogress", "true").lower() == "false":
            continue
        kafka = {
            key.removeprefix(_PREFIX): value for key, value in options.items() if key.startswith(_PREFIX)
        }
        named = kafka.pop("group.id", "")
        prefix = options.get("groupidprefix", "").strip() or "penstock"
        name = named or f"{prefix}-{query_name}"
        found.setdefault(FlowGroup(name, tuple(sorted(kafka.items())), not named))
    return tuple(found)


def delete_groups(groups: Collection[FlowGroup]) -> None:
    """Deletes the groups that are named after a flow. A group that cannot be deleted stays, which is
    logged.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    from penstock.client.librdkafka import with_login
    from penstock.client.librdkafka_names import translate

    for group in groups:
        if not group.own:
            continue
        try:
            admin = AdminClient(with_login({"log_level": "0", **translate(dict(group.kafka))}))
            for future in admin.delete_consumer_groups([group.name], request_timeout=_SECONDS).values():
                future.result(_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                log.warning("could not delete consumer group %s: %s", group.name, error.args[0].str())
        except (ValueError, TypeError, OSError) as error:  # settings that only Java's client understands
            log.warning("could not delete consumer group %s: %s", group.name, error)
