"""The cases of the ACL table against Apache Kafka: what Penstock is tested for is what Kafka answers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from penstock.metadata.acls import Acl
from penstock.testing import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID
from tests.clients.every_request import advertised
from tests.clients.raw import topic_id
from tests.tools.conftest import KafkaTools
from tests.tools.kafka_broker import JAAS, Kafka
from tests.unit.acl_requests import (
    CASES,
    CODES,
    DENIED,
    GROUP,
    JOINING,
    SHARE_GROUP,
    TOPIC,
    Case,
    Grant,
    codes_in,
)
from tests.unit.test_acl_table import without

PATIENCE_S = 60
HEARD_S = 10
USERS = 400

# Kafka's answer is another, and why ours is what it is.
_OTHERWISE = {
    # A Kafka broker in KRaft mode does not serve it: its controller does.
    ApiKey.ALTER_PARTITION,
}


class GuardedKafka(Kafka):
    """With ACLs on; who comes over the plain listener is a super user."""

    def _properties(self, data: Path) -> str:
        users = " ".join(f'user_u{number}="p"' for number in range(USERS))
        lines = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{JAAS}.plain.PlainLoginModule required "
            f"{users};",
        }
        return super()._properties(data) + "".join(f"{name}={value}\n" for name, value in lines.items())


class Guarded:
    """A Kafka with the resources that the cases are about, and users that have no permission yet."""

    def __init__(self, kafka: Kafka) -> None:
        self._sasl = kafka.sasl
        self.admin = _connected(kafka.plaintext)
        self._users = itertools.count()
        self.versions = advertised(self.admin)

    def prepare(self) -> UUID:
        """The id of the topic. A case may have deleted it, or the group."""
        new = [
            Message(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in (TOPIC, "t-other")
        ]
        self.admin.request(ApiKey.CREATE_TOPICS, 7, Message(topics=new, timeout_ms=10_000))
        known = self._until_known()
        for kind, key in ((0, GROUP), (1, "x"), (0, SHARE_GROUP)):
            self._coordinator(kind, key)
        partitions = [Message(partition_index=0, committed_offset=0, committed_metadata="")]
        commit = Message(group_id=GROUP, topics=[Message(name=TOPIC, partitions=partitions)])
        self._until_done(ApiKey.OFFSET_COMMIT, 8, commit)
        begin = Message(transactional_id="x", transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1)
        self._until_done(ApiKey.INIT_PRODUCER_ID, 4, begin)
        shared = [Message(topic_name=TOPIC, partitions=[Message(partition_index=0, start_offset=0)])]
        self._until_done(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, Message(group_id=SHARE_GROUP, topics=shared))
        for key, version, joining in JOINING:
            self._until_done(key, version, joining)
        return known

    def _until_known(self) -> UUID:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            known = topic_id(self.admin, TOPIC)
            if known != ZERO_UUID:
                return known
            time.sleep(0.1)
        raise AssertionError("Kafka does not know the topic")

    def _coordinator(self, kind: int, key: str) -> None:
        request = Message(key_type=kind, coordinator_keys=[key])
        self._until_done(ApiKey.FIND_COORDINATOR, 4, request)

    def _until_done(self, api: ApiKey, version: int, request: Message) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while any(codes_in(answer := self.admin.request(api, version, request))):
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)

    def user(self) -> tuple[str, WireClient]:
        name = f"u{next(self._users)}"
        wire = WireClient(self._sasl, timeout=PATIENCE_S)
        wire.request(ApiKey.SASL_HANDSHAKE, 1, Message(mechanism="PLAIN"))
        answer = wire.request(ApiKey.SASL_AUTHENTICATE, 2, Message(auth_bytes=f"\0{name}\0p".encode()))
        assert answer.error_code == 0, answer
        return name, wire

    def grant(self, user: str, acls: list[Acl]) -> None:
        creations = [
            Message(
                resource_type=one.resource_type, resource_name=one.name,
                resource_pattern_type=one.pattern_type, principal=f"User:{user}", host=one.host,
                operation=one.operation, permission_type=one.permission,
            )
            for one in acls
        ]  # fmt: skip
        if creations:
            answer = self.admin.request(ApiKey.CREATE_ACLS, 3, Message(creations=creations))
            assert not any(codes_in(answer)), answer


def _connected(port: int) -> WireClient:
    """A connection that answers: while Kafka starts it accepts some that it closes again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            wire = WireClient(port, timeout=PATIENCE_S)
            wire.request(ApiKey.API_VERSIONS, 0, Message())
            return wire
        except ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture(scope="module")
def guarded(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    kafka = GuardedKafka(kafka_tools, tmp_path_factory.mktemp("kafka"))
    try:
        yield Guarded(kafka)
    finally:
        kafka.close()


def problem(case: Case, missing: Grant | None, answer: Message) -> str:
    """What is wrong with an answer; empty where nothing is."""
    codes = set(codes_in(answer))
    if missing is None:
        shown = all(grant.hides is None or grant.hides(answer) for grant in case.grants)
        return "" if shown and not codes & DENIED else f"denied: {answer}"
    if missing.hides is not None:
        return f"shown: {answer}" if missing.hides(answer) else ""
    expected = missing.code or CODES[missing.resource]
    return "" if codes & DENIED == {expected} else f"not {expected}: {answer}"


@pytest.mark.promise("access", "Apache Kafka denies and allows the same requests for the same ACLs")
@pytest.mark.parametrize("case", [case for case in CASES if case.key not in _OTHERWISE], ids=str)
def test_kafka_denies_and_allows_the_same(guarded: Guarded, case: Case) -> None:
    oldest, newest = guarded.versions[case.key]
    versions = [version for version in range(oldest, newest + 1) if version in case.versions]
    version = versions[-1]
    topic_id = guarded.prepare()
    for missing in (*case.grants, None):
        user, wire = guarded.user()
        with wire:
            guarded.grant(user, without(case.grants, missing))
            deadline = time.monotonic() + HEARD_S
            while True:  # Kafka answers before its broker has heard of the ACLs
                request = case.build(topic_id, version)
                found = problem(case, missing, wire.request(case.key, version, request))
                if not found or time.monotonic() > deadline:
                    break
                time.sleep(0.05)
        assert not found, (version, missing, found)
