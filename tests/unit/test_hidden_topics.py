"""A topic that one may not describe is revealed neither by an answer nor by the work that it takes.

Time is not measured: what is looked up for a denied name is recorded, and is the same for a topic that exists
and one that does not.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.api_table import load_apis
from penstock.broker.broker import Broker
from penstock.broker.security.authorization.checks import Hidden, MembersTopics, Operations
from penstock.broker.security.authorization.rules import RULES
from penstock.broker.security.authorization.special_checks import (
    CreatedConfigs,
    ListedTopics,
    SharedTopics,
    TransactionTopics,
)
from penstock.metadata.acls import ResourceType
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, encode_request
from tests.unit.acl_requests import CASES, NEW, TOPIC, Case, codes_in
from tests.unit.test_acl_table import guarded_broker, prepare, without

MISSING = "u"
NOT_AUTHORIZED = 29
# Of topics in an answer, not in a request; or of topics that a session has already.
_ABOUT_ANSWERS = (
    Hidden, Operations, MembersTopics, TransactionTopics, CreatedConfigs, ListedTopics, SharedTopics,
)  # fmt: skip
# Requests that have ids only, see docs/limits.md.
_BY_ID = {ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}


class Spied(dict[Any, Any]):
    """Notes the keys that are looked up."""

    def __init__(self, name: str, known: dict[Any, Any], seen: list[tuple[str, Any]]) -> None:
        super().__init__(known)
        self.name, self.seen = name, seen

    def __getitem__(self, key: Any) -> Any:
        self.seen.append((self.name, key))
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.seen.append((self.name, key))
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.seen.append((self.name, key))
        return super().__contains__(key)


def spied(broker: Broker) -> list[tuple[str, Any]]:
    """What is looked up from now on, in the metadata and among the partitions here."""
    seen: list[tuple[str, Any]] = []
    image = broker.image
    object.__setattr__(image, "topics", Spied("topic", dict(image.topics), seen))
    object.__setattr__(image, "topics_by_id", Spied("id", dict(image.topics_by_id), seen))
    broker.topics.partitions = Spied("partition", dict(broker.topics.partitions), seen)
    assert broker.topics.image is image
    return seen


def renamed(value: Any, name: str) -> Any:
    """The same, about another topic."""
    if isinstance(value, str):
        return name if value == TOPIC or value.startswith(NEW) else value
    if isinstance(value, list):
        return [renamed(item, name) for item in value]
    if isinstance(value, Message):
        return Message(**{field: renamed(item, name) for field, item in vars(value).items()})
    return value


def plain(value: Any) -> Any:
    """An answer without the name of the topic."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Message):
        return {field: plain(item) for field, item in vars(value).items()}
    return "NAME" if value in (TOPIC, MISSING) else value


def names_topics(case: Case) -> bool:
    return any(one.resource == ResourceType.TOPIC and one.hides is None for one in case.grants)


def versions_of(case: Case) -> list[int]:
    """The oldest and the newest version whose request has the topic's name."""
    found = []
    topic_id = UUID(int=1)
    for version in load_apis()[case.key].versions:
        if version in case.versions:
            request = case.build(topic_id, version)
            first, second = (
                encode_request(case.key, version, renamed(request, one)) for one in (TOPIC, MISSING)
            )
            if first != second:
                found.append(version)
    return sorted({*found[:1], *found[-1:]})


NAMING = [case for case in CASES if names_topics(case) and versions_of(case)]


@pytest.mark.promise(
    "access",
    "A topic that a client may not describe is not revealed: in each API that names topics, a denied "
    "name gets the same response and causes the same lookups whether the topic exists or not",
)
def test_every_api_of_the_table_that_names_topics_has_a_case_here() -> None:
    naming = {
        key
        for key, checks in RULES.items()
        if any(one.resource == ResourceType.TOPIC and not isinstance(one, _ABOUT_ANSWERS) for one in checks)
    }
    assert naming - _BY_ID == {case.key for case in NAMING}


@pytest.mark.parametrize("case", NAMING, ids=str)
def test_a_denied_name_gets_the_same_answer_by_the_same_look_ups_whether_it_exists_or_not(
    tmp_path: Path, case: Case
) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as (broker, client):
            await prepare(broker, client)
            topic_id = broker.image.topics[TOPIC].id
            others = [one for one in case.grants if one.resource != ResourceType.TOPIC]
            assert broker.authorizer is not None
            acls = [one for one in without(others, None) if one.resource_type != ResourceType.TOPIC]
            broker.authorizer.update({str(number): acl for number, acl in enumerate(acls)})
            seen = spied(broker)
            for version in versions_of(case):
                request = case.build(topic_id, version)
                outcomes = []
                for name in (TOPIC, MISSING, TOPIC, MISSING):
                    seen.clear()
                    answer = await client.request("alice", case.key, version, renamed(request, name))
                    assert NOT_AUTHORIZED in set(codes_in(answer)), (version, answer)
                    looked_up = [one for one in seen if name in one[1:] or name in _parts(one[1])]
                    outcomes.append((plain(answer), [plain_key(one) for one in looked_up]))
                assert outcomes[0] == outcomes[1] and outcomes[2] == outcomes[3], version

    asyncio.run(main())


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else ()


def plain_key(looked_up: tuple[str, Any]) -> tuple[str, Any]:
    kind, key = looked_up
    if isinstance(key, tuple):
        return kind, tuple("NAME" if part in (TOPIC, MISSING) else part for part in key)
    return kind, "NAME"


def test_look_ups_of_an_allowed_name_are_seen(tmp_path: Path) -> None:
    """Else the tests above would see nothing, whatever is looked up."""

    async def main() -> None:
        async with guarded_broker(tmp_path) as (broker, client):
            await prepare(broker, client)
            topic_id = broker.image.topics[TOPIC].id
            seen = spied(broker)
            for key, kind in (
                (ApiKey.METADATA, "topic"), (ApiKey.FETCH, "partition"), (ApiKey.LIST_OFFSETS, "partition")
            ):  # fmt: skip
                case = next(one for one in NAMING if one.key == key)
                version = versions_of(case)[0]
                seen.clear()
                await client.request("admin", key, version, case.build(topic_id, version))
                assert kind in {name for name, looked_up in seen if TOPIC in (looked_up, *_parts(looked_up))}

    asyncio.run(main())
