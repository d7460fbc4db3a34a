"""Apache Kafka's own Connect and Penstock's, on the same broker: the same calls get the same answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.connect.apache import SINK, SOURCE, answer
from tests.connect.conftest import Topics, Worker, until

pytestmark = [pytest.mark.tools, pytest.mark.timeout(400)]


@pytest.mark.promise(
    "connect",
    "The REST API has Kafka Connect's routes, fields, status codes and messages; the calls of some tests "
    "are compared with Apache Kafka's Connect 4.1 (except versions, addresses, task classes and the list "
    "of available connectors); an error about an invalid setting names the setting",
)
def test_the_same_calls_get_the_same_answers(apache: httpx.Client, worker: Worker, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    config = {"connector.class": SOURCE, "file": str(lines), "topic": "compared", "tasks.max": "1"}
    partition = {"filename": str(lines)}
    sides = (apache, worker.http)

    def same(method: str, path: str, body: Any = None) -> Any:
        theirs, ours = (answer(client, method, path, body) for client in sides)
        assert ours == theirs, f"{method} {path} {body}"
        return ours

    def until_same(path: str, check: Any) -> None:
        for client in sides:
            until(lambda c=client: check(answer(c, "GET", path, None)[1]), path)
        same("GET", path)

    def states(*wanted: str) -> Any:
        return lambda found: (
            [found.get("connector", {}).get("state"), *(t["state"] for t in found.get("tasks", ()))]
            == list(wanted)
        )

    same("GET", "/connectors")
    same("GET", "/health")
    same("GET", "/nothing")
    same("DELETE", "/connectors")
    same("POST", "/connectors", {"name": "a", "config": config})
    same("POST", "/connectors", {"name": "a", "config": config})
    until_same("/connectors/a/status", states("RUNNING", "RUNNING"))
    for path in ("", "/config", "/tasks", "/tasks/0/status", "/tasks/9/status"):
        same("GET", f"/connectors/a{path}")
    same("GET", "/connectors?expand=status&expand=info")
    until_same("/connectors/a/topics", lambda found: found == {"a": {"topics": ["compared"]}})
    for client in sides:  # the offset of a source is its own affair; ours has more fields
        until(
            lambda c=client: (
                [
                    (each["partition"], each["offset"]["position"])
                    for each in answer(c, "GET", "/connectors/a/offsets", None)[1]["offsets"]
                ]
                == [(partition, 4)]
            ),
            "the offsets are committed",
        )
    offsets = {"offsets": [{"partition": partition, "offset": {"position": 2}}]}
    same("PATCH", "/connectors/a/offsets", offsets)
    same("DELETE", "/connectors/a/offsets")
    same("PUT", "/connectors/a/pause")
    until_same("/connectors/a/status", states("PAUSED", "PAUSED"))
    same("PUT", "/connectors/a/resume")
    until_same("/connectors/a/status", states("RUNNING", "RUNNING"))
    same("POST", "/connectors/a/restart?includeTasks=true&onlyFailed=true")
    same("POST", "/connectors/a/restart?includeTasks=true")
    until_same("/connectors/a/status", states("RUNNING", "RUNNING"))
    same("POST", "/connectors/a/tasks/7/restart")
    same("PATCH", "/connectors/a/config", {"batch.size": "10"})
    same("PUT", "/connectors/a/config", config)
    same("PUT", "/connectors/a/config", {**config, "name": "b"})
    same("PUT", "/connectors/a/config", {"connector.class": SOURCE, "file": "f"})
    same("POST", "/connectors", {"name": "", "config": config})
    same("POST", "/connectors", {"config": config})
    same("POST", "/connectors", {"name": "x", "config": {"connector.class": "Nope"}})
    same("PUT", "/connectors/a/topics/reset")
    same("POST", "/connectors/a/restart")
    until_same("/connectors/a/status", states("RUNNING", "RUNNING"))
    same("POST", "/connectors/a/tasks/0/restart")
    until_same("/connectors/a/status", states("RUNNING", "RUNNING"))
    for state in ("STOPPED", "PAUSED"):
        name = f"initially-{state}"
        same(
            "POST", "/connectors", {"name": name, "config": {**config, "name": name}, "initial_state": state}
        )
    until_same("/connectors/initially-STOPPED/status", states("STOPPED"))
    until_same(
        "/connectors/initially-PAUSED/status",
        lambda found: found.get("connector", {}).get("state") == "PAUSED",
    )
    same("DELETE", "/connectors/initially-STOPPED")
    same("DELETE", "/connectors/initially-PAUSED")
    same("GET", "/")
    same("PUT", "/admin/loggers/root?scope=cluster", {})
    same("PUT", "/connectors/a/stop")
    until_same("/connectors/a/status", states("STOPPED"))
    same("GET", "/connectors/a/tasks")
    same("PATCH", "/connectors/a/offsets", offsets)
    same("GET", "/connectors/a/offsets")
    same("PATCH", "/connectors/a/offsets", {"offsets": []})
    same("PATCH", "/connectors/a/offsets", {})
    same("DELETE", "/connectors/a/offsets")
    same("GET", "/connectors/a/offsets")
    for path in ("", "/status", "/config", "/tasks", "/topics", "/offsets"):
        same("GET", f"/connectors/zz{path}")
    for path in ("pause", "resume", "stop"):
        same("PUT", f"/connectors/zz/{path}")
    for path in ("restart", "restart?includeTasks=true", "tasks/0/restart"):
        same("POST", f"/connectors/zz/{path}")
    same("DELETE", "/connectors/zz")
    same("PATCH", "/connectors/zz/config", {})
    same("GET", "/connector-plugins/Nope/config")
    same("PUT", "/admin/loggers/root", {})
    same("DELETE", "/connectors/a")


@pytest.mark.promise(
    "connect",
    "The REST API has Kafka Connect's routes, fields, status codes and messages; the calls of some tests "
    "are compared with Apache Kafka's Connect 4.1 (except versions, addresses, task classes and the list "
    "of available connectors); an error about an invalid setting names the setting",
)
def test_offsets_of_a_sink_get_the_same_answers(
    apache: httpx.Client, worker: Worker, topics: Topics, tmp_path: Path
) -> None:
    """One broker has the groups of both sides, so the connectors have two names."""
    topics.write("sunk", b'"a"', b'"b"', b'"c"')
    sides = ((apache, "theirs-1"), (worker.http, "our-own1"))

    def both(method: str, path: str, body: Any = None) -> tuple[Any, Any]:
        found = [answer(client, method, f"/connectors/{name}{path}", body) for client, name in sides]
        texts = [
            json.dumps(each, sort_keys=True).replace(name, "NAME")
            for each, (_, name) in zip(found, sides, strict=True)
        ]
        return texts[0], texts[1]

    def same(method: str, path: str, body: Any = None) -> None:
        theirs, ours = both(method, path, body)
        assert ours == theirs, f"{method} {path} {body}"

    for client, name in sides:
        sink = {"connector.class": SINK, "topics": "sunk", "file": str(tmp_path / name)}
        sink["value.converter"] = "org.apache.kafka.connect.storage.StringConverter"
        assert client.put(f"/connectors/{name}/config", json=sink).status_code == 201
        until(
            lambda c=client, n=name: (
                '"kafka_offset": 3' in json.dumps(answer(c, "GET", f"/connectors/{n}/offsets", None)[1])
            ),
            "the offsets are committed",
        )
    same("GET", "/offsets")

    def altered(partition: Any, offset: Any) -> Any:
        return {"offsets": [{"partition": partition, "offset": offset}]}

    place = {"kafka_topic": "sunk", "kafka_partition": 0}
    same("PATCH", "/offsets", altered(place, {"kafka_offset": 1}))
    same("DELETE", "/offsets")
    for client, name in sides:
        assert client.put(f"/connectors/{name}/stop").status_code == 204
        until(
            lambda c=client, n=name: (
                answer(c, "PATCH", f"/connectors/{n}/offsets", altered(place, {"kafka_offset": 2}))[0] == 200
            ),
            "the sink is stopped",
        )
    same("GET", "/offsets")
    same("PATCH", "/offsets", altered(place, {"kafka_offset": 1}))
    same("GET", "/offsets")
    for partition, offset in (
        ({"kafka_topic": "sunk"}, {"kafka_offset": 1}),
        ({"kafka_partition": 0}, {"kafka_offset": 1}),
        ({**place, "kafka_partition": "x"}, {"kafka_offset": 1}),
        ({**place, "more": 1}, {"kafka_offset": 1}),
        (place, {"kafka_offset": "x"}),
        (place, {"offset": 1}),
    ):
        theirs, ours = both("PATCH", "/offsets", altered(partition, offset))
        assert json.loads(ours)[0] == json.loads(theirs)[0], f"{ours} {theirs}"
    same("GET", "/offsets")
    same("DELETE", "/offsets")
    same("GET", "/offsets")
    same("DELETE", "")
