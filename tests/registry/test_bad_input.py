"""Whatever is sent: an error in Confluent's shape, never a 500."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

V1 = "application/vnd.schemaregistry.v1+json"


def error(answer):
    assert answer.headers["content-type"] == V1, answer.text
    body = answer.json()
    assert set(body) == {"error_code", "message"}
    return answer.status_code, body["error_code"]


@pytest.mark.promise("registry", "Invalid input gets an error in Confluent's format, never status 500")
@pytest.mark.parametrize(
    ("schema_type", "schema"),
    [
        ("AVRO", "{"),
        ("AVRO", '{"type": "nothing"}'),
        ("AVRO", '{"type":"record","name":"r","fields":[{"name":"a","type":"Unknown"}]}'),
        ("AVRO", '{"type":"record","name":"r"}'),
        ("AVRO", "null\0"),
        ("AVRO", "["),
        ("AVRO", "[" * 100_000),
        ("AVRO", '{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000),
        ("JSON", '{"type": 7}'),
        ("JSON", "{"),
        ("JSON", '{"$ref": "http://nowhere.invalid/x.json"}'),
        ("PROTOBUF", "message {"),
        ("PROTOBUF", 'syntax = "proto3"; message A { Unknown u = 1; }'),
        ("PROTOBUF", 'syntax = "proto3"; import "nowhere.proto"; message A {}'),
        ("XML", "<a/>"),
        ("AVRO", ""),
        ("AVRO", "   "),
    ],
)
def test_an_invalid_schema_is_42201(http, subject, schema_type, schema):
    body = {"schemaType": schema_type, "schema": schema}
    assert error(http.post(f"/subjects/{subject}/versions", json=body)) == (422, 42201)
    assert error(http.post(f"/compatibility/subjects/{subject}/versions/latest", json=body)) == (422, 42201)
    verbose = http.post(f"/compatibility/subjects/{subject}/versions/latest?verbose=true", json=body).json()
    assert verbose["is_compatible"] is False and verbose["messages"]


@pytest.mark.parametrize(
    "schema",
    [
        '{"type":"record","name":"Tree","fields":[{"name":"left","type":["null","Tree"]}]}',
        '{"type":"record","name":"L","fields":[{"name":"n","type":{"type":"array","items":"L"}}]}',
    ],
)
def test_recursive_types_are_taken_and_compared(http, subject, schema):
    for _ in range(2):
        assert http.post(f"/subjects/{subject}/versions", json={"schema": schema}).status_code == 200
    check = http.post(f"/compatibility/subjects/{subject}/versions/latest", json={"schema": schema})
    assert check.json() == {"is_compatible": True}


@pytest.mark.promise("registry", "Invalid input gets an error in Confluent's format, never status 500")
@pytest.mark.parametrize(
    "body",
    [
        b"{", b"", b"null", b"[]", b"3", b'"x"', b"\xff\xfe", b'{"schema": 3}',
        b'{"schema": "a", "id": "x"}',
        b'{"schema": "a", "version": 1.5}', b'{"schema": "a", "references": 3}',
        b'{"schema": "a", "id": true}',
        b'{"schema": "a", "references": [3]}', b'{"schema": "a", "references": [{}]}',
        b'{"schema": "\\"int\\"", "metadata": []}', b'{"schema": "\\"int\\"", "ruleSet": 3}',
        b'{"schema": "\\"int\\"", "metadata": {"tags": {"a": 3}}}', b'{"schema": "\\ud800"}',
        b'{"schema": "a", "version": 99999999999999999999}', b"[" * 100_000,
        b'{"schema": ' + b"9" * 10_000 + b"}",
    ],
)  # fmt: skip
def test_a_bad_body_is_the_clients_fault(http, subject, body):
    headers = {"content-type": V1}
    for path in (f"/subjects/{subject}/versions", f"/subjects/{subject}"):
        status, code = error(http.post(path, content=body, headers=headers))
        assert status in (400, 422) and (code in (400, 422) or 42200 < code < 42300)
    for path in (f"/config/{subject}", f"/mode/{subject}"):
        answer = http.put(path, content=body, headers=headers)
        assert answer.status_code in (200, 400, 422), answer.text


@pytest.mark.promise("registry", "Invalid input gets an error in Confluent's format, never status 500")
def test_a_body_of_ten_megabytes_is_413(http, subject):
    body = json.dumps({"schema": "x" * (10 << 20)}).encode()
    assert error(http.post(f"/subjects/{subject}/versions", content=body)) == (413, 413)

    def chunks():
        for _ in range(10):
            yield b"x" * (1 << 20)

    assert error(http.post(f"/subjects/{subject}/versions", content=chunks())) == (413, 413)
    assert http.get("/subjects").status_code == 200


@pytest.mark.promise("registry", "Invalid input gets an error in Confluent's format, never status 500")
def test_a_record_that_the_topic_does_not_take_is_42209_and_the_next_one_is_taken(http, subject):
    large = {"schema": '"int"', "metadata": {"properties": {"text": "x" * 1_500_000}}}
    for index in range(3):
        answer = http.post(f"/subjects/{subject}/versions", json=large)
        assert (answer.status_code, answer.json()["error_code"]) == (422, 42209)
        small = {"schema": '"int"', "metadata": {"properties": {"number": f"{subject} {index}"}}}
        assert http.post(f"/subjects/{subject}/versions", json=small).status_code == 200
    assert http.get(f"/subjects/{subject}/versions").json() == [1, 2, 3]


@pytest.mark.promise("registry", "Invalid input gets an error in Confluent's format, never status 500")
@pytest.mark.timeout(300)
def test_names_of_contexts_that_fill_a_record_do_not_keep_the_next_leader_from_writing(broker, registries):
    options = ("--topic", "long-names", "--group", "long-names", "--session-timeout-ms", "2000")
    first = registries.start(broker.bootstrap, *options)
    with first.client() as client:
        for index in range(22):
            name = f":.c{index}{'x' * 55_000}:s"
            assert client.post(f"/subjects/{name}/versions", json={"schema": '"int"'}).json() == {"id": 1}
        client.post("/subjects/gone/versions", json={"schema": '"long"'})
        client.delete("/subjects/gone")
        assert client.delete("/subjects/gone?permanent=true").json() == [1]
    first.kill()
    with registries.start(broker.bootstrap, *options).client() as client:
        assert client.post("/subjects/s/versions", json={"schema": '"string"'}).json() == {"id": 2}


def test_a_wrong_content_type_is_415_and_a_wrong_accept_406(http, subject):
    body = json.dumps({"schema": '"int"'}).encode()
    for kind in ("text/plain", "application/xml", "application/x-www-form-urlencoded"):
        answer = http.post(f"/subjects/{subject}/versions", content=body, headers={"content-type": kind})
        assert error(answer) == (415, 415)
    for kind in (V1, "application/vnd.schemaregistry+json", "application/json; charset=utf-8"):
        answer = http.post(f"/subjects/{subject}/versions", content=body, headers={"content-type": kind})
        assert answer.status_code == 200
    assert error(http.get("/subjects", headers={"accept": "text/html"})) == (406, 406)
    plain = http.get("/subjects", headers={"accept": "application/json"})
    assert plain.headers["content-type"] == "application/json"


def test_unknown_routes_and_methods_answer_in_the_one_shape(http):
    for path in ("/nowhere", "/subjects/a/b/c/d", "/schemas/ids/x", "/schemas/ids/99999999999", "/v1"):
        assert error(http.get(path)) == (404, 404)
    assert error(http.get("/subjects?limit=x")) == (404, 404)
    assert error(http.put("/subjects")) == (405, 405)
    assert "GET" in http.put("/subjects").headers["allow"]
    assert error(http.patch("/schemas/types")) == (405, 405)
    assert http.head("/subjects").status_code == 200
    assert error(http.get("/subjects/%ff/versions")) == (400, 400)
    assert error(http.get("/contexts/a:b/subjects")) == (400, 400)
    assert error(http.post("/subjects/%0a/versions", json={"schema": '"int"'})) == (422, 42208)
    assert error(http.get("/metrics/")) == (404, 404)


def test_references_in_a_circle_are_refused(http, subject):
    """Two schemas that need each other cannot both be first; forced through by import they are 42201."""
    for name in (f"{subject}-a", f"{subject}-b"):
        http.put(f"/mode/{name}?force=true", json={"mode": "IMPORT"})
    refer = lambda to: [{"name": to, "subject": to, "version": 1}]  # noqa: E731
    schema = json.dumps({"type": "record", "name": "x", "fields": []})
    body = {"schema": schema, "id": 800_001, "version": 1, "references": refer(f"{subject}-b")}
    assert error(http.post(f"/subjects/{subject}-a/versions", json=body)) == (422, 42201)
    itself = {"schema": schema, "id": 800_002, "version": 1, "references": refer(f"{subject}-a")}
    assert error(http.post(f"/subjects/{subject}-a/versions", json=itself)) == (422, 42201)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["schema", "schemaType", "references", "metadata", "ruleSet", "version", "id", "compatibility", "mode",
     "alias", "normalize", "defaultMetadata", "overrideRuleSet", "compatibilityGroup"]
)  # fmt: skip


@pytest.mark.promise("registry", "Invalid input gets an error in Confluent's format, never status 500")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    segments=st.lists(
        st.sampled_from(["subjects", "schemas", "ids", "config", "mode", "versions", "compatibility",
                         "contexts", "latest", "1", "fuzz", ":.c:fuzz", "guids", "schema", ""])
        | st.text(string.printable, max_size=5),
        max_size=5,
    ),
    query=st.dictionaries(
        st.sampled_from(["deleted", "limit", "offset", "subjectPrefix", "subject", "format", "normalize"]),
        st.text(max_size=5), max_size=2,
    ),
    body=st.dictionaries(FIELDS, JSON_VALUES, max_size=4) | JSON_VALUES,
)  # fmt: skip
def test_no_request_is_answered_with_a_500(http, method, segments, query, body):
    from urllib.parse import quote

    if segments[:1] in (["mode"], ["config"]) and segments[1:2] != ["fuzz"]:
        segments = [segments[0], "fuzz"]  # the registry is shared: its own settings stay
    path = "/" + "/".join(quote(segment, safe="") for segment in segments)
    path = "/" + path.lstrip("/")  # two of them would be a host
    answer = http.request(method, path, params=query, json=body)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        error(answer)
