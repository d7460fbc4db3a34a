"""The REST API: Confluent's answers, fields and codes."""

from __future__ import annotations

import json
from urllib.parse import quote
from uuid import UUID

import pytest

V1 = "application/vnd.schemaregistry.v1+json"


def record(*fields: str, name: str = "r", optional: tuple[str, ...] = ()) -> str:
    return json.dumps(
        {
            "type": "record",
            "name": name,
            "fields": [{"name": field, "type": "string"} for field in fields]
            + [{"name": field, "type": "string", "default": ""} for field in optional],
        }
    )


def register(http, subject, schema, **more):
    answer = http.post(f"/subjects/{subject}/versions", json={"schema": schema, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def error(answer):
    """(status, error_code) of an answer that must be in Confluent's shape."""
    assert answer.headers["content-type"] == V1
    body = answer.json()
    assert set(body) == {"error_code", "message"} and isinstance(body["message"], str)
    return answer.status_code, body["error_code"]


@pytest.mark.promise("registry", "The API returns the same fields and codes as Confluent's")
def test_a_registered_schema_is_found_by_id_subject_version_and_latest(http, subject):
    schema_id = register(http, subject, record("a"))
    text = json.loads(record("a"))
    by_id = http.get(f"/schemas/ids/{schema_id}")
    assert by_id.headers["content-type"] == V1
    assert set(by_id.json()) == {"schema"} and json.loads(by_id.json()["schema"]) == text
    for version in ("1", "latest", "-1"):
        found = http.get(f"/subjects/{subject}/versions/{version}").json()
        assert found == {
            "subject": subject, "version": 1, "id": schema_id, "schema": by_id.json()["schema"],
        }  # fmt: skip
    assert http.get(f"/subjects/{subject}/versions").json() == [1]
    assert subject in http.get("/subjects").json()
    assert http.get(f"/schemas/ids/{schema_id}/schema").json() == text
    assert http.get(f"/subjects/{subject}/versions/1/schema").json() == text
    assert http.get(f"/schemas/ids/{schema_id}/subjects").json() == [subject]
    assert http.get(f"/schemas/ids/{schema_id}/versions").json() == [{"subject": subject, "version": 1}]


@pytest.mark.promise("registry", "The API returns the same fields and codes as Confluent's")
def test_newer_fields_are_for_clients_that_take_unknown_ones(http, subject):
    body = {"schema": record("a")}
    header = {"Confluent-Accept-Unknown-Properties": "true"}
    answer = http.post(f"/subjects/{subject}/versions", json=body, headers=header).json()
    assert set(answer) == {"id", "version", "guid", "ts", "deleted"}
    assert http.post(f"/subjects/{subject}/versions", json=body).json() == {"id": answer["id"]}
    version = http.get(f"/subjects/{subject}/versions/1", headers=header).json()
    assert version["guid"] == answer["guid"] == str(UUID(answer["guid"]))
    assert (version["schemaType"], version["deleted"]) == ("AVRO", False)
    by_guid = http.get(f"/schemas/guids/{answer['guid']}").json()
    assert by_guid == {"schema": version["schema"]}
    assert http.get(f"/schemas/guids/{answer['guid']}/ids").json() == [{"context": ".", "id": answer["id"]}]
    assert error(http.get("/schemas/guids/nonsense")) == (404, 40403)


@pytest.mark.promise(
    "registry", "The same schema has the same id everywhere; version numbers and ids are never reused"
)
def test_the_same_schema_has_the_same_id_in_every_subject_and_a_new_one_the_next(http, subject):
    first = register(http, subject, record("a", name=subject))
    spaced = json.dumps(json.loads(record("a", name=subject)), indent=4)
    assert register(http, f"{subject}-other", spaced) == first
    assert register(http, subject, record("a", name=subject)) == first
    assert http.get(f"/subjects/{subject}/versions").json() == [1]
    second = register(http, subject, record("a", name=subject, optional=("b",)))
    assert second > first
    assert http.get(f"/subjects/{subject}/versions").json() == [1, 2]
    assert sorted(http.get(f"/schemas/ids/{first}/subjects").json()) == [subject, f"{subject}-other"]


@pytest.mark.promise("registry", "The API returns the same fields and codes as Confluent's")
def test_what_is_not_there_is_told_apart(http, subject):
    register(http, subject, record("a"))
    assert error(http.get("/subjects/none/versions")) == (404, 40401)
    assert error(http.get("/subjects/none/versions/1")) == (404, 40401)
    assert error(http.get(f"/subjects/{subject}/versions/7")) == (404, 40402)
    assert error(http.get("/schemas/ids/999999")) == (404, 40403)
    assert error(http.get("/schemas/ids/999999/versions")) == (404, 40403)
    assert error(http.post("/subjects/none", json={"schema": record("a")})) == (404, 40401)
    assert error(http.post(f"/subjects/{subject}", json={"schema": record("z")})) == (404, 40403)
    assert error(http.delete("/subjects/none")) == (404, 40401)
    assert error(http.delete(f"/subjects/{subject}/versions/7")) == (404, 40402)
    assert error(http.get(f"/config/{subject}")) == (404, 40408)
    assert error(http.get(f"/mode/{subject}")) == (404, 40409)
    for version in ("0", "-2", "x", "1.5", "2147483648", "1_0"):
        assert error(http.get(f"/subjects/{subject}/versions/{version}")) == (422, 42202)


def test_lookup_gives_the_version_that_has_the_schema(http, subject):
    register(http, subject, record("a"))
    second = register(http, subject, record("a", optional=("b",)))
    found = http.post(f"/subjects/{subject}", json={"schema": record("a", optional=("b",))}).json()
    assert (found["version"], found["id"], found["subject"]) == (2, second, subject)
    http.delete(f"/subjects/{subject}/versions/2")
    body = {"schema": record("a", optional=("b",))}
    assert error(http.post(f"/subjects/{subject}", json=body)) == (404, 40403)
    assert http.post(f"/subjects/{subject}?deleted=true", json=body).json()["version"] == 2


@pytest.mark.promise(
    "registry", "The same schema has the same id everywhere; version numbers and ids are never reused"
)
def test_deleting_is_soft_first_and_version_numbers_are_not_used_again(http, subject):
    one = register(http, subject, record("a", name=subject))
    two = register(http, subject, record("a", name=subject, optional=("b",)))
    assert error(http.delete(f"/subjects/{subject}/versions/2?permanent=true")) == (404, 40407)
    assert http.delete(f"/subjects/{subject}/versions/latest").json() == 2
    assert error(http.delete(f"/subjects/{subject}/versions/2")) == (404, 40406)
    assert http.get(f"/subjects/{subject}/versions").json() == [1]
    assert http.get(f"/subjects/{subject}/versions?deleted=true").json() == [1, 2]
    assert http.get(f"/subjects/{subject}/versions?deletedOnly=true").json() == [2]
    assert http.get(f"/subjects/{subject}/versions?deletedAsNegative=true").json() == [1, -2]
    assert error(http.get(f"/subjects/{subject}/versions/2")) == (404, 40402)
    assert http.get(f"/subjects/{subject}/versions/2?deleted=true").json()["id"] == two
    assert http.get(f"/schemas/ids/{two}").status_code == 200, "data with this id must stay readable"
    assert http.get(f"/schemas/ids/{two}/subjects").json() == []
    assert http.get(f"/schemas/ids/{two}/subjects?deleted=true").json() == [subject]
    three = register(http, subject, record("a", name=subject, optional=("c",)))
    assert http.get(f"/subjects/{subject}/versions/latest").json()["version"] == 3
    assert three > two > one
    # The deleted one again: a new version, the old id.
    assert register(http, subject, record("a", name=subject, optional=("b",))) == two
    assert http.get(f"/subjects/{subject}/versions").json() == [1, 3, 4]


@pytest.mark.promise(
    "registry", "The same schema has the same id everywhere; version numbers and ids are never reused"
)
def test_a_version_that_is_gone_for_good_is_not_used_again_while_the_subject_has_others(http, subject):
    for optional in ("b", "c", "d"):
        register(http, subject, record("a", name=subject, optional=(optional,)))
    for version in (3, 2):
        http.delete(f"/subjects/{subject}/versions/{version}")
        assert http.delete(f"/subjects/{subject}/versions/{version}?permanent=true").json() == version
    register(http, subject, record("a", name=subject, optional=("e",)))
    assert http.get(f"/subjects/{subject}/versions?deleted=true").json() == [1, 4]


def test_a_subject_is_deleted_softly_and_then_for_good(http, subject):
    register(http, subject, record("a"))
    register(http, subject, record("a", optional=("b",)))
    assert error(http.delete(f"/subjects/{subject}?permanent=true")) == (404, 40405)
    assert http.delete(f"/subjects/{subject}").json() == [1, 2]
    assert error(http.delete(f"/subjects/{subject}")) == (404, 40404)
    assert subject not in http.get("/subjects").json()
    assert subject in http.get("/subjects?deleted=true").json()
    assert subject in http.get("/subjects?deletedOnly=true").json()
    assert error(http.get(f"/subjects/{subject}/versions")) == (404, 40401)
    assert http.delete(f"/subjects/{subject}?permanent=true").json() == [1, 2]
    assert subject not in http.get("/subjects?deleted=true").json()
    assert error(http.delete(f"/subjects/{subject}?permanent=true")) == (404, 40401)


@pytest.mark.promise(
    "registry", "The same schema has the same id everywhere; version numbers and ids are never reused"
)
def test_an_id_is_not_given_again_after_its_schema_is_gone_for_good(http, subject):
    gone = register(http, subject, record("a", name=f"{subject}_gone"))
    http.delete(f"/subjects/{subject}")
    http.delete(f"/subjects/{subject}?permanent=true")
    assert error(http.get(f"/schemas/ids/{gone}")) == (404, 40403)
    assert register(http, subject, record("b", name=f"{subject}_next")) > gone


@pytest.mark.promise(
    "registry", "Registration checks every compatibility level, compatibility group and mode"
)
@pytest.mark.parametrize(
    ("level", "adds_required", "removes", "adds_optional"),
    [
        ("NONE", 200, 200, 200),
        ("BACKWARD", 409, 200, 200),
        ("FORWARD", 200, 409, 200),
        ("FULL", 409, 409, 200),
        ("BACKWARD_TRANSITIVE", 409, 200, 200),
        ("FORWARD_TRANSITIVE", 200, 409, 200),
        ("FULL_TRANSITIVE", 409, 409, 200),
    ],
)
def test_registration_follows_the_level(http, subject, level, adds_required, removes, adds_optional):
    register(http, subject, record("a", "b"))
    assert http.put(f"/config/{subject}", json={"compatibility": level}).json() == {"compatibility": level}
    assert http.get(f"/config/{subject}").json() == {"compatibilityLevel": level}
    for schema, status in (
        (record("a", "b", "c"), adds_required),
        (record("a"), removes),
        (record("a", "b", optional=("c",)), adds_optional),
    ):
        body = {"schema": schema}
        check = http.post(f"/compatibility/subjects/{subject}/versions/latest", json=body).json()
        assert check == {"is_compatible": status == 200}
        if status == 409:
            assert error(http.post(f"/subjects/{subject}/versions", json=body)) == (409, 409)
            verbose = http.post(f"/compatibility/subjects/{subject}/versions?verbose=true", json=body).json()
            assert not verbose["is_compatible"]
            assert "c" in verbose["messages"][0] or "b" in verbose["messages"][0]
            assert f"compatibility: '{level}'" in verbose["messages"][-1]


@pytest.mark.promise(
    "registry", "Registration checks every compatibility level, compatibility group and mode"
)
def test_transitive_levels_look_at_every_version_and_the_others_at_the_last(http, subject):
    http.put(f"/config/{subject}", json={"compatibility": "NONE"})
    register(http, subject, record("a", "b"))
    register(http, subject, record("a"))
    body = {"schema": record("a", optional=("b",))}
    changed = {"schema": json.dumps({"type": "record", "name": "r", "fields": [
        {"name": "a", "type": "string"}, {"name": "b", "type": "int", "default": 0}]})}  # fmt: skip
    path = f"/compatibility/subjects/{subject}/versions"
    http.put(f"/config/{subject}", json={"compatibility": "BACKWARD"})
    assert http.post(path, json=changed).json() == {"is_compatible": True}
    http.put(f"/config/{subject}", json={"compatibility": "BACKWARD_TRANSITIVE"})
    assert http.post(path, json=changed).json() == {"is_compatible": False}
    assert http.post(path, json=body).json() == {"is_compatible": True}
    assert error(http.post(f"{path}/9", json=body)) == (404, 40402)
    assert http.post(f"/compatibility/subjects/{subject}-none/versions/latest", json=body).json() == {
        "is_compatible": True
    }


@pytest.mark.promise(
    "registry", "Registration checks every compatibility level, compatibility group and mode"
)
def test_compatibility_groups_are_compared_within_themselves(http, subject):
    http.put(f"/config/{subject}", json={"compatibility": "BACKWARD", "compatibilityGroup": "major"})
    one = {"properties": {"major": "1"}}
    two = {"properties": {"major": "2"}}
    register(http, subject, record("a"), metadata=one)
    broken = {"schema": record("x", "y")}
    assert error(http.post(f"/subjects/{subject}/versions", json={**broken, "metadata": one})) == (409, 409)
    register(http, subject, record("x", "y"), metadata=two)
    found = http.get(f"/subjects/{subject}/metadata?key=major&value=1").json()
    assert (found["version"], found["metadata"]) == (1, one)


def test_configuration_is_global_by_context_and_by_subject(http, subject):
    assert http.get("/config").json() == {"compatibilityLevel": "BACKWARD"}
    assert http.get(f"/config/{subject}?defaultToGlobal=true").json() == {"compatibilityLevel": "BACKWARD"}
    assert error(http.put("/config", json={"compatibility": "SIDEWAYS"})) == (422, 42203)
    given = {
        "compatibility": "FULL",
        "normalize": True,
        "compatibilityGroup": "g",
        "defaultMetadata": {"properties": {"owner": "x"}},
        "overrideMetadata": {"tags": {"a": ["PII"]}},
        "defaultRuleSet": {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE",
                                            "expr": "true", "disabled": False}]},
    }  # fmt: skip
    assert http.put(f"/config/{subject}", json=given).json() == given
    assert http.put(f"/config/{subject}", json={"normalize": None}).json() == {
        name: value for name, value in given.items() if name != "normalize"
    }
    register(http, subject, record("a", name=subject))
    stored = http.get(f"/subjects/{subject}/versions/1").json()
    assert stored["metadata"] == {"tags": {"a": ["PII"]}, "properties": {"owner": "x"}}
    assert stored["ruleSet"] == given["defaultRuleSet"]
    deleted = http.delete(f"/config/{subject}").json()
    assert deleted["compatibilityLevel"] == "FULL"
    assert error(http.delete(f"/config/{subject}")) == (404, 40401)


def test_metadata_and_rules_are_part_of_what_a_schema_is(http, subject):
    metadata = {"tags": {"r.a": ["PII"]}, "properties": {"owner": "team"}, "sensitive": ["owner"]}
    rules = {"migrationRules": [{"name": "up", "kind": "TRANSFORM", "mode": "UPGRADE", "type": "JSONATA",
                                 "expr": "$", "disabled": False}]}  # fmt: skip
    plain = register(http, subject, record("a", name=subject))
    answer = http.post(
        f"/subjects/{subject}/versions",
        json={"schema": record("a", name=subject), "metadata": metadata, "ruleSet": rules},
    ).json()
    assert answer["id"] != plain and answer["metadata"] == metadata and answer["ruleSet"] == rules
    stored = http.get(f"/subjects/{subject}/versions/2").json()
    assert (stored["metadata"], stored["ruleSet"]) == (metadata, rules)
    bad = {"schema": record("a"), "ruleSet": {"domainRules": [{"name": "1x", "type": "CEL"}]}}
    assert error(http.post(f"/subjects/{subject}/versions", json=bad)) == (422, 42210)


@pytest.mark.promise(
    "registry", "Registration checks every compatibility level, compatibility group and mode"
)
def test_modes_say_who_may_write(http, subject):
    register(http, subject, record("a"))
    assert http.get("/mode").json() == {"mode": "READWRITE"}
    assert http.put(f"/mode/{subject}", json={"mode": "READONLY"}).json() == {"mode": "READONLY"}
    assert error(http.post(f"/subjects/{subject}/versions", json={"schema": record("a", "b")})) == (
        422,
        42205,
    )
    assert error(http.delete(f"/subjects/{subject}")) == (422, 42205)
    assert error(http.put(f"/config/{subject}", json={"compatibility": "NONE"})) == (422, 42205)
    assert http.delete(f"/mode/{subject}").json() == {"mode": "READONLY"}
    assert error(http.put(f"/mode/{subject}", json={"mode": "SOMETIMES"})) == (422, 42204)
    assert error(http.put(f"/mode/{subject}", json={"mode": "IMPORT"})) == (422, 42205)
    assert error(http.put(f"/mode/{subject}", json={"mode": "FORWARD"})) == (422, 42204)
    assert http.put(f"/mode/{subject}?force=true", json={"mode": "IMPORT"}).json() == {"mode": "IMPORT"}
    assert error(http.post(f"/subjects/{subject}/versions", json={"schema": record("x")})) == (422, 42205)


def test_import_keeps_the_ids_and_versions_that_it_is_given(http, subject):
    assert http.put(f"/mode/{subject}", json={"mode": "IMPORT"}).status_code == 200
    body = {"schema": record("a", name=subject), "id": 700_001, "version": 5}
    assert http.post(f"/subjects/{subject}/versions", json=body).json() == {"id": 700_001}
    other = {"schema": record("b", name=subject), "id": 700_001, "version": 6}
    assert error(http.post(f"/subjects/{subject}/versions", json=other)) == (422, 42205)
    assert http.get(f"/subjects/{subject}/versions").json() == [5]
    http.delete(f"/mode/{subject}")
    assert error(http.post(f"/subjects/{subject}/versions", json={**body, "id": 700_002})) == (422, 42205)
    assert register(http, subject, record("a", name=subject, optional=("z",))) > 700_001
    assert http.get(f"/subjects/{subject}/versions").json() == [5, 6]


def test_references_are_resolved_kept_and_protected(http, subject):
    address = json.dumps(
        {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
    )
    person = json.dumps({"type": "record", "name": "Person", "fields": [{"name": "home", "type": "Address"}]})
    reference = {"name": "Address", "subject": f"{subject}-address", "version": 1}
    register(http, f"{subject}-address", address)
    schema_id = register(http, subject, person, references=[reference])
    assert http.get(f"/subjects/{subject}/versions/1").json()["references"] == [reference]
    assert http.get(f"/schemas/ids/{schema_id}").json()["references"] == [reference]
    assert http.get(f"/subjects/{subject}-address/versions/1/referencedby").json() == [schema_id]
    assert error(http.delete(f"/subjects/{subject}-address/versions/1")) == (422, 42206)
    assert error(http.delete(f"/subjects/{subject}-address")) == (422, 42206)
    latest = register(http, subject, person, references=[{**reference, "version": -1}])
    assert latest == schema_id, "-1 is the latest version, which is 1"
    missing = {"schema": person, "references": [{**reference, "subject": "nowhere"}]}
    answer = http.post(f"/subjects/{subject}/versions", json=missing)
    assert error(answer) == (422, 42201) and "nowhere" in answer.json()["message"]
    http.delete(f"/subjects/{subject}")
    assert http.get(f"/subjects/{subject}-address/versions/1/referencedby").json() == []
    assert http.delete(f"/subjects/{subject}-address").status_code == 200


def test_contexts_have_their_own_ids_and_subjects(http, subject):
    name = f":.{subject}:orders"
    assert register(http, name, record("a", name=subject)) == 1
    assert f".{subject}" in http.get("/contexts").json()
    assert http.get(f"/contexts/.{subject}/subjects").json() == [name]
    assert http.get(f"/contexts/.{subject}/subjects/orders/versions").json() == [1]
    assert http.get(f"/subjects?subjectPrefix=:.{subject}:").json() == [name]
    assert http.get(f"/schemas/ids/1?subject=:.{subject}:").status_code == 200
    assert (
        http.get(f"/contexts/.{subject}/schemas/ids/1").json()
        == http.get(f"/schemas/ids/1?subject={name}").json()
    )
    assert http.put(f"/config/:.{subject}:", json={"compatibility": "NONE"}).status_code == 200
    assert http.get(f"/config/{name}?defaultToGlobal=true").json() == {"compatibilityLevel": "NONE"}
    assert http.put(f"/contexts/.{subject}/mode", json={"mode": "READONLY"}).status_code == 200
    assert error(http.post(f"/subjects/{name}/versions", json={"schema": record("q")})) == (422, 42205)
    assert error(http.delete(f"/contexts/.{subject}")) == (422, 42211)


def test_lists_are_paged_and_filtered(http, subject):
    for index in range(3):
        register(http, f"{subject}-{index}", record("a", name=f"{subject}_{index}"))
        register(http, f"{subject}-{index}", record("a", name=f"{subject}_{index}", optional=("b",)))
    names = [f"{subject}-{index}" for index in range(3)]
    assert http.get(f"/subjects?subjectPrefix={subject}").json() == names
    assert http.get(f"/subjects?subjectPrefix={subject}&offset=1&limit=1").json() == names[1:2]
    assert http.get(f"/subjects?subjectPrefix={subject}&limit=-1&offset=-5").json() == names
    assert http.get(f"/subjects/{names[0]}/versions?offset=1").json() == [2]
    everything = http.get(f"/schemas?subjectPrefix={subject}").json()
    assert [(each["subject"], each["version"]) for each in everything] == [
        (name, version) for name in names for version in (1, 2)
    ]
    latest = http.get(f"/schemas?subjectPrefix={subject}&latestOnly=true&limit=2").json()
    assert [(each["subject"], each["version"]) for each in latest] == [(name, 2) for name in names[:2]]
    http.delete(f"/subjects/{names[0]}")
    assert http.get(f"/subjects?subjectPrefix={subject}&deletedOnly=true").json() == names[:1]
    assert len(http.get(f"/schemas?subjectPrefix={subject}").json()) == 4
    assert len(http.get(f"/schemas?subjectPrefix={subject}&deleted=true").json()) == 6


def test_an_alias_stands_for_its_subject(http, subject):
    schema_id = register(http, subject, record("a"))
    assert http.put(f"/config/{subject}-alias", json={"alias": subject}).status_code == 200
    assert http.get(f"/subjects/{subject}-alias/versions/latest").json()["id"] == schema_id
    assert http.get(f"/subjects/{subject}-alias/versions").json() == [1]
    listed = http.get(f"/schemas?subjectPrefix={subject}&aliases=true").json()
    assert listed[0]["aliases"] == [f"{subject}-alias"]


def test_normalize_finds_schemas_whatever_their_order(http, subject):
    one = json.dumps({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}})
    two = json.dumps({"properties": {"b": {"type": "number"}, "a": {"type": "string"}}, "type": "object"})
    body = {"schemaType": "JSON"}
    first = http.post(f"/subjects/{subject}/versions?normalize=true", json={**body, "schema": one}).json()
    assert (
        http.post(f"/subjects/{subject}/versions?normalize=true", json={**body, "schema": two}).json()
        == first
    )
    assert (
        http.post(f"/subjects/{subject}?normalize=true", json={**body, "schema": two}).json()["version"] == 1
    )
    version = http.get(f"/subjects/{subject}/versions/1").json()
    assert version["schemaType"] == "JSON"


def test_subjects_may_hold_slashes_spaces_and_any_script(http, subject):
    for name in (f"{subject}/a b", f"{subject}-straße-订单", f"{subject}%2F"):
        path = quote(name, safe="")
        register(http, path, record("a"))
        assert http.get(f"/subjects/{path}/versions/1").json()["subject"] == name
    assert error(http.post(f"/subjects/{quote(chr(7))}/versions", json={"schema": record("a")})) == (
        422,
        42208,
    )


def test_the_server_says_what_it_is(http, registry):
    assert http.get("/").json() == {}
    scope = http.get("/v1/metadata/id").json()["scope"]
    assert scope["clusters"]["schema-registry-cluster"] == "schema-registry"
    assert set(http.get("/v1/metadata/version").json()) == {"version", "commitId"}
    assert set(http.get("/schemas/types").json()) == {"AVRO", "JSON", "PROTOBUF"}
    description = http.get("/openapi.json").json()
    assert description["openapi"].startswith("3.")
    for path in ("/subjects/{subject}/versions", "/schemas/ids/{id}", "/mode/{subject}"):
        assert path in description["paths"]
    operations = [
        method["operationId"] for methods in description["paths"].values() for method in methods.values()
    ]
    assert len(set(operations)) == len(operations)
    assert "<table" in http.get("/docs").text
    assert "penstock_registry_requests_total{" in http.get("/metrics").text
