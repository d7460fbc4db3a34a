"""Writes docs/security-acls.md: `python -m penstock.broker.security.authorization.docs` prints the page."""

from __future__ import annotations

import sys

from penstock.broker.security.authorization.rules import rows

_HEAD = """# ACLs and quotas

This page is the output of `python -m penstock.broker.security.authorization.docs`; a test compares the two.

## Turning ACLs on

    authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
    super.users=User:admin;User:broker

Without `authorizer.class.name` everybody may do everything, and the ACL APIs answer SECURITY_DISABLED.
With it nothing is allowed that no ACL allows (`allow.everyone.if.no.acl.found=true` allows everything on
resources that have no ACL). All brokers of a cluster need the same settings.

The principal of a client is the name that it logs in with (`User:alice`); on a PLAINTEXT listener it is
`User:ANONYMOUS`. Brokers are clients of each other: the principal that they use must be in `super.users`,
or have ClusterAction and Alter on the cluster. Where brokers use a PLAINTEXT listener, that is
`User:ANONYMOUS`: then keep that listener away from others, because every client that reaches it is a super
user.

An ACL allows or denies a principal (or `User:*`) an operation, from an address (or `*`), on the resource
of one name, on all whose names have a prefix, or on all (`*`). Deny wins. Allowing Read, Write, Delete or
Alter allows Describe, and allowing AlterConfigs allows DescribeConfigs. ACLs are kept in the metadata
store. The broker that is asked to change them applies the change before it answers. All others have a watch
on each ACL and on the list of them: ZooKeeper notifies them, they read what has changed, and apply it, also
to open connections. That takes less than a second. Brokers do not poll. One that has lost its connection to
ZooKeeper applies the ACLs that it has read last, and re-reads all when it is connected again. Quotas and
SCRAM users change in the same way.

`penstock acls`, `kafka-acls`, the admin clients of all Kafka clients, and CreateAcls, DescribeAcls and
DeleteAcls work as with Apache Kafka. A client needs:

| client | ACLs |
| --- | --- |
| producer | Write on its topics; Create on them, or on the cluster, where they are created automatically |
| transactional producer | also Write on its transactional id |
| consumer | Read on its topics and on its group |
| share consumer | the same |
| administrator | Alter, Describe, AlterConfigs and Create on the cluster, or `super.users` |

## What each API needs

An error is TOPIC_AUTHORIZATION_FAILED (29), GROUP_AUTHORIZATION_FAILED (30), CLUSTER_AUTHORIZATION_FAILED
(31), TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53) or DELEGATION_TOKEN_AUTHORIZATION_FAILED (65), by the
resource. Topics that may not be described are answered in the same way whether they exist or not.

| API | resource | operation | when denied |
| --- | --- | --- | --- |
"""

_TAIL = """
## Quotas

Quotas are set with `penstock quotas` or AlterClientQuotas (`kafka-configs --alter --add-config` with
users, clients and ips) and count on each broker, as in Kafka.

| quota | for | meaning |
| --- | --- | --- |
| `producer_byte_rate` | users, client ids, both | bytes of Produce requests in a second |
| `consumer_byte_rate` | the same | bytes of Fetch answers in a second |
| `request_percentage` | the same | time of the broker's loop, 100 being all of it |
| `controller_mutation_rate` | the same | partitions created or deleted in a second |
| `connection_creation_rate` | ips | new connections in a second |

The quota of user and client id counts before that of the user and the one of the client id; a default applies
where no named quota exists. A client that exceeds its quota gets its response with a throttle time, and its
connection is muted for that time. Past `controller_mutation_rate` new changes of topics are answered with
THROTTLING_QUOTA_EXCEEDED (CreateTopics 6, DeleteTopics 5, CreatePartitions 3 and later; older versions are
slowed). Rates are measured over `quota.window.num` samples of `quota.window.size.seconds`. Fetches of
followers and the other requests between brokers have no quota.

`max.connections.per.ip`, with `max.connections.per.ip.overrides`, limits the connections of an address,
and `max.connection.creation.rate` how many are accepted in a second.
"""


def render() -> str:
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows()) + _TAIL


if __name__ == "__main__":
    sys.stdout.write(render())
