"""ACLs as stored in the metadata: who may do what, from where, on which resources. Values only, no decisions.

The numbers are those of Kafka's protocol. `Acl` is one entry; `AclFilter` selects entries, as DescribeAcls
and DeleteAcls do.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a CLUSTER resource."""


class ResourceType(enum.IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(enum.IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """`name` is the resource name, or its prefix if the pattern type is PREFIXED; with LITERAL, "*" matches
    every resource. `principal` is like "User:alice", or "User:*" for all; `host` is an address, or "*"."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        return (
            f"{self.principal} has {Permission(self.permission).name} {Operation(self.operation).name} from "
            f"{self.host} on {ResourceType(self.resource_type).name}:{PatternType(self.pattern_type).name}:"
            f"{self.name}"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """None and ANY match everything. The pattern type MATCH finds all entries that apply to the resource
    name: literal, wildcard and prefixed ones."""

    resource_type: int = ResourceType.ANY
    name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether it has an unknown number."""
        return not (
            1 <= self.resource_type <= ResourceType.USER
            and 1 <= self.pattern_type <= PatternType.PREFIXED
            and 1 <= self.operation <= Operation.TWO_PHASE_COMMIT
            and 1 <= self.permission <= Permission.ALLOW
        )

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.name == acl.name
        if acl.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, WILDCARD)
