"""Each row of the table of ACL checks, against a broker in this process whose clients say who they are."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.broker.api_table import load_apis
from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.broker.net.interceptor import Action
from penstock.broker.security.authentication.principal import Principal
from penstock.broker.security.authorization import docs
from penstock.broker.security.authorization.checks import Free, InHandler, Operations
from penstock.broker.security.authorization.rules import RULES
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.controller import TopicSpec
from penstock.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_response, encode_request, response_header_version
from tests.unit.acl_requests import (
    CASES,
    CODES,
    DENIED,
    GROUP,
    JOINING,
    NAMES,
    NEW,
    SHARE_GROUP,
    TOPIC,
    Case,
    Grant,
    codes_in,
)

# Asked before a login, of the owner of a token only (see test_delegation_tokens.py), or free.
_WITHOUT_CASE = {
    ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS, ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY,
}  # fmt: skip


class Users:
    """Takes the client id for the name of the user, as if it had logged in."""

    def intercept(self, context: RequestContext) -> Action | None:
        context.principal = Principal("User", context.client_id or "ANONYMOUS")
        return None


class As:
    """A connection on which requests are sent as any user."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def request(self, user: str, api: ApiKey, version: int, message: Message) -> Message:
        name = user.encode()
        flexible = b"\0" if response_header_version(api, version) else b""
        header = struct.pack(">hhih", api, version, 1, len(name)) + name + flexible
        body = header + encode_request(api, version, message)
        self.writer.write(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = await self._reader.readexactly(size)
        return decode_response(api, version, answer, 5 if flexible else 4)


@asynccontextmanager
async def guarded_broker(directory: Path, **settings: str) -> AsyncIterator[tuple[Broker, As]]:
    values = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    values |= {name.replace("_", "."): value for name, value in settings.items()}
    broker = Broker(BrokerConfig.parse(values), ManualClock(), interceptor=Users())
    await broker.start()
    client = As(*await asyncio.open_connection("127.0.0.1", broker.port))
    try:
        await broker.controller.create_topics([TopicSpec(TOPIC), TopicSpec("t-other")])
        await broker.caught_up()
        yield broker, client
    finally:
        client.writer.close()
        await broker.stop()


def acl(grant: Grant, name: str, pattern: PatternType = PatternType.LITERAL) -> Acl:
    return Acl(grant.resource, name, pattern, "User:alice", "*", grant.operation, Permission.ALLOW)


def without(grants: Iterable[Grant], missing: Grant | None) -> list[Acl]:
    found = []
    for grant in grants:
        if grant is not missing:
            is_group = grant.resource == ResourceType.GROUP
            pattern = PatternType.PREFIXED if is_group else PatternType.LITERAL
            found.append(acl(grant, NAMES[grant.resource], pattern))
            if grant.resource == ResourceType.TOPIC:
                found.append(acl(grant, NEW, PatternType.PREFIXED))
    if any(grant.resource == ResourceType.CLUSTER for grant in grants):
        # What cannot be described is refused before it would be created.
        found.append(acl(Grant(ResourceType.TOPIC, Operation.DESCRIBE), NEW, PatternType.PREFIXED))
    return found


@pytest.mark.promise(
    "access",
    "Each API checks the permissions that the table lists, in its oldest and newest version; an API "
    "without an entry is not served",
)
def test_every_api_that_is_served_has_a_row_in_the_table() -> None:
    assert [api.key.name for api in load_apis().values() if api.key not in RULES] == []


@pytest.mark.promise(
    "access",
    "Each API checks the permissions that the table lists, in its oldest and newest version; an API "
    "without an entry is not served",
)
def test_every_row_of_the_table_has_a_case() -> None:
    tried: dict[ApiKey, set[tuple[int, int]]] = {}
    for case in CASES:
        tried.setdefault(case.key, set()).update((one.resource, one.operation) for one in case.grants)
    for key, checks in RULES.items():
        if key in _WITHOUT_CASE:
            continue
        for check in checks:
            if isinstance(check, Free):
                continue
            assert key in tried, key.name
            if isinstance(check, InHandler):
                assert (check.resource, check.operation) in tried[key], (key.name, check)
            elif check.operation is not None:
                assert check.operation in {operation for _, operation in tried[key]}, (key.name, check)
            if isinstance(check, Operations):
                assert any(_asks_for_operations(case, check) for case in CASES if case.key == key), key.name


def _asks_for_operations(case: Case, check: Operations) -> bool:
    """Whether an answer is looked at for authorized operations."""
    return any(one.bits == check.bits and one.resource == check.resource for one in case.grants)


async def prepare(broker: Broker, client: As) -> None:
    """A group and a transactional id that lists can show."""
    partitions = [Message(partition_index=0, committed_offset=0, committed_metadata="")]
    commit = Message(group_id=GROUP, topics=[Message(name=TOPIC, partitions=partitions)])
    coordinators = Message(key_type=0, coordinator_keys=[GROUP])
    await client.request("admin", ApiKey.FIND_COORDINATOR, 4, coordinators)
    await client.request("admin", ApiKey.OFFSET_COMMIT, 8, commit)
    await client.request("admin", ApiKey.FIND_COORDINATOR, 4, Message(key_type=1, coordinator_keys=["x"]))
    begin = Message(transactional_id="x", transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1)
    await client.request("admin", ApiKey.INIT_PRODUCER_ID, 4, begin)
    shared = [Message(topic_name=TOPIC, partitions=[Message(partition_index=0, start_offset=0)])]
    alter = Message(group_id=SHARE_GROUP, topics=shared)
    assert not any(codes_in(await client.request("admin", ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, alter)))
    for key, version, joining in JOINING:
        assert not any(codes_in(await client.request("admin", key, version, joining)))


@pytest.mark.promise(
    "access",
    "Each API checks the permissions that the table lists, in its oldest and newest version; an API "
    "without an entry is not served",
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_one_of_its_permissions_a_request_is_denied_and_with_all_it_is_not(
    tmp_path: Path, case: Case
) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as (broker, client):
            await prepare(broker, client)
            topic_id = broker.image.topics[TOPIC].id
            api = load_apis()[case.key]
            versions = [version for version in api.versions if version in case.versions]
            for version in {versions[0], versions[-1]}:
                request = case.build(topic_id, version)
                for missing in (*case.grants, None):
                    assert broker.authorizer is not None
                    broker.authorizer.update(dict(enumerate(without(case.grants, missing))))  # type: ignore[arg-type]
                    answer = await client.request("alice", case.key, version, request)
                    codes = set(codes_in(answer))
                    if missing is None:
                        assert not codes & DENIED, (version, answer)
                        for grant in case.grants:
                            assert grant.hides is None or grant.hides(answer), (version, answer)
                    elif missing.hides is not None:
                        assert not missing.hides(answer), (version, answer)
                    else:
                        expected = missing.code or CODES[missing.resource]
                        assert codes & DENIED == {expected}, (version, missing, answer)

    asyncio.run(main())


def test_the_page_of_acls_is_made_from_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "security-acls.md"
    assert page.read_text() == docs.render(), (
        "run: python -m penstock.broker.security.authorization.docs > docs/security-acls.md"
    )


def allow(*grants: tuple[ResourceType, Operation, str]) -> dict[str, Acl]:
    made = [acl(Grant(resource, operation), name) for resource, operation, name in grants]
    return {str(number): one for number, one in enumerate(made)}


def update(broker: Broker, *grants: tuple[ResourceType, Operation, str]) -> None:
    assert broker.authorizer is not None
    broker.authorizer.update(allow(*grants))


def by_topic(case: Case, broker: Broker, *names: str) -> Message:
    """The request of a case, with other topics in the place of its own."""
    version = load_apis()[case.key].versions[-1]
    (request,) = [case.build(broker.image.topics[TOPIC].id, version)]
    field = next(name for name in ("topics", "topic_data", "resources") if hasattr(request, name))
    (item,) = getattr(request, field)
    label = next(name for name in ("name", "topic", "topic_name", "resource_name") if hasattr(item, name))
    items = [Message(**{**item.__dict__, label: name}) for name in names]
    return Message(**{**request.__dict__, field: items})


# By name in the newest version; with all that the request needs besides the topic.
_BY_NAME = {
    ApiKey.LIST_OFFSETS: (), ApiKey.DELETE_RECORDS: (), ApiKey.CREATE_PARTITIONS: (),
    ApiKey.DESCRIBE_PRODUCERS: (), ApiKey.DESCRIBE_TOPIC_PARTITIONS: (), ApiKey.DESCRIBE_CONFIGS: (),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (), ApiKey.OFFSET_FOR_LEADER_EPOCH: (), ApiKey.METADATA: (),
    ApiKey.DELETE_TOPICS: (),
    ApiKey.OFFSET_DELETE: ((ResourceType.GROUP, Operation.DELETE, GROUP),),
}  # fmt: skip


def named_case(key: ApiKey) -> Case:
    for case in CASES:
        needed = case.grants[-1]
        if case.key == key and needed.resource == ResourceType.TOPIC and needed.hides is None:
            return case
    raise LookupError(key.name)


@pytest.mark.promise(
    "access",
    "A denied topic gets the same response whether it exists or not; the other topics of the request are "
    "not affected",
)
@pytest.mark.parametrize("key", _BY_NAME, ids=lambda key: key.name.lower())
def test_a_denied_topic_is_answered_alike_whether_it_exists_or_not_and_the_others_as_ever(
    tmp_path: Path, key: ApiKey
) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as (broker, client):
            await prepare(broker, client)
            case = named_case(key)
            version = load_apis()[key].versions[-1]
            operation = case.grants[-1].operation
            update(broker, *_BY_NAME[key], (ResourceType.TOPIC, operation, TOPIC))
            request = by_topic(case, broker, "t-other", TOPIC, "t-missing")
            answer = await client.request("alice", key, version, request)
            results = next(
                getattr(answer, name)
                for name in ("topics", "results", "responses")
                if isinstance(getattr(answer, name, None), list)
            )

            def one(name: str) -> Message:
                found = [
                    item for item in results
                    if name in (getattr(item, label, None) for label in ("name", "topic", "resource_name"))
                ]  # fmt: skip
                assert len(found) == 1, (name, answer)
                return found[0]

            assert not set(codes_in(one(TOPIC))) & DENIED
            assert set(codes_in(one("t-other"))) & DENIED == {29}
            there, missing = (repr(one(name)).replace(name, "NAME") for name in ("t-other", "t-missing"))
            assert there == missing

    asyncio.run(main())


@pytest.mark.promise(
    "access",
    "A topic id that does not exist gets UNKNOWN_TOPIC_ID for every user, also in a request with denied "
    "topics",
)
@pytest.mark.parametrize("pattern", [PatternType.LITERAL, PatternType.PREFIXED])
def test_an_id_that_no_topic_has_is_unknown_for_every_user(tmp_path: Path, pattern: PatternType) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as (broker, client):
            assert broker.authorizer is not None
            describe = acl(Grant(ResourceType.TOPIC, Operation.DESCRIBE), "t-o", pattern)
            broker.authorizer.update({"one": describe})
            unknown = Message(name=None, topic_id=uuid4())
            denied = Message(name=None, topic_id=broker.image.topics[TOPIC].id)
            for version in (12, 13):
                asked = Message(topics=[unknown, denied])
                answer = await client.request("alice", ApiKey.METADATA, version, asked)
                found = {topic.topic_id: (topic.error_code, topic.name) for topic in answer.topics}
                assert found == {unknown.topic_id: (100, None), denied.topic_id: (29, None)}

    asyncio.run(main())


def fetch_in_session(session_id: int, epoch: int, *topics: str) -> Message:
    partition = Message(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return Message(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1000, session_id=session_id,
        session_epoch=epoch, topics=[Message(topic=name, partitions=[partition]) for name in topics],
        forgotten_topics_data=[],
    )  # fmt: skip


@pytest.mark.promise(
    "access", "A revoked permission is denied in fetch and share sessions that are already open"
)
def test_what_is_revoked_is_denied_in_a_fetch_session_that_is_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as (broker, client):
            update(broker, (ResourceType.TOPIC, Operation.READ, TOPIC))
            opened = await client.request("alice", ApiKey.FETCH, 11, fetch_in_session(0, 0, TOPIC))
            assert opened.session_id
            assert set(codes_in(opened)) == {0}
            update(broker)
            request = fetch_in_session(opened.session_id, 1)
            assert 29 in set(codes_in(await client.request("alice", ApiKey.FETCH, 11, request)))

    asyncio.run(main())


@pytest.mark.promise(
    "access", "A revoked permission is denied in fetch and share sessions that are already open"
)
def test_what_is_revoked_is_denied_in_a_share_session_that_is_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as (broker, client):
            await prepare(broker, client)
            group = (ResourceType.GROUP, Operation.READ, GROUP)
            update(broker, group, (ResourceType.TOPIC, Operation.READ, TOPIC))
            case = next(case for case in CASES if case.key == ApiKey.SHARE_FETCH)
            request = case.build(broker.image.topics[TOPIC].id, 1)
            opened = await client.request("alice", ApiKey.SHARE_FETCH, 1, request)
            assert not set(codes_in(opened)) & DENIED
            update(broker, group)
            goes_on = Message(**{**request.__dict__, "share_session_epoch": 1, "topics": []})
            answer = await client.request("alice", ApiKey.SHARE_FETCH, 1, goes_on)
            assert [one.topic_id for one in answer.responses] == [broker.image.topics[TOPIC].id]
            assert 29 in set(codes_in(answer))

    asyncio.run(main())
