"""Passwords and TLS."""

from __future__ import annotations

import shutil
import ssl
import subprocess

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from penstock.credentials.users_file import hashed
from penstock.registry.http.routes import ROUTES
from penstock.web.access import Role
from tests.registry.test_api import error


@pytest.mark.promise("registry", "`penstock schemas` supports passwords and TLS")
def test_without_the_password_nothing_is_told(broker, registries, tmp_path):
    users = tmp_path / "users"
    users.write_text("ann: pear\n")
    guarded = registries.start(
        broker.bootstrap, "--topic", "guarded", "--group", "guarded", "--auth-file", str(users)
    )
    with guarded.client() as http:
        for path in ("/subjects", "/schemas/ids/1", "/nowhere", "/metrics", "/docs"):
            answer = http.get(path)
            assert error(answer) == (401, 401)
            assert answer.headers["www-authenticate"].startswith("Basic ")
        assert error(http.get("/subjects", auth=("ann", "apple"))) == (401, 401)
        assert http.get("/subjects", auth=("ann", "pear")).json() == []
    client = SchemaRegistryClient({"url": guarded.url, "basic.auth.user.info": "ann:pear"})
    assert client.get_subjects() == []


@pytest.mark.promise(
    "access",
    "A request or statement is executed only for users with the role that it needs: registry, SQL, metrics",
)
def test_each_user_may_do_what_its_role_allows(broker, registries, tmp_path):
    users, order = tmp_path / "users", ("read", "write", "admin")
    users.write_text("".join(f"{role}: {hashed(role, 1000)}, {role}\n" for role in order))
    guarded = registries.start(
        broker.bootstrap, "--topic", "roles", "--group", "roles", "--auth-file", str(users)
    )
    schema = {"schema": '"int"'}
    requests = (
        ("read", "GET", "/subjects", None),
        ("read", "HEAD", "/subjects", None),
        ("read", "GET", "/metrics", None),
        ("write", "POST", "/subjects/s/versions", schema),
        ("read", "POST", "/subjects/s", schema),
        ("read", "POST", "/compatibility/subjects/s/versions/latest", schema),
        ("read", "POST", "/compatibility/subjects/s/versions", schema),
        ("write", "POST", "/contexts/:.c:/subjects/s/versions", schema),
        ("write", "PUT", "/config/s", {"compatibility": "NONE"}),
        ("admin", "PUT", "/config", {"compatibility": "NONE"}),
        ("admin", "PUT", "/mode/s", {"mode": "READWRITE"}),
        ("admin", "PUT", "/mode", {"mode": "READWRITE"}),
        ("write", "DELETE", "/subjects/s", None),
        ("admin", "DELETE", "/config", None),
    )
    with guarded.client() as http:
        for needed, method, path, body in requests:
            for role in order:
                answer = http.request(method, path, json=body, auth=(role, role))
                allowed = order.index(role) >= order.index(needed)
                assert (answer.status_code != 403) is allowed, (role, method, path, answer.text)
                if not allowed:
                    assert error(answer) == (403, 403) and f"needs the role {needed}" in answer.text
                if allowed:
                    break
        answer = http.get("/subjects", auth=("read", "read"))
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.promise(
    "access",
    "A request or statement is executed only for users with the role that it needs: registry, SQL, metrics",
)
def test_every_route_that_changes_something_needs_more_than_reading():
    changing = {route.handler.__name__ for route in ROUTES if route.role is not Role.READ}
    assert changing == {
        "register", "delete", "delete_version", "update_config", "delete_config", "update_mode",
        "delete_mode", "delete_context",
    }  # fmt: skip


@pytest.mark.promise("registry", "`penstock schemas` supports passwords and TLS")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_https(broker, registries, tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key), "--tls-ca", str(certificate))
    secured = registries.start(broker.bootstrap, "--topic", "tls", "--group", "tls", *tls)
    assert secured.url.startswith("https://")
    trusted = ssl.create_default_context(cafile=certificate)
    with secured.client(verify=trusted) as http:
        assert http.get("/subjects").json() == []
        assert http.post("/subjects/s/versions", json={"schema": '"int"'}).json() == {"id": 1}
    with pytest.raises(httpx.ConnectError), secured.client() as http:
        http.get("/subjects")


SCHEMA = b'{"schema": "\\"int\\""}'


@pytest.mark.promise(
    "http",
    "A request body must have a JSON content type, and Origin and Sec-Fetch-Site must be the server's "
    "own or allowed",
)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null", "content-type": "application/vnd.schemaregistry.v1+json"}, 403),
        ({"content-type": "application/json", "sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "application/json", "host": "evil.example"}, 403),
    ],
)
def test_what_a_web_page_could_send_changes_nothing(http, subject, headers, status):
    for method, path in (("POST", f"/subjects/{subject}/versions"), ("PUT", f"/config/{subject}")):
        answer = http.request(method, path, content=SCHEMA, headers=headers)
        assert error(answer) == (status, status)
        assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    assert error(http.get(f"/subjects/{subject}/versions")) == (404, 40401)


@pytest.mark.promise(
    "http", "A request with a foreign host name that resolves to this machine (DNS rebinding) is rejected"
)
@pytest.mark.parametrize("path", ["/", "/subjects", "/schemas/ids/1", "/metrics", "/docs", "/openapi.json"])
def test_nothing_is_told_to_a_page_under_a_rebound_name(http, path):
    assert error(http.get(path, headers={"host": "evil.example"})) == (403, 403)


@pytest.mark.promise(
    "http",
    "Host names and origins can be added to those that are allowed; requests of Confluent's clients are "
    "accepted",
)
@pytest.mark.parametrize(
    "kind",
    ["application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json",
     "application/json; charset=utf-8", "application/octet-stream", None],
)  # fmt: skip
def test_the_types_that_confluents_takes_are_taken(http, subject, kind):
    headers = {} if kind is None else {"content-type": kind}
    answer = http.post(f"/subjects/{subject}/versions", content=SCHEMA, headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.promise(
    "http",
    "Host names and origins can be added to those that are allowed; requests of Confluent's clients are "
    "accepted",
)
def test_names_and_origins_can_be_allowed(broker, registries):
    allowed = registries.start(
        *(broker.bootstrap, "--topic", "named", "--group", "named", "--allow-host", "registry.example.com"),
        *("--allow-origin", "https://console.example.com"),
    )
    with allowed.client() as http:
        page = {"origin": "https://console.example.com", "host": "registry.example.com"}
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
        preflight = http.options("/subjects/s/versions", headers=page | asked)
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == "https://console.example.com"
        assert preflight.headers["access-control-allow-headers"] == "content-type"
        answer = http.post("/subjects/s/versions", json={"schema": '"int"'}, headers=page)
        assert answer.json() == {"id": 1}
        assert answer.headers["access-control-allow-origin"] == "https://console.example.com"
        assert error(http.get("/subjects", headers={"host": "other.example.com"})) == (403, 403)
        assert error(http.get("/subjects", headers={"origin": "https://other.example.com"})) == (403, 403)


def test_a_name_that_is_none_is_said_at_the_start(broker, registries):
    bad = registries.start(broker.bootstrap, "--allow-host", "http://a", wait=False)
    assert bad.process.wait(60) == 1
    assert "--allow-host http://a: write a name without a port" in bad.log.read_text()
