"""HTTP source and sink on a real server: requests, batches, retries, bad records, offsets, logins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from penstock.connect.api import (
    INT64_SCHEMA,
    ConnectError,
    DataError,
    RetriableError,
    SourceRecord,
    struct_schema,
)
from penstock.connect.connectors.http import HttpSink, HttpSource
from penstock.connect.connectors.http.sink import HttpSinkTask
from penstock.connect.connectors.http.source import HttpSourceTask
from tests.certificates import Authority
from tests.connect.messaging.helpers import FixedOffsets, NoOffsets, polled, problems, record
from tests.connect.messaging.servers import PASSWORD, USER
from tests.connect.messaging.web import Answer, Request, WebServer


@pytest.fixture
def web() -> Iterator[WebServer]:
    server = WebServer()
    server.start()
    yield server
    server.stop()


def sink(web: WebServer, path: str = "/in", **more: str) -> HttpSinkTask:
    task = HttpSinkTask()
    task.start({"name": "hook", "http.api.url": web.url + path, **more})
    return task


def source(web: WebServer, path: str, offset: Any = None, **more: str) -> HttpSourceTask:
    task = HttpSourceTask()
    settings = {"url": web.url + path, "topic.name.pattern": "items", "request.interval.ms": "0", **more}
    task.start(settings, NoOffsets() if offset is None else FixedOffsets({"offset": offset}))
    return task


@pytest.mark.promise("connect", "HTTP: a retried request has the same idempotency key")
def test_a_record_is_a_request_with_an_idempotency_key(web: WebServer) -> None:
    task = sink(web, "/${topic}/${key}", headers="X-Team: data|X-Two: 2", **{"request.method": "PUT"})
    task.put(
        [record(0, "text", "a/b"), record(1, b"\xff", "c"), record(2, {"n": 1}, "d"), record(3, None, "e")]
    )
    task.stop()
    assert [(each.method, each.path, each.body) for each in web.requests] == [
        ("PUT", "/items/a/b", b"text"),
        ("PUT", "/items/c", b"\xff"),
        ("PUT", "/items/d", b'{"n":1}'),
    ]
    headers = web.requests[1].headers
    assert (
        headers["idempotency-key"] == "items-0-1" and headers["x-team"] == "data" and headers["x-two"] == "2"
    )


def test_batches_are_joined_or_arrays(web: WebServer) -> None:
    schema = struct_schema({"n": INT64_SCHEMA})
    task = sink(web, **{"batch.max.size": "3", "request.body.format": "json", "batch.json.as.array": "true"})
    task.put([record(n, {"n": n}, schema=schema) for n in range(7)] + [record(0, {"n": 9}, partition=1)])
    task.stop()
    assert [json.loads(each.body) for each in web.requests] == [
        [{"n": 0}, {"n": 1}, {"n": 2}], [{"n": 3}, {"n": 4}, {"n": 5}], [{"n": 6}], [{"n": 9}],
    ]  # fmt: skip
    keys = [each.headers["idempotency-key"] for each in web.requests]
    assert keys == ["items-0-0-2", "items-0-3-5", "items-0-6", "items-1-0"]
    assert web.requests[0].headers["content-type"] == "application/json"
    web.requests.clear()
    lines = {"batch.max.size": "10", "batch.separator": "\\n", "batch.prefix": "<", "batch.suffix": ">"}
    task = sink(web, **lines)
    task.put([record(n, f"line {n}") for n in range(3)])
    task.stop()
    assert [each.body for each in web.requests] == [b"<line 0\nline 1\nline 2>"]


def test_records_without_a_value_are_ignored_deleted_or_bad(web: WebServer) -> None:
    task = sink(web, "/${key}", **{"behavior.on.null.values": "delete"})
    task.put([record(0, "a", "x"), record(1, None, "x")])
    task.stop()
    assert [each.method for each in web.requests] == ["POST", "DELETE"]
    task = sink(web, "/${key}", **{"behavior.on.null.values": "fail"})
    with pytest.raises(DataError, match="no value"):
        task.put([record(0, None, "x")])
    task.stop()


@pytest.mark.promise(
    "connect",
    "HTTP: a record that the server rejects goes to the dead-letter topic, and the other records are sent",
)
def test_only_the_bad_records_of_a_batch_are_reported(web: WebServer) -> None:
    def answer(request: Request) -> Answer:
        return (422, {"error": "no odd numbers"}) if b"13" in request.body else (201, {})

    web.answer = answer
    task = sink(
        web, "/in", **{"batch.max.size": "10", "request.body.format": "json", "batch.json.as.array": "true"}
    )
    bad: list[tuple[int, str]] = []
    task.report = lambda each, error: bad.append((each.original_offset, str(error)))
    task.put([record(n, n) for n in range(20)])
    task.stop()
    assert [offset for offset, _ in bad] == [13]
    assert "422" in bad[0][1] and "no odd numbers" in bad[0][1]
    taken = [n for each in web.requests if b"13" not in each.body for n in json.loads(each.body)]
    assert sorted(taken) == [n for n in range(20) if n != 13]


@pytest.mark.promise(
    "connect",
    "HTTP: when a batch is retried, records that the server has already accepted are not sent again",
)
def test_a_server_that_fails_for_a_while_gets_each_record_once(web: WebServer) -> None:
    failing = True

    def answer(request: Request) -> Answer:
        return (503, {}) if failing and request.body == b"5" else (200, {})

    web.answer = answer
    task = sink(web)
    records = [record(n, str(n)) for n in range(10)]
    for attempt in range(1, 4):
        with pytest.raises(RetriableError, match=f"status 503 .*attempt {attempt}"):
            task.put(records)
    failing = False
    task.put(records)
    task.stop()
    bodies = [each.body for each in web.requests]
    assert bodies == [b"0", b"1", b"2", b"3", b"4", b"5", b"5", b"5", b"5", b"6", b"7", b"8", b"9"]
    assert len({each.headers["idempotency-key"] for each in web.requests if each.body == b"5"}) == 1


def test_retries_of_a_status_are_limited(web: WebServer) -> None:
    web.answer = lambda request: (500, b"broken <html>")
    task = sink(web, **{"max.retries": "2"})
    for _ in range(2):
        with pytest.raises(RetriableError):
            task.put([record(0, "a")])
    with pytest.raises(DataError, match="status 500 broken"):
        task.put([record(0, "a")])
    task.stop()


@pytest.mark.parametrize(("status", "why"), [(401, "login"), (403, "login"), (302, "redirect")])
def test_a_refused_login_or_a_redirect_fails_the_task(web: WebServer, status: int, why: str) -> None:
    web.answer = lambda request: (status, {})
    task = sink(web)
    task.report = lambda each, error: pytest.fail("it is not the record's fault")
    with pytest.raises(ConnectError, match=why):
        task.put([record(0, "a")])
    task.stop()


def test_a_server_that_is_away_is_tried_again(web: WebServer) -> None:
    task, reader = sink(web), source(web, "/list")
    web.stop()
    for work in (lambda: task.put([record(0, "a")]), reader.poll):
        with pytest.raises(RetriableError, match="http://127"):
            work()
    web.start()
    task.put([record(0, "a")])
    task.stop()
    reader.stop()


# The source


def pages(items: list[Any], most: int) -> Any:
    def answer(request: Request) -> Answer:
        since = int(parse_qs(request.query).get("since", ["0"])[0])
        return 200, {"data": {"items": items[since : since + most]}}

    return answer


def next_offset(records: list[SourceRecord]) -> Any:
    return records[-1].source_offset["offset"]


@pytest.mark.promise("connect", "HTTP: in each mode, a source continues after the last item that is in Kafka")
def test_items_are_counted(web: WebServer) -> None:
    items = [{"n": n} for n in range(25)]
    web.answer = pages(items, 10)
    counted = {
        "http.request.parameters": "since=${offset}&limit=10",
        "http.response.data.json.pointer": "/data/items",
        "http.request.headers": "X-Key: 1",
    }
    task = source(web, "/list", **counted)
    found = polled(task, 25)
    task.stop()
    assert [each.value for each in found] == items and found[0].topic == "items"
    assert next_offset(found) == 25 and next_offset(found[:7]) == 7
    assert web.requests[0].query == "since=0&limit=10" and web.requests[0].headers["x-key"] == "1"
    task = source(web, "/list", offset=7, **counted)
    assert [each.value["n"] for each in polled(task, 18)] == list(range(7, 25))
    task.stop()


@pytest.mark.promise("connect", "HTTP: in each mode, a source continues after the last item that is in Kafka")
def test_the_last_item_says_where_to_go_on(web: WebServer) -> None:
    items = [{"meta": {"id": f"id {n:02}"}} for n in range(12)]

    def answer(request: Request) -> Answer:
        after = parse_qs(request.query, keep_blank_values=True)["after"][0]
        return 200, [each for each in items if each["meta"]["id"] > after][:5]

    web.answer = answer
    chained = {"http.offset.mode": "CHAINING", "http.offset.json.pointer": "/meta/id"}
    task = source(web, "/list?after=${offset}", **chained)
    found = polled(task, 12)
    assert [each.value for each in found] == items and next_offset(found) == "id 11"
    assert task.poll() == []
    items.append({"meta": {"id": "id 12"}})
    assert [each.value for each in polled(task, 1)] == items[-1:]
    task.stop()
    task = source(web, "/list?after=${offset}", offset="id 09", **chained)
    assert len(polled(task, 3)) == 3
    items[:] = [{"no": "id"}]
    web.answer = lambda request: (200, items)
    with pytest.raises(ConnectError, match="no /meta/id"):
        task.poll()
    task.stop()


@pytest.mark.promise("connect", "HTTP: in each mode, a source continues after the last item that is in Kafka")
def test_a_cursor_says_where_to_go_on(web: WebServer) -> None:
    answers = {"": ([1, 2], "p2"), "p2": ([3], "p3"), "p3": ([4, 5], "p4"), "p4": ([], "p4")}

    def answer(request: Request) -> Answer:
        found, following = answers[json.loads(request.body)["cursor"]]
        return 200, {"items": found, "next": following}

    web.answer = answer
    cursor = {
        "http.offset.mode": "CURSOR_PAGINATION", "http.next.page.json.pointer": "/next",
        "http.response.data.json.pointer": "/items", "http.request.method": "POST",
        "http.request.body": '{"cursor": "${offset}"}',
    }  # fmt: skip
    task = source(web, "/search", **cursor)
    found = polled(task, 5)
    assert [each.value for each in found] == [1, 2, 3, 4, 5]
    assert [each.source_offset["offset"] for each in found] == ["", "p2", "p3", "p3", "p4"]
    assert task.poll() == []
    task.stop()


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        ((500, {}), RetriableError, "status 500"),
        ((429, {}), RetriableError, "status 429"),
        ((404, {"error": "gone"}), ConnectError, "status 404 .*gone"),
        ((200, b"<html>"), ConnectError, "not JSON: <html>"),
        ((200, {"other": 1}), ConnectError, "no /data/items"),
        ((200, b"[" * 100_000), ConnectError, "not JSON|more than"),
        ((200, b"[" + b"1," * 10_000_000 + b"1]"), ConnectError, "more than 1000000 bytes"),
    ],
)
def test_bad_answers_are_named(web: WebServer, answer: Answer, kind: type[Exception], why: str) -> None:
    web.answer = lambda request: answer
    settings = {"http.response.data.json.pointer": "/data/items", "http.response.max.bytes": "1000000"}
    task = source(web, "/list", **settings)
    with pytest.raises(kind, match=why) as caught:
        task.poll()
    assert type(caught.value) is kind
    task.stop()


@pytest.mark.promise(
    "connect", "Redis, MQTT, RabbitMQ and HTTP connect with TLS and a login, and do not reveal passwords"
)
def test_tls_with_logins(tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue("127.0.0.1")
    for name, text in (("ca.pem", authority.pem), ("cert.pem", certificate), ("key.pem", key)):
        (tmp_path / name).write_text(text)
    web = WebServer(tmp_path / "cert.pem", tmp_path / "key.pem")
    web.start()
    tokens = iter(("first", "second"))

    def answer(request: Request) -> Answer:
        if request.path == "/token":
            return 200, {"access_token": next(tokens), "expires_in": 3600}
        given = request.headers.get("authorization", "")
        return (401, {}) if given == "Bearer first" and b"old" in request.body else (200, {"got": given})

    web.answer = answer
    trusted = {"https.ssl.truststore.location": str(tmp_path / "ca.pem")}
    for login, expected in (
        ({"auth.type": "basic", "connection.user": USER, "connection.password": PASSWORD}, "Basic "),
        ({"auth.type": "bearer", "bearer.token": PASSWORD}, f"Bearer {PASSWORD}"),
        (
            {
                "auth.type": "OAUTH2", "oauth2.token.url": f"{web.url}/token", "oauth2.client.id": USER,
                "oauth2.client.secret": PASSWORD,
            },
            "Bearer second",
        ),
    ):  # fmt: skip
        settings = {**trusted, **login}
        assert HttpSink.validate({"http.api.url": web.url, **settings}) == {}
        task = sink(web, **settings)
        task.put([record(0, "old token?")])
        task.stop()
        assert web.requests[-1].headers["authorization"].startswith(expected)
    with pytest.raises(RetriableError, match="certificate") as caught:
        sink(web, "/in?token=" + PASSWORD).put([record(0, "a")])
    assert PASSWORD not in str(caught.value)
    web.stop()


@pytest.mark.promise(
    "connect", "Redis, MQTT, RabbitMQ and HTTP: invalid settings are rejected with an error that names them"
)
@pytest.mark.parametrize(
    ("plugin", "settings", "field"),
    [
        (HttpSink, {"http.api.url": "ftp://host/x"}, "http.api.url"),
        (HttpSink, {"http.api.url": f"host:{PASSWORD}"}, "http.api.url"),
        (HttpSink, {"http.api.url": "http://host/${kee}"}, "http.api.url"),
        (HttpSink, {"headers": "no colon"}, "headers"),
        (HttpSink, {"retry.on.status.codes": "5xx"}, "retry.on.status.codes"),
        (HttpSink, {"auth.type": "bearer"}, "bearer.token"),
        (HttpSink, {"auth.type": "oauth2"}, "oauth2.token.url"),
        (HttpSink, {"batch.json.as.array": "true"}, "batch.json.as.array"),
        (HttpSink, {"https.ssl.keystore.location": "/no/such/file"}, "https.ssl.keystore.location"),
        (HttpSource, {"url": "http://host/${page}"}, "url"),
        (HttpSource, {"http.offset.mode": "CHAINING"}, "http.offset.json.pointer"),
        (HttpSource, {"http.offset.mode": "CURSOR_PAGINATION"}, "http.next.page.json.pointer"),
        (HttpSource, {"http.initial.offset": "first"}, "http.initial.offset"),
        (HttpSource, {"http.response.data.json.pointer": "data"}, "http.response.data.json.pointer"),
        (HttpSource, {"http.request.headers": "x y: 1"}, "http.request.headers"),
    ],
)
def test_bad_settings_are_named(plugin: Any, settings: dict[str, str], field: str) -> None:
    given = {"http.api.url": "http://host/", "url": "http://host/", "topic.name.pattern": "t", **settings}
    found, text = problems(plugin.validate(given))
    assert found == [field] and PASSWORD not in text
