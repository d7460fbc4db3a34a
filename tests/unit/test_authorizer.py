"""Decisions over ACLs: as Kafka's authorizer makes them, and the same whatever the index does."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from penstock.broker.security.authorization.authorizer import Authorizer
from penstock.metadata.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
TOPIC = ResourceType.TOPIC


def acl(
    name: str,
    operation: Operation = Operation.READ,
    permission: Permission = ALLOW,
    *,
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    resource: ResourceType = TOPIC,
) -> Acl:
    return Acl(resource, name, pattern, principal, host, operation, permission)


def authorizer(*acls: Acl, **settings: bool) -> Authorizer:
    made = Authorizer(["User:admin"], **settings)
    made.update({str(number): one for number, one in enumerate(acls)})
    return made


def may(
    made: Authorizer, operation: Operation, name: str, user: str = "User:alice", host: str = "10.0.0.1"
) -> bool:
    return made.allows(user, host, operation, TOPIC, name)


def test_without_an_acl_nothing_is_allowed_but_to_super_users() -> None:
    made = authorizer()
    assert not may(made, Operation.READ, "t")
    assert may(made, Operation.READ, "t", "User:admin")


@pytest.mark.promise(
    "access",
    "ACLs are evaluated as in Kafka: deny takes precedence, prefixes and wildcards, implied operations, "
    "super users, deny by default",
)
def test_allow_everyone_counts_only_where_a_resource_has_no_acl_at_all() -> None:
    made = authorizer(acl("t", principal="User:bob"), allow_everyone=True)
    assert may(made, Operation.WRITE, "free")
    assert not may(made, Operation.WRITE, "t")


@pytest.mark.parametrize(
    ("pattern", "name", "allowed", "denied"),
    [
        (LITERAL, "orders", ["orders"], ["orders2", "order", "*"]),
        (PREFIXED, "orders", ["orders", "orders2"], ["order", "my-orders"]),
        (LITERAL, "*", ["orders", "anything"], []),
    ],
)
def test_a_pattern_applies_to_the_names_that_it_means(
    pattern: PatternType, name: str, allowed: list[str], denied: list[str]
) -> None:
    made = authorizer(acl(name, pattern=pattern))
    assert [one for one in allowed if not may(made, Operation.READ, one)] == []
    assert [one for one in denied if may(made, Operation.READ, one)] == []


@pytest.mark.promise(
    "access",
    "ACLs are evaluated as in Kafka: deny takes precedence, prefixes and wildcards, implied operations, "
    "super users, deny by default",
)
def test_deny_wins_wherever_it_stands() -> None:
    for deny in (acl("*", permission=DENY), acl("o", permission=DENY, pattern=PREFIXED)):
        assert not may(authorizer(acl("orders"), deny), Operation.READ, "orders")
    others = acl("orders", permission=DENY, principal="User:bob")
    assert may(authorizer(acl("orders"), others), Operation.READ, "orders")
    assert not may(authorizer(acl("*"), acl("t", permission=DENY, host="10.0.0.1")), Operation.READ, "t")


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_allowing_an_operation_allows_describe_and_denying_it_does_not_deny_describe(
    operation: Operation,
) -> None:
    assert may(authorizer(acl("t", operation)), Operation.DESCRIBE, "t")
    both = authorizer(acl("t", Operation.DESCRIBE), acl("t", operation, DENY))
    assert may(both, Operation.DESCRIBE, "t")
    assert not may(both, operation, "t")


def test_altering_settings_allows_describing_them_and_all_allows_all() -> None:
    assert may(authorizer(acl("t", Operation.ALTER_CONFIGS)), Operation.DESCRIBE_CONFIGS, "t")
    assert not may(authorizer(acl("t", Operation.ALTER_CONFIGS)), Operation.DESCRIBE, "t")
    assert may(authorizer(acl("t", Operation.ALL)), Operation.CREATE, "t")


def test_everybody_and_every_host_are_stars_and_the_type_of_the_resource_counts() -> None:
    made = authorizer(acl("t", principal="User:*", host="10.0.0.1"))
    assert may(made, Operation.READ, "t", "User:bob")
    assert not may(made, Operation.READ, "t", "User:bob", "10.0.0.2")
    assert not made.allows("User:bob", "10.0.0.1", Operation.READ, ResourceType.GROUP, "t")


def test_what_was_decided_is_forgotten_when_acls_change() -> None:
    made = authorizer()
    assert not may(made, Operation.READ, "t")
    made.update({"1": acl("t")})
    assert may(made, Operation.READ, "t")
    made.update({})
    assert not may(made, Operation.READ, "t")


def test_writing_to_some_topic_is_allowed_unless_all_of_it_is_denied() -> None:
    write = Operation.WRITE

    def some(*acls: Acl, user: str = "User:alice") -> bool:
        return authorizer(*acls).allows_on_any(user, "10.0.0.1", write, TOPIC)

    assert not some()
    assert some(user="User:admin")
    assert some(acl("t", write))
    assert not some(acl("t", write), acl("t", write, DENY))
    assert not some(acl("t", write), acl("*", write, DENY))
    assert not some(acl("orders", write), acl("ord", write, DENY, pattern=PREFIXED))
    assert some(acl("ord", write, pattern=PREFIXED), acl("ord", write, DENY))
    assert not some(acl("t", Operation.READ))


def test_authorized_operations_are_the_bits_of_what_is_allowed() -> None:
    made = authorizer(acl("t", Operation.READ))
    assert made.operations("User:alice", "h", TOPIC, "t") == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert made.operations("User:bob", "h", TOPIC, "t") == 0
    everything = made.operations("User:admin", "h", ResourceType.CLUSTER, CLUSTER_NAME)
    assert everything >> Operation.CLUSTER_ACTION & 1


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), ["a", "a1", "*", "group"]),
        (AclFilter(TOPIC), ["a", "a1", "*"]),
        (AclFilter(TOPIC, "a1", LITERAL), ["a1"]),
        (AclFilter(TOPIC, "a1", PatternType.MATCH), ["a", "a1", "*"]),
        (AclFilter(TOPIC, "a", PatternType.ANY), ["a"]),
        (AclFilter(TOPIC, "a", PREFIXED), ["a"]),
        (AclFilter(principal="User:bob"), []),
        (AclFilter(operation=Operation.READ, permission=ALLOW), ["a", "a1", "*", "group"]),
        (AclFilter(host="10.0.0.1"), []),
    ],
)
def test_a_filter_finds_what_it_means(wanted: AclFilter, found: list[str]) -> None:
    made = authorizer(
        acl("a", pattern=PREFIXED), acl("a1"), acl("*"), acl("group", resource=ResourceType.GROUP)
    )
    assert {one.name for one in made.matching(wanted)} == set(found)


def as_written(acls: Sequence[Acl], user: str, host: str, operation: int, name: str) -> bool:
    """Kafka's rules, over the whole list."""
    fits = [
        one for one in acls
        if one.resource_type == TOPIC
        and (one.name == name or (one.pattern_type == LITERAL and one.name == "*")
             or (one.pattern_type == PREFIXED and name.startswith(one.name)))
    ]  # fmt: skip
    mine = [one for one in fits if one.principal in (user, "User:*") and one.host in (host, "*")]
    implied = {
        Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }
    same = {operation, Operation.ALL}
    if any(one.permission == DENY and one.operation in same for one in mine):
        return False
    also = same | implied.get(Operation(operation), set())
    return any(one.permission == ALLOW and one.operation in also for one in mine)


@pytest.mark.promise(
    "access",
    "ACLs are evaluated as in Kafka: deny takes precedence, prefixes and wildcards, implied operations, "
    "super users, deny by default",
)
@pytest.mark.parametrize("seed", range(30))
def test_the_index_decides_as_the_whole_list_does(seed: int) -> None:
    rng = random.Random(seed)
    names = ["", "a", "ab", "abc", "b", "ba", "*"]
    operations = [Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS, Operation.ALL]
    acls = [
        acl(
            rng.choice(names[1:]), rng.choice(operations), rng.choice([ALLOW, ALLOW, DENY]),
            pattern=rng.choice([LITERAL, PREFIXED]),
            principal=rng.choice(["User:alice", "User:bob", "User:*"]),
            host=rng.choice(["*", "h1"]),
            resource=rng.choice([TOPIC, TOPIC, ResourceType.GROUP]),
        )
        for _ in range(rng.randrange(12))
    ]  # fmt: skip
    made = authorizer(*acls)
    for user in ("User:alice", "User:bob"):
        for host in ("h1", "h2"):
            for operation in (*operations[:-1], Operation.DESCRIBE_CONFIGS):
                for name in names[1:-1]:
                    expected = as_written(acls, user, host, operation, name)
                    assert made.allows(user, host, operation, TOPIC, name) is expected
