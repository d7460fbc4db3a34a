"""Who counts as the leader of servers that elect one, and what it is sent. No cluster is started."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.connect.worker.configs import ConfigState, session_key_record
from penstock.elected.elector import Elector
from penstock.elected.forwarding import Forwarder
from penstock.elected.leadership import Leadership
from penstock.elected.membership import NO_ERROR, Assignment, Identity, assign
from penstock.registry.planning import lost_record
from penstock.registry.records import encode_key, encode_value
from penstock.registry.state import State
from penstock.sql.catalog import catalog as plans
from penstock.sql.catalog.catalog import Catalog
from penstock.wire.codec import Message

HTTPS, PLAIN = Identity("a", 2, "https"), Identity("a", 1, "http", leader=True)


@pytest.mark.promise(
    "access",
    "Credentials that came over TLS are not forwarded without TLS: an https server does not accept an "
    "http leader",
)
def test_an_https_server_does_not_choose_a_leader_without_tls():
    members = {"x": HTTPS, "y": PLAIN}
    assert assign(members, HTTPS.url).leader == HTTPS
    assert assign({"y": PLAIN}, HTTPS.url).leader is None
    assert assign(members, "http://a:3").leader == PLAIN


@pytest.mark.parametrize(("mine", "accepted"), [(HTTPS, None), (Identity("a", 3), PLAIN)])
def test_an_assignment_to_a_leader_without_tls_is_not_accepted_by_an_https_server(mine, accepted):
    """Whoever the coordinator makes the group's leader assigns, and may be any member."""
    heard = []

    class Coordinator:
        def request(self, api_key, request):
            return Message(error_code=0, assignment=Assignment(NO_ERROR, "y", PLAIN).encode())

    elector = Elector(None, "g", mine, session_timeout_ms=3000, on_leader=heard.append, on_fenced=pytest.fail)
    elector._sync(Coordinator(), [])
    assert heard == [accepted]


@pytest.mark.promise(
    "access",
    "Credentials that came over TLS are not forwarded without TLS: an https server does not accept an "
    "http leader",
)
def test_no_login_is_forwarded_from_tls_to_plain_text(impostor):
    leader = Identity("127.0.0.1", impostor.server_port, "http", leader=True)

    async def forward(url):
        forwarder = Forwarder(url, verify=True, timeout=30, not_leader=lambda *_: False, failed=RuntimeError)
        headers = {"authorization": "Basic c2VjcmV0"}
        try:
            return await forwarder.send(leader, "POST", "/x", headers, b"", repeatable=True)
        finally:
            await forwarder.close()

    assert asyncio.run(forward("https://me:1")) is None and impostor.requests == []
    assert asyncio.run(forward("http://me:1")).status == 200
    assert impostor.requests[0]["authorization"] == "Basic c2VjcmV0"


class Topic:
    """What a leadership asks of a store that another server writes."""

    def __init__(self) -> None:
        self.leader: str | None = None
        self.empty = True
        self.on_applied = lambda: None

    async def step_down(self) -> None:
        pass

    def read(self, leader: str | None) -> None:
        self.leader, self.empty = leader, False
        self.on_applied()


@pytest.mark.promise(
    "access",
    "Credentials are forwarded only to a leader that its topic names; membership of the group is not "
    "sufficient",
)
def test_a_leader_counts_when_the_topic_names_it():
    async def follow():
        topic, loop = Topic(), asyncio.get_running_loop()
        me, leader, impostor = (Identity("h", port) for port in (1, 2, 3))

        async def nothing() -> None: ...

        leadership = Leadership(topic, me, write_timeout=1, first=nothing)
        leadership.leader_is(leader)
        assert leadership.leader is None, "a topic that nobody has written has no leader"
        waiting = loop.create_task(leadership.known(loop.time() + 60))
        await asyncio.sleep(0)
        topic.read(leader.url)
        assert await waiting and leadership.leader == leader
        leadership.leader_is(impostor)
        assert leadership.leader is None
        assert not await leadership.known(loop.time())
        topic.read(leader.url)
        assert leadership.leader is None, "more of the old leader's records"
        topic.read(None)
        assert leadership.leader == impostor, "a server that does not write its URL has taken over"
        leadership.leader_is(None)
        assert leadership.leader is None

    asyncio.run(follow())


def test_each_state_knows_who_took_its_topic_over():
    url = "https://h:1"
    connect = ConfigState()
    connect.apply(*session_key_record(b"k" * 32, 0, url), 0, None)
    assert connect.leader == url and connect.session_key == b"k" * 32
    connect.apply(b"session-key", b'{"key":"", "leader":7}', 1, None)
    assert connect.leader is None
    registry = State()
    for record in (lost_record(registry, leader=url), None):
        record = record or lost_record(registry)  # written later, with a deletion
        registry.apply(encode_key(record.key), encode_value(record.value), 0, None)
        assert registry.leader == url
    registry.apply(b'{"keytype":"NOOP","magic":0}', None, 1, None)  # as Confluent's registry writes it
    assert registry.leader is None
    sql = Catalog().apply(plans.server_record(url))
    sql = sql.apply(plans.leader_record(sql))
    assert (sql.leader, sql.epoch) == (url, 1)
    older = plans.Record.decode(b"leader/epoch", json.dumps({"epoch": 2}).encode())
    assert sql.apply(older).leader is None
