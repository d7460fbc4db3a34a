"""Several registries on one topic: one writes, all answer, and no id is given twice whatever happens."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from penstock.elected.membership import (
    DUPLICATE_URLS,
    NO_ERROR,
    Identity,
    assign,
    decode_assignment,
    decode_identity,
)
from tests.registry.conftest import wait_until
from tests.registry.test_api import record, register
from tests.registry.test_topic import read_all

FAST = ("--session-timeout-ms", "2000")


def identity(port, **more):
    return Identity("127.0.0.1", port, **more)


def test_the_leader_stays_and_without_one_the_smallest_url_leads():
    members = {"x": identity(3), "y": identity(1), "z": identity(2)}
    assert assign(members).leader == identity(1)
    members["x"] = identity(3, leader=True)
    assert assign(members).leader_id == "x"
    members["z"] = identity(2, leader=True)
    assert assign(members).leader_id == "y", "two that both say so are none"
    assert assign({"a": identity(1, eligible=False)}).leader is None
    assert assign({"a": identity(1), "b": identity(1)}).error == DUPLICATE_URLS


def test_identities_and_assignments_are_confluents_json():
    theirs = (
        b'{"host":"kafka","port":8081,"master_eligibility":true,"scheme":"https","version":1,"leader":false}'
    )
    assert decode_identity(theirs) == Identity("kafka", 8081, "https")
    assert json.loads(Identity("kafka", 8081, "https").encode()) == json.loads(theirs)
    assignment = decode_assignment(
        b'{"version":1,"error":0,"master":"sr-1","master_identity":' + theirs + b',"more":1}'
    )
    assert (assignment.error, assignment.leader.url) == (NO_ERROR, "https://kafka:8081")
    assert decode_assignment(assignment.encode()) == assignment
    with pytest.raises(ValueError):
        decode_identity(b"[]")


@pytest.mark.promise(
    "registry", "Followers forward writes to the leader, and their clients can read them at once"
)
@pytest.mark.timeout(240)
def test_followers_forward_writes_and_read_them_at_once(broker, registries):
    options = ("--topic", "two", "--group", "two", *FAST)
    started = [registries.start(broker.bootstrap, *options, wait=False) for _ in range(2)]
    started = [registry.wait() for registry in started]
    wait_until(lambda: sum(registry.leads for registry in started) == 1)
    leader, follower = sorted(started, key=lambda registry: not registry.leads)
    with leader.client() as first, follower.client() as second:
        for index in range(5):
            schema_id = register(second, f"s{index}", record(f"f{index}"))
            assert second.get(f"/schemas/ids/{schema_id}").status_code == 200, "a client reads its own write"
            assert first.get(f"/subjects/s{index}/versions/1").json()["id"] == schema_id
        # A schema registered at one is found at the other by its id, at once.
        for index in range(5):
            schema_id = register(first, f"t{index}", record(f"g{index}"))
            assert second.get(f"/schemas/ids/{schema_id}").status_code == 200
        answer = second.post("/subjects/s0/versions", json={"schema": "{"})
        assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)
        assert second.put("/config/s0", json={"compatibility": "NONE"}).json() == {"compatibility": "NONE"}
        assert second.get("/config/s0").json() == {"compatibilityLevel": "NONE"}
        assert second.delete("/subjects/s1").json() == [1]
        assert second.get("/subjects/s1/versions").status_code == 404
    assert leader.stop() == 0
    wait_until(lambda: follower.leads)  # at once: it was told
    with follower.client() as http:
        register(http, "after", record("after"))


class Load:
    """Clients that register schemas of their own until they are stopped, and remember the answers."""

    def __init__(self, urls: list[str]) -> None:
        self.answers: dict[str, set[int]] = {}
        self.failures: list[str] = []
        self._urls = urls
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(4)
        self._running = [self._pool.submit(self._run, number) for number in range(4)]

    def _run(self, number: int) -> None:
        count = tries = 0
        with httpx.Client(timeout=60, trust_env=False) as http:
            while not self._stop.is_set():
                name = f"c{number}_{count}"
                url = self._urls[(number + tries) % len(self._urls)]
                tries += 1
                try:
                    answer = http.post(f"{url}/subjects/{name}/versions", json={"schema": record(name)})
                except httpx.HTTPError:
                    continue  # the one that was killed, or paused
                if answer.status_code == 200:
                    with self._lock:
                        self.answers.setdefault(name, set()).add(answer.json()["id"])
                    count += 1
                elif answer.json()["error_code"] not in (50002, 50003, 50004):
                    self.failures.append(answer.text)
                    return

    def reached(self, count: int) -> bool:
        assert not self.failures, self.failures
        with self._lock:
            return len(self.answers) >= count

    def stop(self) -> dict[str, int]:
        """What was registered: each name has had one id, and no id two names."""
        self._stop.set()
        for running in self._running:
            running.result()
        self._pool.shutdown()
        assert not self.failures, self.failures
        assert all(len(ids) == 1 for ids in self.answers.values()), "one schema, two ids"
        found = {name: ids.pop() for name, ids in self.answers.items()}
        assert len(set(found.values())) == len(found), "one id, two schemas"
        return found


def check_topic(bootstrap: str, topic: str, registered: dict[str, int]) -> None:
    """In the topic, too, each id is of one schema, and what was answered is there."""
    by_id: dict[int, str] = {}
    for key, value in read_all(bootstrap, topic):
        if json.loads(key)["keytype"] == "SCHEMA" and value is not None:
            fields = json.loads(value)
            assert by_id.setdefault(fields["id"], fields["schema"]) == fields["schema"], "an id given twice"
    assert set(registered.values()) <= set(by_id)


@pytest.mark.promise(
    "registry", "No id is assigned twice, even if the leader is killed or returns after a pause"
)
@pytest.mark.timeout(300)
def test_a_leader_killed_under_load_loses_nothing_and_no_id_is_given_twice(broker, registries):
    options = ("--topic", "killed", "--group", "killed", *FAST)
    started = [registries.start(broker.bootstrap, *options, wait=False) for _ in range(3)]
    started = [registry.wait() for registry in started]
    wait_until(lambda: sum(registry.leads for registry in started) == 1)
    load = Load([registry.url for registry in started])
    wait_until(lambda: load.reached(40))
    leader = next(registry for registry in started if registry.leads)
    leader.kill()
    survivors = [registry for registry in started if registry is not leader]
    wait_until(lambda: any(registry.leads for registry in survivors))
    before = len(load.answers)
    wait_until(lambda: load.reached(before + 40))
    registered = load.stop()
    for registry in survivors:
        with registry.client() as http:
            for name, schema_id in registered.items():
                assert http.get(f"/subjects/{name}/versions/1").json()["id"] == schema_id
    check_topic(broker.bootstrap, "killed", registered)


@pytest.mark.promise(
    "registry", "No id is assigned twice, even if the leader is killed or returns after a pause"
)
@pytest.mark.timeout(300)
def test_a_leader_that_was_paused_and_comes_back_cannot_write(broker, registries):
    options = ("--topic", "paused", "--group", "paused", *FAST)
    started = [registries.start(broker.bootstrap, *options, wait=False) for _ in range(2)]
    started = [registry.wait() for registry in started]
    wait_until(lambda: sum(registry.leads for registry in started) == 1)
    old, new = sorted(started, key=lambda registry: not registry.leads)
    with old.client() as http:
        register(http, "first", record("first"))
    old.signal(signal.SIGSTOP)
    wait_until(lambda: new.leads)
    with new.client() as http:
        given = register(http, "while", record("while_paused"))
    # Sent before it wakes up: it is read by a registry that still believes to lead.
    with ThreadPoolExecutor(1) as pool, old.client() as http:
        late = pool.submit(http.post, "/subjects/late/versions", json={"schema": record("late")})
        old.signal(signal.SIGCONT)
        answer = late.result()
    assert answer.status_code == 200 and answer.json()["id"] == given + 1
    check_topic(broker.bootstrap, "paused", {"while": given, "late": given + 1})
    with new.client() as http:
        assert http.get("/subjects").json() == ["first", "late", "while"]
