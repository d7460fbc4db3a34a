"""A leader that its group does not hear steps down, since another one may lead by now. Starts no Spark."""

from __future__ import annotations

import queue
import time

import pytest

from penstock.client import ClientSettings
from penstock.elected.elector import Elector
from penstock.elected.membership import Identity
from penstock.testing import PenstockBroker

ME = Identity("localhost", 18088)
pytestmark = pytest.mark.penstock(
    settings={"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
)


@pytest.mark.promise(
    "sql",
    "A leader (of SQL servers or registries) whose group coordinator does not respond for the session "
    "timeout steps down, and does not end transactions that its successor may have open",
)
@pytest.mark.parametrize("way", ["a broker that is gone", "a broker that hangs"])
def test_a_leader_whose_coordinator_does_not_answer_steps_down_and_leads_again_later(
    penstock: PenstockBroker, way: str
) -> None:
    heard: queue.Queue[Identity | None] = queue.Queue()
    settings = ClientSettings.from_kafka(
        {"bootstrap.servers": penstock.bootstrap, "request.timeout.ms": "60000"}
    )
    elector = Elector(settings, "g", ME, session_timeout_ms=3000, on_leader=heard.put, on_fenced=pytest.fail)
    elector.start()
    try:
        first = heard.get(timeout=60)
        assert first is not None and first.same(ME)
        if way == "a broker that is gone":
            penstock.kill()
        else:
            penstock.pause()
        assert heard.get(timeout=60) is None
        if way == "a broker that is gone":
            penstock.start()
        else:
            penstock.resume()
        deadline = time.monotonic() + 60
        while (leader := heard.get(timeout=60)) is None:
            assert time.monotonic() < deadline
        assert leader.same(ME)
    finally:
        elector.stop(5)
