"""The REST API: Kafka Connect's routes, shapes, status codes and messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connect.conftest import Topics, Worker, until

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


def config(tmp_path: Path, topic: str, **more: str) -> dict[str, str]:
    path = tmp_path / "lines"
    path.write_text("a\nb\n")
    return {
        "connector.class": FILE_SOURCE,
        "file": str(path),
        "topic": topic,
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        **more,
    }


def error(answer: object) -> tuple[int, str]:
    body = answer.json()
    assert body.keys() == {"error_code", "message"} and body["error_code"] == answer.status_code
    return body["error_code"], body["message"]


@pytest.mark.promise(
    "connect",
    "The REST API has Kafka Connect's routes, fields, status codes and messages; the calls of some tests "
    "are compared with Apache Kafka's Connect 4.1 (except versions, addresses, task classes and the list "
    "of available connectors); an error about an invalid setting names the setting",
)
def test_the_life_of_a_connector(worker: Worker, topics: Topics, tmp_path: Path, name: str) -> None:
    http, given = worker.http, config(tmp_path, name)
    answer = http.post("/connectors", json={"name": name, "config": given})
    assert answer.status_code == 201 and answer.headers["location"] == f"/connectors/{name}"
    body = answer.json()
    assert body.keys() == {"name", "config", "tasks", "type"}
    assert body["config"] == {**given, "name": name} and body["type"] == "source"
    assert error(http.post("/connectors", json={"name": name, "config": given})) == (
        409,
        f"Connector {name} already exists",
    )
    status = worker.until_running(name)
    assert status == {
        "name": name,
        "connector": {"state": "RUNNING", "worker_id": worker.id, "version": "0.1.0"},
        "tasks": [{"id": 0, "state": "RUNNING", "worker_id": worker.id, "version": "0.1.0"}],
        "type": "source",
    }
    assert http.get(f"/connectors/{name}").json()["tasks"] == [{"connector": name, "task": 0}]
    assert http.get(f"/connectors/{name}/config").json() == {**given, "name": name}
    assert http.get(f"/connectors/{name}/tasks").json()[0]["id"] == {"connector": name, "task": 0}
    assert http.get(f"/connectors/{name}/tasks/0/status").json()["state"] == "RUNNING"
    expanded = http.get("/connectors?expand=status&expand=info").json()[name]
    assert expanded["status"]["connector"]["state"] == "RUNNING" and expanded["info"]["name"] == name
    topics.read(name, 2)
    until(
        lambda: http.get(f"/connectors/{name}/topics").json() == {name: {"topics": [name]}},
        "its topic is listed",
    )
    assert http.put(f"/connectors/{name}/pause").status_code == 202
    worker.until_state(name, "PAUSED")
    worker.until_state(name, "PAUSED", None)
    (tmp_path / "lines").write_text("a\nb\nc\n")
    assert http.put(f"/connectors/{name}/resume").status_code == 202
    worker.until_running(name)
    assert [each.value() for each in topics.read(name, 3)] == [b"a", b"b", b"c"]
    assert http.post(f"/connectors/{name}/restart").status_code == 204
    assert http.post(f"/connectors/{name}/tasks/0/restart").status_code == 204
    changed = http.patch(f"/connectors/{name}/config", json={"batch.size": "7", "value.converter": None})
    assert changed.status_code == 200
    assert changed.json()["config"]["batch.size"] == "7" and "value.converter" not in changed.json()["config"]
    assert http.delete(f"/connectors/{name}").status_code == 204
    assert error(http.get(f"/connectors/{name}")) == (404, f"Connector {name} not found")
    until(lambda: http.get(f"/connectors/{name}/status").status_code == 404, "its status is gone")


@pytest.mark.promise(
    "connect",
    "The REST API has Kafka Connect's routes, fields, status codes and messages; the calls of some tests "
    "are compared with Apache Kafka's Connect 4.1 (except versions, addresses, task classes and the list "
    "of available connectors); an error about an invalid setting names the setting",
)
def test_offsets_are_shown_altered_and_reset(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    http, given = worker.http, config(tmp_path, name)
    worker.put(name, given)
    partition = {"filename": given["file"]}

    def at_end() -> bool:
        found = http.get(f"/connectors/{name}/offsets").json()["offsets"]
        return [(each["partition"], each["offset"]["position"]) for each in found] == [(partition, 4)]

    until(at_end, "the offset is committed")
    code, message = error(http.delete(f"/connectors/{name}/offsets"))
    assert code == 400 and "must be in the STOPPED state before their offsets can be modified" in message
    assert http.put(f"/connectors/{name}/stop").status_code == 204
    worker.until_state(name, "STOPPED", None)
    until(lambda: worker.status(name)["tasks"] == [], "it has no tasks")
    wanted = {"offsets": [{"partition": partition, "offset": {"position": 2}}]}
    answer = until(
        lambda: (a := http.patch(f"/connectors/{name}/offsets", json=wanted)).status_code == 200 and a,
        "the offsets are altered",
    )
    assert answer.json() == {"message": "The offsets for this connector have been altered successfully"}
    bad = {"offsets": [{"partition": partition, "offset": {"position": "x"}}]}
    assert error(http.patch(f"/connectors/{name}/offsets", json=bad))[0] == 400
    assert http.get(f"/connectors/{name}/offsets").json() == wanted
    http.put(f"/connectors/{name}/resume")
    assert [each.value() for each in topics.read(name, 3)] == [b"a", b"b", b"b"]
    worker.until_running(name)
    http.put(f"/connectors/{name}/stop")
    worker.until_state(name, "STOPPED", None)
    answer = until(
        lambda: (a := http.delete(f"/connectors/{name}/offsets")).status_code == 200 and a,
        "the offsets are reset",
    )
    assert answer.json() == {"message": "The offsets for this connector have been reset successfully"}
    assert http.get(f"/connectors/{name}/offsets").json() == {"offsets": []}


@pytest.mark.promise(
    "connect",
    "The REST API has Kafka Connect's routes, fields, status codes and messages; the calls of some tests "
    "are compared with Apache Kafka's Connect 4.1 (except versions, addresses, task classes and the list "
    "of available connectors); an error about an invalid setting names the setting",
)
def test_a_bad_configuration_is_refused_by_the_name_of_the_field(worker: Worker, name: str) -> None:
    http = worker.http
    missing = {"connector.class": FILE_SOURCE, "tasks.max": "many"}
    code, message = error(http.put(f"/connectors/{name}/config", json=missing))
    assert code == 400 and message.startswith(
        "Connector configuration is invalid and contains the following 3 error(s):\n"
    )
    assert 'Missing required configuration "file" which has no default value.' in message
    assert "Invalid value many for configuration tasks.max: Not a number of type INT" in message
    path = f"/connector-plugins/{FILE_SOURCE}/config/validate"
    found = http.put(path, json={"name": name, **missing}).json()
    assert found["error_count"] == 3 and found["name"] == FILE_SOURCE
    by_name = {each["definition"]["name"]: each for each in found["configs"]}
    assert by_name["file"]["value"]["errors"] == [
        'Missing required configuration "file" which has no default value.'
    ]
    assert by_name["tasks.max"]["definition"] | {"documentation": ""} == {
        "name": "tasks.max",
        "type": "INT",
        "required": False,
        "default_value": "1",
        "importance": "HIGH",
        "documentation": "",
        "group": "Common",
        "width": "SHORT",
        "display_name": "Tasks max",
        "dependents": [],
        "order": 3,
    }
    good = {"connector.class": FILE_SOURCE, "file": "f", "topic": "t", "name": name}
    for wrong, text in (
        ({"transforms": "x"}, "transforms.x.type"),
        ({"transforms": "x", "transforms.x.type": "InsertFeld$Value"}, "InsertField$Value"),
        ({"transforms": "x", "transforms.x.type": "MaskField$Value"}, "transforms.x.fields"),
        ({"value.converter": "AvroConverter"}, "value.converter.schema.registry.url"),
        ({"errors.tolerance": "some"}, "errors.tolerance"),
        ({"topic": "${file:/nowhere:topic}"}, "/nowhere cannot be read"),
        ({"name": "other"}, "doesn't match connector name in the URL"),
    ):
        code, message = error(http.put(f"/connectors/{name}/config", json={**good, **wrong}))
        assert code == 400 and text in message, message
    assert name not in http.get("/connectors").json()


@pytest.mark.promise(
    "connect",
    "The REST API has Kafka Connect's routes, fields, status codes and messages; the calls of some tests "
    "are compared with Apache Kafka's Connect 4.1 (except versions, addresses, task classes and the list "
    "of available connectors); an error about an invalid setting names the setting",
)
def test_unknown_things_are_named(worker: Worker, name: str) -> None:
    http = worker.http
    assert error(http.get("/connectors/none/config")) == (404, "Connector none not found")
    assert error(http.get("/connectors/none/status")) == (404, "No status found for connector none")
    assert error(http.put("/connectors/none/pause")) == (404, "Unknown connector none")
    assert error(http.delete("/connectors/none")) == (404, "Connector none not found")
    assert error(http.get("/nothing")) == (404, "HTTP 404 Not Found")
    assert error(http.post("/connectors/none/config", json={})) == (405, "HTTP 405 Method Not Allowed")
    assert error(http.post("/connectors", json={"name": name, "config": {"a": "b"}}))[0] == 400
    code, message = error(
        http.post("/connectors", json={"name": name, "config": {"connector.class": "FileStreamSorce"}})
    )
    assert code == 400 and "Failed to find any class that implements Connector" in message
    assert "Did you mean FileStreamSource?" in message
    text = {"content-type": "application/json"}
    assert error(http.post("/connectors", content=b"{", headers=text))[0] == 400
    assert http.post("/connectors", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    assert http.get("/connectors", headers={"host": "evil.example"}).status_code in (400, 403, 421)


@pytest.mark.promise(
    "connect",
    "A task that crashes, fails or blocks does not affect other tasks; it is restarted up to a limit, "
    "and its status has the trace",
)
def test_a_validator_that_ends_its_process_does_not_end_the_worker(worker: Worker, name: str) -> None:
    config = {
        "connector.class": "trial_connectors.NumbersSource",
        "topic": "t",
        "misbehave": "end the process",
    }
    code, message = error(worker.http.put(f"/connectors/{name}/config", json=config))
    assert code == 500 and "exit code 3" in message
    assert worker.http.get("/connector-plugins").status_code == 200


@pytest.mark.promise(
    "connect",
    "The REST API has Kafka Connect's routes, fields, status codes and messages; the calls of some tests "
    "are compared with Apache Kafka's Connect 4.1 (except versions, addresses, task classes and the list "
    "of available connectors); an error about an invalid setting names the setting",
)
def test_the_worker_describes_itself(worker: Worker) -> None:
    http = worker.http
    root = http.get("/").json()
    assert root.keys() == {"version", "commit", "kafka_cluster_id"} and root["kafka_cluster_id"]
    assert http.get("/health").json()["status"] == "healthy"
    plugins = {each["class"]: each for each in http.get("/connector-plugins").json()}
    found = plugins["penstock.connect.connectors.file_stream.FileStreamSource"]
    assert found.keys() == {"class", "type", "version"} and found["type"] == "source"
    kinds = {each["type"] for each in http.get("/connector-plugins?connectorsOnly=false").json()}
    assert kinds == {"source", "sink", "converter", "header_converter", "transformation", "predicate"}
    fields = http.get("/connector-plugins/FileStreamSink/config").json()
    assert {"topics", "file", "errors.deadletterqueue.topic.name"} <= {each["name"] for each in fields}
    assert "root" in http.get("/admin/loggers").json()
    assert http.put("/admin/loggers/penstock.connect", json={"level": "DEBUG"}).status_code == 200
    assert http.get("/admin/loggers/penstock.connect").json()["level"] == "DEBUG"
    assert error(http.put("/admin/loggers/root", json={"level": "LOUD"})) == (
        404,
        "invalid log level 'LOUD'.",
    )
    assert error(http.put("/admin/loggers/root", json={}))[0] == 400
    http.put("/admin/loggers/penstock.connect", json={"level": "INFO"})
    # A connector may log under a name that the worker does not know.
    assert http.put("/admin/loggers/made.up", json={"level": "WARN"}).json() == ["made.up"]
    deep = {"content": b"[" * 200_000, "headers": {"content-type": "application/json"}}
    assert error(http.put("/admin/loggers/root", **deep))[0] == 400
