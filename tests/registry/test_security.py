"""Passwords and TLS."""

from __future__ import annotations

import hashlib
import shutil
import ssl
import subprocess

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from penstock.elected.errors import CannotStart
from penstock.registry.http.auth import Users
from tests.registry.test_api import error


def test_passwords_are_in_clear_text_or_hashed(tmp_path):
    digest = hashlib.sha256(b"se:cret").hexdigest()
    path = tmp_path / "users"
    path.write_text(f"# who\nann: pear\nbob: sha256:{digest}, admin\n")
    users = Users.read(str(path))

    def knows(name, password):
        return users.knows(httpx.BasicAuth(name, password)._auth_header)

    assert knows("ann", "pear") and knows("bob", "se:cret")
    assert knows("ann", "pear"), "and again"
    assert not knows("ann", "apple") and not knows("bob", digest) and not knows("eve", "pear")
    for header in ("", "Basic", "Basic ???", "Bearer x", "Basic /w=="):
        assert not users.knows(header)
    for text in ("", "nobody", ": x"):
        path.write_text(text)
        with pytest.raises(CannotStart):
            Users.read(str(path))


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


@pytest.mark.parametrize("path", ["/", "/subjects", "/schemas/ids/1", "/metrics", "/docs", "/openapi.json"])
def test_nothing_is_told_to_a_page_under_a_rebound_name(http, path):
    assert error(http.get(path, headers={"host": "evil.example"})) == (403, 403)


@pytest.mark.parametrize(
    "kind",
    ["application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json",
     "application/json; charset=utf-8", "application/octet-stream", None],
)  # fmt: skip
def test_the_types_that_confluents_takes_are_taken(http, subject, kind):
    headers = {} if kind is None else {"content-type": kind}
    answer = http.post(f"/subjects/{subject}/versions", content=SCHEMA, headers=headers)
    assert answer.status_code == 200, answer.text


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
