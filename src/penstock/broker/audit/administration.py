"""The administrative APIs, and what the audit topic records of each: the types and names of changed
resources.

Values of settings, salts, hashes and HMACs are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from penstock.broker.audit.event import title
from penstock.broker.audit.senders import anybody, leaving, no_broker, no_member, of_other_members
from penstock.metadata.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID

_CONFIG_RESOURCES = {2: "Topic", 4: "Broker", 8: "BrokerLogger", 16: "ClientMetrics", 32: "Group"}
_SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_MOST_LISTED = 50


class Target(NamedTuple):
    """One resource that a request changes; `key` finds its result in the response."""

    type: str
    name: str | None
    detail: Mapping[str, Any] = {}
    key: Any = None


Codes = Mapping[Any, int]


class Administrative(NamedTuple):
    operation: Operation
    targets: Callable[[Message], Iterable[Target]]
    codes: Callable[[Message], Codes]
    """The error codes of a response without a top-level error code, by the keys of the targets."""
    concerns: Callable[[Any, Any, Message], bool] = anybody
    """Given broker, context and request: whether an administrator sent it. For APIs that others use too."""
    is_frequent: bool = False
    """Whether applications send it repeatedly: then repetitions are folded into one entry."""


def outcomes(api: Administrative, request: Message, answer: Message | int) -> Iterator[tuple[Target, int]]:
    """What a request has changed or tried to change, with the error code of each. `answer` is the response,
    or one error code."""
    if getattr(request, "validate_only", False):
        return  # changes nothing
    whole = answer if isinstance(answer, int) else getattr(answer, "error_code", 0)
    codes = {} if isinstance(answer, int) or whole else api.codes(answer)
    for target in api.targets(request):
        yield target, whole or codes.get(target.key, 0)


def _listed(names: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(names))
    return (
        found
        if len(found) <= _MOST_LISTED
        else [*found[:_MOST_LISTED], f"and {len(found) - _MOST_LISTED} more"]
    )


def _created_topics(request: Message) -> Iterator[Target]:
    for topic in request.topics:
        detail = {
            "partitions": len(topic.assignments) or topic.num_partitions,
            "configs": _listed(one.name for one in topic.configs),
        }
        yield Target("Topic", topic.name, detail, topic.name)


def _deleted_topics(request: Message) -> Iterator[Target]:
    for topic in getattr(request, "topics", None) or ():
        name = topic.name if topic.name is not None else str(topic.topic_id)
        yield Target("Topic", name, key=name)
    for name in getattr(request, "topic_names", None) or ():
        yield Target("Topic", name, key=name)


def _deleted_topic_codes(answer: Message) -> Codes:
    found: dict[str, int] = {}
    for one in answer.responses:
        topic_id = getattr(one, "topic_id", ZERO_UUID)
        found[str(topic_id)] = one.error_code
        if one.name is not None:
            found[one.name] = one.error_code
    return found


def _trimmed_topics(request: Message) -> Iterator[Target]:
    for topic in request.topics:
        partitions = [one.partition_index for one in topic.partitions[:_MOST_LISTED]]
        yield Target("Topic", topic.name, {"partitions": partitions}, topic.name)


def _grown_topics(request: Message) -> Iterator[Target]:
    for topic in request.topics:
        yield Target("Topic", topic.name, {"partitions": topic.count}, topic.name)


def _altered_configs(request: Message) -> Iterator[Target]:
    for one in request.resources:
        kind = _CONFIG_RESOURCES.get(one.resource_type, str(one.resource_type))
        detail = {"configs": _listed(config.name for config in one.configs)}
        yield Target(kind, one.resource_name, detail, (one.resource_type, one.resource_name))


def _altered_config_codes(answer: Message) -> Codes:
    return {(one.resource_type, one.resource_name): one.error_code for one in answer.responses}


def _name_of(names: type[ResourceType | Operation | Permission | PatternType], number: int) -> str:
    try:
        return title(names(number).name)
    except ValueError:
        return str(number)


def _created_acls(request: Message) -> Iterator[Target]:
    for index, one in enumerate(request.creations):
        detail = {
            "permission": _name_of(Permission, one.permission_type),
            "principal": one.principal,
            "host": one.host,
            "operation": _name_of(Operation, one.operation),
            "resource_type": _name_of(ResourceType, one.resource_type),
            "resource": one.resource_name,
            "pattern": _name_of(PatternType, one.resource_pattern_type),
        }
        yield _cluster(detail, index)


def _deleted_acls(request: Message) -> Iterator[Target]:
    for index, one in enumerate(request.filters):
        detail = {
            "permission": _name_of(Permission, one.permission_type),
            "principal": one.principal_filter,
            "host": one.host_filter,
            "operation": _name_of(Operation, one.operation),
            "resource_type": _name_of(ResourceType, one.resource_type_filter),
            "resource": one.resource_name_filter,
            "pattern": _name_of(PatternType, one.pattern_type_filter),
        }
        yield _cluster(detail, index)


def _cluster(detail: Mapping[str, Any], key: Any = None) -> Target:
    return Target("Cluster", CLUSTER_NAME, detail, key)


def _elected(request: Message) -> Iterator[Target]:
    topics = request.topic_partitions
    names = ["all"] if topics is None else _listed(one.topic for one in topics)
    yield _cluster({"topics": names, "election": "unclean" if request.election_type == 1 else "preferred"})


def _elected_codes(answer: Message) -> Codes:
    return {None: _first(one.partition_result for one in answer.replica_election_results)}


def _reassigned(request: Message) -> Iterator[Target]:
    yield _cluster({"topics": _listed(one.name for one in request.topics)})


def _reassigned_codes(answer: Message) -> Codes:
    return {None: _first(one.partitions for one in answer.responses)}


def _altered_quotas(request: Message) -> Iterator[Target]:
    for one in request.entries:
        entity = [(part.entity_type, part.entity_name) for part in one.entity]
        quotas = {op.key: None if op.remove else op.value for op in one.ops[:_MOST_LISTED]}
        detail = {
            "entity": {kind: "<default>" if name is None else name for kind, name in entity},
            "quotas": quotas,
        }
        yield _cluster(detail, tuple(entity))


def _altered_quota_codes(answer: Message) -> Codes:
    return {
        tuple((part.entity_type, part.entity_name) for part in one.entity): one.error_code
        for one in answer.entries
    }


def _altered_users(request: Message) -> Iterator[Target]:
    for change, items in (("delete", request.deletions), ("upsert", request.upsertions)):
        for one in items:
            mechanism = _SCRAM.get(one.mechanism, str(one.mechanism))
            yield Target("User", one.name, {"change": change, "mechanism": mechanism}, one.name)


def _created_token(request: Message) -> Iterator[Target]:
    renewers = _listed(f"{one.principal_type}:{one.principal_name}" for one in request.renewers)
    yield Target("User", getattr(request, "owner_principal_name", None) or None, {"renewers": renewers})


def _altered_token(request: Message) -> Iterator[Target]:
    yield Target("DelegationToken", None)  # the request has the HMAC, which is a password


def _group_offsets(request: Message) -> Iterator[Target]:
    names = (
        getattr(one, "name", "") or getattr(one, "topic_name", "") or str(one.topic_id)
        for one in request.topics
    )
    yield Target("Group", request.group_id, {"topics": _listed(names)})


def _group_offset_codes(answer: Message) -> Codes:
    topics = getattr(answer, "topics", None) or getattr(answer, "responses", None) or ()
    return {None: _first([one] if hasattr(one, "error_code") else one.partitions for one in topics)}


def _ended_transactions(request: Message) -> Iterator[Target]:
    for one in request.markers:
        detail = {
            "producer_id": one.producer_id,
            "result": "commit" if one.transaction_result else "abort",
            "topics": _listed(topic.name for topic in one.topics),
        }
        yield _cluster(detail, one.producer_id)


def _ended_transaction_codes(answer: Message) -> Codes:
    return {one.producer_id: _first(topic.partitions for topic in one.topics) for one in answer.markers}


def _removed_members(request: Message) -> Iterator[Target]:
    names = (one.group_instance_id or one.member_id for one in leaving(request))
    yield Target("Group", request.group_id, {"members": _listed(names)})


def _removed_member_codes(answer: Message) -> Codes:
    return {None: _first([answer.members])}


def _by_name(field: str, name: str = "name", parts: str = "") -> Callable[[Message], Codes]:
    def codes(answer: Message) -> Codes:
        return {
            getattr(one, name): _first([getattr(one, parts)]) if parts else one.error_code
            for one in getattr(answer, field)
        }

    return codes


def _by_position(field: str) -> Callable[[Message], Codes]:
    return lambda answer: {index: one.error_code for index, one in enumerate(getattr(answer, field))}


def _first(groups: Iterable[Iterable[Message]]) -> int:
    """The first error among items; 0 if there is none."""
    return next((one.error_code for group in groups for one in group if one.error_code), 0)


ADMINISTRATION: Final[dict[ApiKey, Administrative]] = {
    ApiKey.CREATE_TOPICS: Administrative(Operation.CREATE, _created_topics, _by_name("topics")),
    ApiKey.DELETE_TOPICS: Administrative(Operation.DELETE, _deleted_topics, _deleted_topic_codes),
    ApiKey.DELETE_RECORDS: Administrative(
        Operation.DELETE, _trimmed_topics, _by_name("topics", parts="partitions")
    ),
    ApiKey.CREATE_PARTITIONS: Administrative(Operation.ALTER, _grown_topics, _by_name("results")),
    ApiKey.ALTER_CONFIGS: Administrative(Operation.ALTER_CONFIGS, _altered_configs, _altered_config_codes),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Administrative(
        Operation.ALTER_CONFIGS, _altered_configs, _altered_config_codes
    ),
    ApiKey.CREATE_ACLS: Administrative(Operation.ALTER, _created_acls, _by_position("results")),
    ApiKey.DELETE_ACLS: Administrative(Operation.ALTER, _deleted_acls, _by_position("filter_results")),
    ApiKey.ALTER_CLIENT_QUOTAS: Administrative(
        Operation.ALTER_CONFIGS, _altered_quotas, _altered_quota_codes
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Administrative(
        Operation.ALTER, _altered_users, _by_name("results", "user")
    ),
    ApiKey.DELETE_GROUPS: Administrative(
        Operation.DELETE,
        lambda request: (Target("Group", name, key=name) for name in request.groups_names),
        _by_name("results", "group_id"),
    ),
    ApiKey.OFFSET_DELETE: Administrative(Operation.DELETE, _group_offsets, _group_offset_codes),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Administrative(Operation.READ, _group_offsets, _group_offset_codes),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Administrative(Operation.DELETE, _group_offsets, _group_offset_codes),
    ApiKey.OFFSET_COMMIT: Administrative(
        Operation.READ, _group_offsets, _group_offset_codes, no_member, is_frequent=True
    ),
    ApiKey.LEAVE_GROUP: Administrative(
        Operation.READ, _removed_members, _removed_member_codes, of_other_members
    ),
    ApiKey.WRITE_TXN_MARKERS: Administrative(
        Operation.ALTER, _ended_transactions, _ended_transaction_codes, no_broker
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: Administrative(Operation.CREATE_TOKENS, _created_token, lambda _: {}),
    ApiKey.RENEW_DELEGATION_TOKEN: Administrative(Operation.ALTER, _altered_token, lambda _: {}),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Administrative(Operation.ALTER, _altered_token, lambda _: {}),
    ApiKey.ELECT_LEADERS: Administrative(Operation.ALTER, _elected, _elected_codes),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Administrative(Operation.ALTER, _reassigned, _reassigned_codes),
}
