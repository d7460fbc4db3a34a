"""What Apache Kafka's Connect and Penstock's answer about plugins, their settings and loggers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.connect.apache import SINK, SOURCE, answer
from tests.connect.conftest import Worker

pytestmark = [pytest.mark.tools, pytest.mark.timeout(400)]

TRANSFORMS = "org.apache.kafka.connect.transforms."
JSON = "org.apache.kafka.connect.json.JsonConverter"
OURS = {
    "penstock.connect.connectors.file_stream.FileStreamSink": SINK,
    "penstock.connect.connectors.file_stream.FileStreamSource": SOURCE,
}
# Versions of plugins (KIP-891), and a topic of a connector's own for offsets, are not supported; a converter
# is told by other means whether it is for keys.
MISSING = re.compile(r"(.*\.)?plugin\.version|offsets\.storage\.topic|(.*\.)?converter\.type")
MORE = re.compile(r"penstock\..*|topic\.creation\.default\..*")
# Ours needs a file: a task has no standard input.
DIFFERENT = {("file", "required")}
SAME = ("type", "required", "default_value", "importance", "group", "width", "display_name", "dependents")


def plugins(client: httpx.Client, query: str) -> dict[tuple[str, str], Any]:
    found = answer(client, "GET", f"/connector-plugins{query}", None)[1]
    for each in found:
        each["class"] = OURS.get(each["class"], each["class"])
    return {(each["class"], each["type"]): each for each in found}


def compare_definitions(where: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    assert [name for name in theirs if name not in ours and not MISSING.fullmatch(name)] == [], where
    assert [name for name in ours if name not in theirs and not MORE.fullmatch(name)] == [], where
    for name in theirs.keys() & ours.keys():
        assert theirs[name].keys() == ours[name].keys()
        for part in SAME:
            if (name, part) not in DIFFERENT:
                assert ours[name][part] == theirs[name][part], (where, name, part)


@pytest.mark.promise(
    "connect",
    "`/connector-plugins` lists Kafka's transforms, predicates and converters, and their settings and those "
    "of connectors are described as by Apache Kafka's Connect 4.1",
)
def test_plugins_and_their_settings_are_listed_as_by_kafka(apache: httpx.Client, worker: Worker) -> None:
    sides = (apache, worker.http)
    for query in ("", "?connectorsOnly=false"):
        theirs, ours = (plugins(client, query) for client in sides)
        assert theirs.items() <= ours.items()
    for name, _ in theirs:
        path = f"/connector-plugins/{name}/config"
        found = [answer(client, "GET", path, None) for client in sides]
        assert found[0][0] == found[1][0] == 200
        compare_definitions(name, *({each["name"]: each for each in one[1]} for one in found))


SOURCE_CONFIG = {"name": "v", "connector.class": SOURCE, "file": "f", "topic": "t"}
SINK_CONFIG = {"name": "v", "connector.class": SINK, "file": "f", "topics": "t"}
CAST = {"transforms": "a", "transforms.a.type": f"{TRANSFORMS}Cast$Value", "transforms.a.spec": "int8"}
FILTER = {"transforms": "a", "transforms.a.type": f"{TRANSFORMS}Filter", "transforms.a.predicate": "p"}
TOMBSTONE = {"predicates": "p", "predicates.p.type": f"{TRANSFORMS}predicates.RecordIsTombstone"}


@pytest.mark.promise(
    "connect",
    "`config/validate` has the fields, values, errors and error counts of Apache Kafka's Connect 4.1, also "
    "for the settings of converters, transforms and predicates",
)
@pytest.mark.parametrize(
    "config",
    [
        SOURCE_CONFIG,
        SINK_CONFIG,
        {**SOURCE_CONFIG, "tasks.max": "0"},
        {**SOURCE_CONFIG, "tasks.max.enforce": "x"},
        {**SOURCE_CONFIG, "errors.tolerance": "some"},
        {**SOURCE_CONFIG, "key.converter": "Nope"},
        {**SOURCE_CONFIG, "key.converter": JSON},
        {**SOURCE_CONFIG, "exactly.once.support": "REQUIRED"},
        {**SOURCE_CONFIG, "exactly.once.support": "maybe"},
        {**SOURCE_CONFIG, "transaction.boundary": "Interval"},
        {**SOURCE_CONFIG, **CAST},
        {**SOURCE_CONFIG, **CAST, "transforms": "a,a"},
        {**SOURCE_CONFIG, "transforms": "a"},
        {**SOURCE_CONFIG, "transforms": "a", "transforms.a.type": "Nope"},
        {**SOURCE_CONFIG, **FILTER, **TOMBSTONE},
        {"connector.class": SINK, "file": "f", "topics": "t"},
        {**SINK_CONFIG, "name": ""},
        {**SINK_CONFIG, "topics": ""},
        {**SINK_CONFIG, "topics.regex": "t.*"},
        {**SINK_CONFIG, "errors.deadletterqueue.topic.name": "t"},
        {**SINK_CONFIG, "topics": "", "topics.regex": "t+", "errors.deadletterqueue.topic.name": "tt"},
        {**SINK_CONFIG, "errors.deadletterqueue.topic.replication.factor": "x"},
        {**SINK_CONFIG, "config.action.reload": "later"},
    ],
    ids=lambda config: " ".join(f"{name}={value}" for name, value in config.items() if name != "name")[-90:],
)
def test_a_configuration_is_validated_as_by_kafka(
    apache: httpx.Client, worker: Worker, config: dict[str, str]
) -> None:
    plugin = config["connector.class"]
    for name in (plugin, plugin.rpartition(".")[2], plugin.rpartition(".")[2].removesuffix("Connector")):
        path = f"/connector-plugins/{name}/config/validate"
        (their_code, theirs), (our_code, ours) = (
            answer(client, "PUT", path, config) for client in (apache, worker.http)
        )
        assert our_code == their_code == 200, ours
        assert (ours["name"], ours["error_count"]) == (theirs["name"], theirs["error_count"]), ours
        assert {*ours["groups"], "offsets.topic"} == {*theirs["groups"], "offsets.topic"}
        definitions, values = [], []
        for found in (theirs, ours):
            definitions.append({each["definition"]["name"]: each["definition"] for each in found["configs"]})
            values.append({each["value"]["name"]: each["value"] for each in found["configs"]})
        compare_definitions(path, *definitions)
        for setting in definitions[0].keys() & definitions[1].keys():
            their, our = values[0][setting], values[1][setting]
            for part in ("errors", "visible", "value"):
                assert our[part] == their[part], (setting, part)
            assert set(our["recommended_values"]) >= set(their["recommended_values"])


@pytest.mark.promise(
    "connect", "`/admin/loggers` shows and sets levels, also of the loggers below one, as Kafka Connect does"
)
def test_loggers_get_the_levels_that_kafka_gives_them(apache: httpx.Client, worker: Worker) -> None:
    def both(method: str, path: str, body: Any = None) -> list[tuple[int, Any]]:
        """Loggers that the other side has not, and the time of a change, are left out."""
        found = []
        for client in (apache, worker.http):
            code, told = answer(client, method, f"/admin/loggers{path}", body)
            if isinstance(told, list):
                told = [each for each in told if each.startswith(("compared", "root"))]
            elif "error_code" not in told:
                levels = {"": told} if "level" in told else told
                assert all(each.keys() == {"level", "last_modified"} for each in levels.values())
                told = {
                    name: (each["level"], each["last_modified"] is not None)
                    for name, each in levels.items()
                    if name.startswith("compared") or not name
                }
            found.append((code, told))
        return found

    def same(method: str, path: str, body: Any = None) -> Any:
        theirs, ours = both(method, path, body)
        assert ours == theirs, f"{method} {path} {body}"
        return ours

    same("GET", "/compared")
    same("GET", "/nothing")
    both("GET", "/root")  # theirs has no root logger until it is asked for
    both("PUT", "/root", {"level": "FATAL"})  # it begins with another level
    same("PUT", "/root", {"level": "INFO"})
    for name, level in (
        ("compared.a.b", "DEBUG"),
        ("compared.a", "INFO"),
        ("compared.a.b", "INFO"),
        ("compared.a.b", "warn"),
        ("compared.a.b", "WARN"),
        ("compared", "ERROR"),
        ("compared.a", "TRACE"),
        ("compared.a.c", "FATAL"),
        ("root", "WARN"),
        ("root", "INFO"),
        ("compared.a.c", "loud"),
        ("root", "x"),
    ):
        if level != "TRACE":  # Python has no such level: it is DEBUG here
            same("PUT", f"/{name}", {"level": level})
        same("GET", f"/{name}")
        same("GET", "")
    same("PUT", "/compared", {"level": "INFO", "more": 1})
    same("PUT", "/compared", {})
    same("PUT", "/compared?scope=worker", {"level": "DEBUG"})
    same("PUT", "/compared?scope=nothing", {"level": "INFO"})
    theirs, ours = (
        client.put("/admin/loggers/compared?scope=cluster", json={"level": "WARN"})
        for client in (apache, worker.http)
    )
    assert (ours.status_code, ours.content) == (theirs.status_code, theirs.content) == (204, b"")
