"""The catalog's topic and who leads, with real groups on a real broker; no Spark is started."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from penstock.client import ClientSettings
from penstock.elected.elector import Elector
from penstock.elected.errors import CannotStart
from penstock.elected.membership import Identity
from penstock.sql.catalog.catalog import TOPIC, Record
from penstock.sql.catalog.log import PROTOCOL_TYPE, CatalogLog, LogSettings
from penstock.sql.errors import Unavailable

pytestmark = pytest.mark.penstock(
    settings={"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
)


class Followed:
    """A log, and what it said of leading."""

    def __init__(self, bootstrap: str, port: int) -> None:
        self.leads = threading.Event()
        self.follows = threading.Event()
        self.log = CatalogLog(
            LogSettings({"bootstrap.servers": bootstrap}, session_timeout_ms=2000),
            Identity("127.0.0.1", port),
            on_change=lambda leads: (self.leads if leads else self.follows).set(),
        )
        self.log.start()


@pytest.fixture
def logs(penstock) -> Iterator[Callable[[int], Followed]]:
    opened: list[Followed] = []

    def open_log(port: int) -> Followed:
        opened.append(Followed(penstock.bootstrap, port))
        return opened[-1]

    yield open_log
    for each in opened:
        each.log.close()


def number(value: int) -> Record:
    return Record("number/x", {"next": value})


def test_the_leader_writes_and_all_read(penstock, logs):
    first = logs(1)
    assert first.leads.wait(30) and first.log.leads
    first.log.write([number(7)])
    assert first.log.catalog.numbers.get("x") == 7, "what was written is there when write returns"
    second = logs(2)
    assert second.log.catalog.numbers.get("x") == 7, "all of it is read before it starts"
    assert second.log.wait_for_leader(30) and second.log.leader is not None
    assert second.log.leader.url == "http://127.0.0.1:1" and not second.log.leads
    with pytest.raises(Unavailable):
        second.log.write([number(9)])
    first.log.write([number(8)])
    assert first.log.catalog.numbers.get("x") == 8


@pytest.mark.promise(
    "sql",
    "Any server forwards statements to the leader; if the leader fails another server takes over; a "
    "leader that was paused is fenced",
)
def test_another_one_takes_over_when_the_leader_leaves(penstock, logs):
    first, second = logs(1), logs(2)
    assert first.leads.wait(30)
    first.log.write([number(5)])
    first.log.close()
    assert second.leads.wait(60)
    assert second.log.catalog.numbers.get("x") == 5
    second.log.write([number(6)])
    assert second.log.catalog.numbers.get("x") == 6


@pytest.mark.promise(
    "access",
    "Credentials are forwarded only to a leader that its topic names; membership of the group is not "
    "sufficient",
)
def test_a_member_that_does_not_write_the_topic_is_no_leader(penstock, logs):
    first, second = logs(2), logs(3)
    assert first.leads.wait(30) and second.log.wait_for_leader(30)
    heard: queue.Queue[Identity | None] = queue.Queue()
    impostor = Elector(
        ClientSettings.from_kafka({"bootstrap.servers": penstock.bootstrap, "request.timeout.ms": "60000"}),
        "penstock-sql",
        Identity("127.0.0.1", 1, leader=True),
        session_timeout_ms=2000,
        protocol_type=PROTOCOL_TYPE,
        on_leader=heard.put,
        on_fenced=pytest.fail,
    )
    impostor.start()
    try:
        while (leader := heard.get(timeout=60)) is None or leader.port != 1:
            pass
        assert first.follows.wait(60), "the group has chosen it"
        assert first.log.leader is None and not first.log.wait_for_leader(0.01)
        assert second.log.leader is None or second.log.leader.port == 2
    finally:
        impostor.stop(5)
    assert second.log.wait_for_leader(60)


def test_a_server_that_starts_again_leads_at_once_and_has_everything(penstock, logs):
    first = logs(1)
    assert first.leads.wait(30)
    first.log.write([number(3), Record("relation/gone", None), Record("of a newer Penstock", {"x": 1})])
    first.log.close()
    again = logs(1)
    assert again.leads.wait(60) and again.log.catalog.numbers.get("x") == 3


def test_the_topic_is_made_compacted_and_another_kind_is_refused(penstock, logs):
    first = logs(1)
    assert first.leads.wait(30)
    penstock.produce(TOPIC, [(b"relation/x", b"no json"), (b"query/x", b'{"id": 1}')])
    first.log.write([number(2)])
    assert first.log.catalog.numbers.get("x") == 2, "records that nobody can have meant are passed over"
    first.log.close()
    penstock.delete_topic(TOPIC)
    penstock.create_topic(TOPIC, partitions=1)
    with pytest.raises(CannotStart, match="compact"):
        logs(2)
    penstock.delete_topic(TOPIC)
    penstock.create_topic(TOPIC, partitions=2, config={"cleanup.policy": "compact"})
    with pytest.raises(CannotStart, match="partitions"):
        logs(2)


def test_what_cannot_start_says_why():
    log = CatalogLog(
        LogSettings({"bootstrap.servers": "127.0.0.1:1"}, start_timeout=1.0), Identity("127.0.0.1", 1)
    )
    with pytest.raises(CannotStart, match="no broker answers"):
        log.start()
    log.close()
