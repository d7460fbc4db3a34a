"""`penstock schemas` against a real registry."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from tests.registry.conftest import Registries, RegistryProcess

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {**V1, "fields": [*V1["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
BROKEN = {**V1, "fields": [{"name": "id", "type": "string"}, {"name": "qty", "type": "int"}]}


@pytest.fixture
def run(registry: RegistryProcess):
    """Run a command line; its exit code must be `expect`, and a failure one line that begins with Error."""

    def run(*arguments, expect=0, url=None, stdin=None):
        environment = {"PENSTOCK_REGISTRY": url or registry.url}
        result = CliRunner().invoke(cli, arguments, env=environment, input=stdin)
        assert result.exit_code == expect, (result.output, result.exception)
        if expect == 1:
            assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1
        assert "Traceback" not in result.stderr
        return result

    return run


@pytest.fixture
def schema_file(tmp_path: Path):
    def write(value, name="order.avsc"):
        path = tmp_path / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return str(path)

    return write


def answer(result):
    return json.loads(result.stdout)


@pytest.mark.promise(
    "registry",
    "`penstock schemas` shows, registers, compares and deletes schemas; reported incompatibilities name "
    "the field",
)
def test_register_list_and_show(run, schema_file, subject):
    first = answer(run("schemas", "register", subject, schema_file(V1), "--json"))
    assert first["version"] == 1
    assert run("schemas", "register", subject, schema_file(V1)).stdout == (
        f"{subject}: version 1, id {first['id']}\n"
    )
    second = answer(run("schemas", "register", subject, schema_file(V2), "--json"))
    assert (second["version"], second["id"] > first["id"]) == (2, True)
    (listed,) = answer(run("schemas", "list", subject, "--json"))
    assert listed == {"subject": subject, "versions": [1, 2], "latest": 2, "id": second["id"], "type": "AVRO"}
    header, row = run("schemas", "list", subject).stdout.splitlines()
    assert header.split() == ["SUBJECT", "VERSIONS", "LATEST", "ID", "TYPE"]
    assert row.split() == [subject, "2", "2", str(second["id"]), "AVRO"]
    shown = run("schemas", "show", subject, "--version", "1")
    assert json.loads(shown.stdout) == V1 and f"{subject} version 1: id {first['id']}, AVRO" in shown.stderr
    assert "\n" not in run("schemas", "show", subject, "--raw").stdout.strip()
    by_id = answer(run("schemas", "show", "--id", str(second["id"]), "--json"))
    assert by_id["versions"] == [{"subject": subject, "version": 2}] and by_id["schemaType"] == "AVRO"


@pytest.mark.promise(
    "registry",
    "`penstock schemas` shows, registers, compares and deletes schemas; reported incompatibilities name "
    "the field",
)
def test_an_incompatible_schema_is_refused_with_the_fields(run, schema_file, subject):
    run("schemas", "register", subject, schema_file(V1))
    for command in ("register", "check"):
        refused = run("schemas", command, subject, schema_file(BROKEN), expect=1)
        reasons = [line.strip() for line in refused.stderr.splitlines() if line.startswith("  ")]
        assert [reason.split(": ")[:2] for reason in reasons] == [
            ["id", "TYPE_MISMATCH"],
            ["qty", "READER_FIELD_MISSING_DEFAULT_VALUE"],
        ]
        assert f"incompatible with {subject} version 1 (BACKWARD)" in refused.stderr
    told = answer(run("schemas", "check", subject, schema_file(BROKEN), "--json", expect=1))
    assert not told["compatible"] and [reason["field"] for reason in told["reasons"]] == ["id", "qty"]
    assert run("schemas", "check", subject, schema_file(V2)).stdout == f"{subject}: compatible\n"
    assert answer(run("schemas", "check", subject, schema_file(V2), "--version", "1", "--json"))["compatible"]


@pytest.mark.promise(
    "registry",
    "`penstock schemas` shows, registers, compares and deletes schemas; reported incompatibilities name "
    "the field",
)
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            {**V1, "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}]},
            {
                **V1,
                "fields": [
                    {"name": "id", "type": "long", "default": 0},
                    {"name": "to", "type": {"type": "record", "name": "A", "fields": [
                        {"name": "city", "type": "string"}]}},
                ],
            },
            ["~ id: int -> long, default 0", "- gone: string", "+ to: record A", "+ to.city: string"],
        ),
        (
            '{"type": "object", "properties": {"a": {"type": "string"}}}',
            '{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items":'
            ' {"type": "string"}}}, "required": ["b"]}',
            ["~ a: string -> integer", "+ b[]: string", "+ b: array", "+ b required: true"],
        ),
        (
            'syntax = "proto3"; message M { string a = 1; int32 b = 2; enum E { X = 0; } }',
            'syntax = "proto3"; message M { string a = 1; repeated int64 b = 2; map<string, M> c = 3;'
            " enum E { X = 0; Y = 1; } }",
            ["~ M.b: int32 = 2 -> repeated int64 = 2", "+ M.c: map<string, M> = 3", "+ M.E.Y: = 1"],
        ),
    ],
    ids=["avro", "json", "protobuf"],
)  # fmt: skip
def test_diff_names_the_fields(run, registry, schema_file, subject, old, new, expected):
    name = "order.avsc" if isinstance(old, dict) else "o.json" if old.startswith("{") else "o.proto"
    run("schemas", "config", subject, "--compatibility", "none")
    run("schemas", "register", subject, schema_file(old, name))
    file = schema_file(new, name)
    assert sorted(run("schemas", "diff", subject, "--file", file).stdout.splitlines()) == sorted(expected)
    run("schemas", "register", subject, file)
    assert sorted(run("schemas", "diff", subject).stdout.splitlines()) == sorted(expected)
    changes = answer(run("schemas", "diff", subject, "1", "2", "--json"))
    assert {change["change"] for change in changes} <= {"added", "removed", "changed"}
    assert len(changes) == len(expected)
    lines = run("schemas", "diff", subject, "1", "2", "--text").stdout
    assert lines.startswith(f"--- {subject} version 1\n+++ {subject} version 2\n")
    assert (
        CliRunner()
        .invoke(cli, ["schemas", "diff", subject, "--exit-code"], env={"PENSTOCK_REGISTRY": registry.url})
        .exit_code
        == 1
    )
    same = run("schemas", "diff", subject, "2", "2", "--exit-code")
    assert same.stdout == "" and "are identical" in same.stderr


@pytest.mark.promise(
    "registry",
    "`penstock schemas` shows, registers, compares and deletes schemas; reported incompatibilities name "
    "the field",
)
def test_delete_softly_and_for_good(run, schema_file, subject):
    schema_id = answer(run("schemas", "register", subject, schema_file(V1), "--json"))["id"]
    run("schemas", "register", subject, schema_file(V2))
    assert run("schemas", "delete", subject, "--version", "1").stdout == f"{subject}: version 1 deleted\n"
    assert json.loads(run("schemas", "show", "--id", str(schema_id)).stdout) == V1
    assert answer(run("schemas", "list", subject, "--json"))[0]["versions"] == [2]
    assert answer(run("schemas", "list", subject, "--deleted", "--json"))[0]["versions"] == [1, 2]
    gone = answer(run("schemas", "delete", subject, "--permanent", "--json"))
    assert gone == {"subject": subject, "versions": [1, 2], "permanent": True}
    assert "no subject" in run("schemas", "show", subject, expect=1).stderr


@pytest.mark.promise(
    "registry",
    "`penstock schemas` shows, registers, compares and deletes schemas; reported incompatibilities name "
    "the field",
)
def test_config_and_mode(run, schema_file, subject):
    def settings(*options):
        told = answer(run("schemas", "config", subject, *options, "--json"))["settings"]
        return {each["name"]: (each["value"], each["from"]) for each in told}

    assert settings() == {"compatibilityLevel": ("BACKWARD", "above"), "mode": ("READWRITE", "above")}
    changed = settings("--compatibility", "full", "--set", "normalize=true", "--mode", "READONLY")
    assert changed == {
        "compatibilityLevel": ("FULL", "subject"),
        "normalize": (True, "subject"),
        "mode": ("READONLY", "subject"),
    }
    refused = run("schemas", "register", subject, schema_file(V1), expect=1)
    assert "read-only" in refused.stderr and "42205" in refused.stderr
    assert settings("--unset")["compatibilityLevel"] == ("BACKWARD", "above")
    assert "set by" in run("schemas", "config").stdout.lower()


@pytest.mark.promise(
    "registry",
    "`penstock schemas` shows, registers, compares and deletes schemas; reported incompatibilities name "
    "the field",
)
def test_errors_name_the_thing_and_what_to_do(run, schema_file, subject, tmp_path):
    run("schemas", "register", subject, schema_file(V1))
    assert f"Did you mean '{subject}'?" in run("schemas", "show", subject + "x", expect=1).stderr
    assert f"'{subject}' has 1" in run("schemas", "show", subject, "--version", "7", expect=1).stderr
    assert "40403" in run("schemas", "show", "--id", "999999", expect=1).stderr
    bad = run("schemas", "register", subject, schema_file('{"type": "nothing"}'), expect=1)
    assert "42201" in bad.stderr and "nothing" in bad.stderr
    away = run("schemas", "list", "--registry", "http://127.0.0.1:1", expect=1)
    assert "cannot reach a schema registry at http://127.0.0.1:1" in away.stderr
    assert "--registry" in away.stderr
    run("schemas", "register", subject, schema_file("x", "order.txt"), expect=2)
    run("schemas", "show", expect=2)
    assert "is empty" in run("schemas", "register", subject, schema_file(""), expect=1).stderr


@pytest.mark.promise("spark source", "The option `schema.registry.basic.auth.user.info` works as documented")
@pytest.mark.promise(
    "registry",
    "`penstock schemas` shows, registers, compares and deletes schemas; reported incompatibilities name "
    "the field",
)
def test_a_password_is_asked_for_and_taken(run, broker, registries: Registries, tmp_path):
    (tmp_path / "users").write_text("ann: secret\n")
    guarded = registries.start(
        broker.bootstrap, "--topic", "guarded", "--group", "guarded", "--auth-file", str(tmp_path / "users")
    )
    assert "user or password" in run("schemas", "list", url=guarded.url, expect=1).stderr
    run("schemas", "list", "--registry-user", "ann:secret", url=guarded.url)
    run("schemas", "list", url=guarded.url.replace("http://", "http://ann:secret@"))
    refused = run("schemas", "list", url=guarded.url.replace("http://", "http://ann:wrong@"), expect=1)
    assert "wrong" not in refused.stderr


@pytest.mark.promise(
    "spark source",
    "The options `schema.registry.ssl.ca.location`, `schema.registry.ssl.certificate.location` and "
    "`schema.registry.ssl.key.location` work as documented",
)
@pytest.mark.promise(
    "registry",
    "`penstock schemas` shows, registers, compares and deletes schemas; reported incompatibilities name "
    "the field",
)
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(run, broker, registries: Registries, tmp_path):
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    tls = ("--tls-cert", certificate, "--tls-key", key, "--tls-ca", certificate)
    secured = registries.start(broker.bootstrap, "--topic", "cli-tls", "--group", "cli-tls", *tls)
    run("schemas", "list", "--registry-ca", certificate, url=secured.url)
    assert "certificate" in run("schemas", "list", url=secured.url, expect=1).stderr


# Export and import


@pytest.fixture(scope="module")
def filled(broker, tmp_path_factory) -> str:
    """A registry that is only read, with references, deletions, contexts, settings, and holes in ids."""
    with closing(Registries(tmp_path_factory.mktemp("filled"))) as started:
        url = started.start(broker.bootstrap, "--topic", "filled", "--group", "filled").url
        fill(url)
        yield url


def fill(url: str) -> None:
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:

        def post(subject, schema, kind="AVRO", **rest):
            text = schema if isinstance(schema, str) else json.dumps(schema)
            body = {"schema": text, "schemaType": kind, **rest}
            assert http.post(f"/subjects/{quote(subject, safe='')}/versions", json=body).status_code == 200

        post("gone", '"int"')
        http.delete("/subjects/gone")
        http.delete("/subjects/gone?permanent=true")
        post("orders", V1)
        post("orders", V2)
        post("copies", V2)  # the same schema has the same id
        post("money.proto", 'syntax = "proto3"; message Money { int64 cents = 1; }', "PROTOBUF")
        refer = [{"name": "money.proto", "subject": "money.proto", "version": 1}]
        post("bill", 'syntax = "proto3"; import "money.proto"; message Bill { Money sum = 1; }', "PROTOBUF",
             references=refer)  # fmt: skip
        post("a/b c", '{"type": "object"}', "JSON", metadata={"properties": {"owner": "ann"}})
        post(":.eu:orders", '"bytes"')
        http.put("/config", json={"compatibility": "FULL"})
        http.put("/config/orders", json={"compatibility": "NONE", "normalize": True})
        http.put("/mode/copies", json={"mode": "READONLY"})
        http.delete("/subjects/orders/versions/1")
        post("late", '"double"')
        http.delete("/subjects/late")


def everything(url: str) -> dict:
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        full = {"Confluent-Accept-Unknown-Properties": "true"}
        entries = http.get("/schemas?subjectPrefix=:*:&deleted=true", headers=full).json()
        for entry in entries:
            entry.pop("ts", None)
        names = {entry["subject"] for entry in entries} | {":.eu:"}
        quoted = {name: quote(name, safe="") for name in names}
        return {
            "schemas": sorted(entries, key=lambda entry: (entry["subject"], entry["version"])),
            "config": {"": http.get("/config").json()}
            | {name: http.get(f"/config/{path}").json() for name, path in quoted.items()},
            "mode": {"": http.get("/mode").json()}
            | {name: http.get(f"/mode/{path}").json() for name, path in quoted.items()},
        }


@pytest.mark.promise(
    "registry",
    "An export is imported with ids, versions, references, deletions and settings; importing it again "
    "changes nothing",
)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_an_export_is_imported_with_ids_versions_and_settings(
    run, broker, filled, registries: Registries, tmp_path, kind
):
    output = str(tmp_path / "all.jsonl") if kind == "file" else f"{tmp_path}/all/"
    told = answer(run("schemas", "export", "-o", output, "--json", url=filled))
    assert told == {"output": output, "schemas": 8, "subjects": 7}
    if kind == "directory":
        assert json.loads((tmp_path / "all" / "orders" / "2.avsc").read_text()) == V2
        assert (tmp_path / "all" / "bill" / "1.proto").exists()
    name = f"copy-{kind}"
    other = registries.start(broker.bootstrap, "--topic", name, "--group", name).url
    tried = answer(run("schemas", "import", output, "--dry-run", "--json", url=other))
    assert tried["imported"] == 8 and everything(other)["schemas"] == []
    assert answer(run("schemas", "import", output, "--json", url=other))["imported"] == 8
    assert everything(other) == everything(filled)
    again = answer(run("schemas", "import", output, "--json", url=other))
    assert (again["imported"], again["present"]) == (0, 8)
    assert everything(other) == everything(filled)
    # A new schema gets an id that none of the imported ones has.
    new = httpx.post(f"{other}/subjects/new/versions", json={"schema": '"float"'}, trust_env=False).json()
    assert new["id"] > max(each["id"] for each in everything(filled)["schemas"] if ":" not in each["subject"])


@pytest.mark.promise(
    "registry",
    "An export is imported with ids, versions, references, deletions and settings; importing it again "
    "changes nothing",
)
@pytest.mark.timeout(240)
def test_an_import_that_was_cut_off_goes_on(run, broker, filled, registries: Registries, tmp_path):
    output = tmp_path / "all.jsonl"
    run("schemas", "export", "-o", str(output), url=filled)
    other = registries.start(broker.bootstrap, "--topic", "half", "--group", "half").url
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    with httpx.Client(base_url=other, timeout=60, trust_env=False) as http:
        for line in [line for line in lines if line["kind"] == "schema"][:3]:
            http.put(f"/mode/{line['subject']}", json={"mode": "IMPORT"})
            assert http.post(f"/subjects/{line['subject']}/versions", json=line).status_code == 200
    told = answer(run("schemas", "import", str(output), "--json", url=other))
    assert (told["imported"], told["present"]) == (5, 3)
    assert everything(other) == everything(filled)


@pytest.mark.promise(
    "registry",
    "An export is imported with ids, versions, references, deletions and settings; importing it again "
    "changes nothing",
)
@pytest.mark.timeout(240)
def test_what_stands_in_the_way_of_an_import_is_found_first(run, filled, subject, tmp_path, registry, http):
    output = tmp_path / "all.jsonl"
    run("schemas", "export", "bill", "-o", str(output), url=filled)
    kinds = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["subject"] for line in kinds if line["kind"] == "schema"] == ["money.proto", "bill"]
    (tmp_path / "cut.jsonl").write_text("\n".join(output.read_text().splitlines()[:2]))
    assert "is cut off" in run("schemas", "import", str(tmp_path / "cut.jsonl"), expect=1).stderr
    (tmp_path / "other.jsonl").write_text("[]\n")
    assert "not a JSON object" in run("schemas", "import", str(tmp_path / "other.jsonl"), expect=1).stderr
    before = everything(registry.url)["schemas"]
    taken = http.post(f"/subjects/{subject}/versions", json={"schema": '"boolean"'}).json()["id"]
    ids = {"bill": taken, "money.proto": taken + 1000}
    lines = [{**line, "id": ids[line["subject"]]} if line["kind"] == "schema" else line for line in kinds]
    (tmp_path / "clash.jsonl").write_text("\n".join(map(json.dumps, lines)))
    refused = run("schemas", "import", str(tmp_path / "clash.jsonl"), expect=1)
    assert f"the id {taken} of bill version 1 is taken by {subject} version 1" in refused.stderr
    assert len(everything(registry.url)["schemas"]) == len(before) + 1


def test_an_export_to_stdout_is_lines_and_nothing_else(run, schema_file, subject):
    run("schemas", "register", subject, schema_file(V1))
    lines = [json.loads(line) for line in run("schemas", "export", subject, "-o", "-").stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["export", "schema", "end"]
    assert lines[1]["schemaType"] == "AVRO"
