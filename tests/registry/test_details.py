"""What Confluent's registry does in corners of its API that clients and tools rely on."""

from __future__ import annotations

import json

import pytest

from tests.registry.test_api import V1, error, record, register


def referring(*names: str, name: str = "outer") -> str:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(names)]
    return json.dumps({"type": "record", "name": name, "fields": fields})


def reference(subject: str, name: str = "inner", version: int = 1) -> dict[str, object]:
    return {"name": name, "subject": subject, "version": version}


def post(http, subject, schema, *, path="/versions", **more):
    return http.post(f"/subjects/{subject}{path}", json={"schema": schema, **more})


@pytest.mark.promise(
    "registry", "A new schema cannot refer to a deleted version; existing schemas stay usable"
)
def test_a_new_schema_cannot_refer_to_a_version_that_was_deleted(http, subject):
    inner, outer = f"{subject}-inner", f"{subject}-outer"
    register(http, inner, record("a", name="inner"))
    register(http, inner, record("a", name="inner", optional=("b",)))
    references = [reference(inner)]
    first = register(http, f"{subject}-first", referring("inner"), references=references)
    register(http, f"{subject}-through", referring("outer", name="top"), references=[
        reference(f"{subject}-first", "outer")
    ])  # fmt: skip
    # It can be deleted only when nobody refers to it.
    assert http.delete(f"/subjects/{subject}-through").status_code == 200
    assert http.delete(f"/subjects/{subject}-first").status_code == 200
    assert http.delete(f"/subjects/{inner}/versions/1").status_code == 200
    answer = post(http, outer, referring("inner"), references=references)
    assert error(answer) == (422, 42201) and f'subject "{inner}" and version 1' in answer.json()["message"]
    answer = http.post(
        f"/compatibility/subjects/{subject}-first/versions",
        json={"schema": referring("inner"), "references": references},
    )
    assert error(answer) == (422, 42201)
    nested = [reference(f"{subject}-first", "outer")]
    assert error(post(http, outer, referring("outer", name="top"), references=nested)) == (422, 42201)
    # What is there already is found, and version -1 is the latest that is there.
    found = post(http, f"{subject}-first", referring("inner"), path="?deleted=true", references=references)
    assert found.json()["id"] == first
    latest = [reference(inner, version=-1)]
    assert post(http, outer, referring("inner"), references=latest).status_code == 200


@pytest.mark.promise(
    "registry", "A new schema cannot refer to a deleted version; existing schemas stay usable"
)
def test_a_schema_that_is_there_is_registered_again_although_what_it_refers_to_was_deleted(http, subject):
    inner = f"{subject}-inner"
    register(http, inner, record("a", name="inner"))
    references = [reference(inner)]
    http.put("/mode/" + subject, json={"mode": "IMPORT"})
    body = {"schema": referring("inner"), "references": references, "id": 900_001, "version": 1}
    assert http.post(f"/subjects/{subject}/versions", json=body).status_code == 200
    http.put("/mode/" + subject, json={"mode": "READWRITE"})
    assert error(http.delete(f"/subjects/{inner}")) == (422, 42206)
    assert post(http, subject, referring("inner"), references=references).json()["id"] == 900_001


BAD_DEFAULT = json.dumps(
    {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int", "default": "text"}]}
)


@pytest.mark.promise("registry", "`validateNewSchemas=false` works")
def test_validate_new_schemas_can_be_switched_off(http, subject):
    assert error(post(http, subject, BAD_DEFAULT)) == (422, 42201)
    http.put(f"/config/{subject}", json={"compatibility": "BACKWARD", "validateNewSchemas": False})
    assert http.get(f"/config/{subject}").json()["validateNewSchemas"] is False
    compatibility = f"/compatibility/subjects/{subject}/versions"
    assert post(http, subject, BAD_DEFAULT).status_code == 200
    assert http.post(compatibility, json={"schema": BAD_DEFAULT}).json() == {"is_compatible": True}
    # Also references to what was deleted; but no nonsense, and nothing that JSON Schema itself refuses.
    inner = f"{subject}-inner"
    register(http, inner, record("a", name="inner"))
    register(http, inner, record("a", name="inner", optional=("b",)))
    http.delete(f"/subjects/{inner}/versions/1")
    other = f"{subject}-other"
    http.put(f"/config/{other}", json={"validateNewSchemas": False})
    assert post(http, other, referring("inner"), references=[reference(inner)]).status_code == 200
    assert error(post(http, other, '{"type": "nonsense"}')) == (422, 42201)
    assert error(post(http, other, '{"type": 7}', schemaType="JSON")) == (422, 42201)
    http.put(f"/config/{subject}", json={"compatibility": "BACKWARD", "validateNewSchemas": True})
    assert error(post(http, subject, BAD_DEFAULT.replace('"a"', '"b"'))) == (422, 42201)


@pytest.mark.promise(
    "registry", "A lookup of a missing schema returns 40403, whatever schemas other contexts have"
)
def test_a_schema_that_is_not_there_is_40403_whatever_other_contexts_hold(http, subject):
    inner = f"{subject}-inner"
    register(http, inner, record("a", name="inner"))
    register(http, subject, record("x"))
    references = [reference(inner)]
    absent = {"schema": referring("inner"), "references": references}
    assert error(http.post(f"/subjects/{subject}", json=absent)) == (404, 40403)
    # In that context the same name has no such reference: its trouble is none of this request.
    register(http, f":.details:{subject}", record("y"))
    register(http, f":.details:{subject}-inner", record("z", name="other"))
    http.delete(f"/subjects/:.details:{subject}-inner")
    register(http, f":.elsewhere:{subject}", record("y"))
    register(http, f":.elsewhere:{inner}", record("q", name="elsewhere"))
    assert error(http.post(f"/subjects/{subject}", json=absent)) == (404, 40403)
    # What is wrong where the request asks is told.
    missing = {"schema": referring("inner"), "references": [reference(f"{subject}-nowhere")]}
    assert error(http.post(f"/subjects/{subject}", json=missing)) == (422, 42201)


@pytest.mark.promise(
    "registry", "A lookup with `confluent:version` in its metadata finds that version and no other"
)
def test_a_lookup_with_confluent_version_finds_that_version(http, subject):
    schema, other = record("a"), record("a", optional=("b",))

    def version(number):
        return {"properties": {"confluent:version": str(number)}}

    def found(**more):
        answer = post(http, subject, schema, path="", **more)
        return answer.json()["version"] if answer.status_code == 200 else error(answer)

    # As clients register that want a version of their own: 1, 2 with the same text.
    register(http, subject, schema, version=1)
    register(http, subject, schema, version=2)
    register(http, subject, other)
    assert http.get(f"/subjects/{subject}/versions/2").json()["metadata"] == version(2)
    assert found(metadata=version(1)) == 1
    assert found(metadata=version(2)) == 2
    assert found(metadata=version(7)) == (404, 40403)
    assert found() == 2, "the newest with this text"
    # A version that does not carry the property is found by its number, and by no other.
    plain = f"{subject}-plain"
    register(http, plain, schema)
    answer = post(http, plain, schema, path="", metadata=version(1))
    assert answer.json()["version"] == 1
    assert error(post(http, plain, schema, path="", metadata=version(2))) == (404, 40403)
    odd = {"properties": {"confluent:version": "one"}}
    assert error(post(http, plain, schema, path="", metadata=odd)) == (404, 40403)


@pytest.mark.promise(
    "registry", "`GET /v1/metadata/deployment` is served; `Accept: *` and `*/x` are accepted"
)
def test_the_deployment_is_told(http):
    answer = http.get("/v1/metadata/deployment")
    assert answer.status_code == 200 and answer.json() == {"attributes": []}


@pytest.mark.promise(
    "registry", "`GET /v1/metadata/deployment` is served; `Accept: *` and `*/x` are accepted"
)
@pytest.mark.parametrize(
    "accept", ["*", "*; q=0.5", "*/json", "*/x", "text/html, *", "*/*;q=0.1", "application/*"]
)
def test_wildcards_of_accept_are_taken(http, accept):
    for path in ("/subjects", "/schemas/types"):
        answer = http.get(path, headers={"accept": accept})
        assert answer.status_code == 200 and answer.headers["content-type"] == V1


@pytest.mark.promise(
    "registry", "`GET /v1/metadata/deployment` is served; `Accept: *` and `*/x` are accepted"
)
def test_what_no_type_of_ours_fits_is_406(http):
    for accept in ("text/html", "text/*", "*;q=0", "application/xml, text/plain"):
        assert http.get("/subjects", headers={"accept": accept}).status_code == 406
    answer = http.get("/subjects", headers={"accept": "*;q=0.1, application/json"})
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.promise("registry", "An incompatible registration gets status 409 and error code 409")
def test_an_incompatible_registration_is_409_with_the_code_409(http, subject):
    register(http, subject, record("a"))
    assert error(post(http, subject, record("a", "b"))) == (409, 409)


@pytest.mark.promise("registry", "A server option sets the default compatibility level")
def test_the_default_level_is_an_option_of_the_server(broker, registries, subject):
    topic = ("--topic", "levels", "--group", "levels")
    full = registries.start(broker.bootstrap, *topic, "--compatibility", "full_transitive")
    with full.client() as http:
        assert http.get("/config").json()["compatibilityLevel"] == "FULL_TRANSITIVE"
        assert (
            http.get(f"/config/{subject}?defaultToGlobal=true").json()["compatibilityLevel"]
            == "FULL_TRANSITIVE"
        )
        assert error(http.get(f"/config/{subject}")) == (404, 40408)
        register(http, subject, record("a"))
        assert error(post(http, subject, record("a", "b"))) == (409, 409)
        assert error(post(http, subject, record())) == (409, 409)
        # What is set for the cluster goes before it; taken back, the default holds again.
        http.put("/config", json={"compatibility": "NONE"})
        assert http.get("/config").json()["compatibilityLevel"] == "NONE"
        register(http, subject, record("a", "b"))
        assert http.delete("/config").json()["compatibilityLevel"] == "NONE"
        assert http.get("/config").json()["compatibilityLevel"] == "FULL_TRANSITIVE"
    assert full.stop() == 0
    plain = registries.start(broker.bootstrap, *topic)
    with plain.client() as http:
        assert http.get("/config").json()["compatibilityLevel"] == "BACKWARD"
