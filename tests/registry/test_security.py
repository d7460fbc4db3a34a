"""Passwords and TLS."""

from __future__ import annotations

import hashlib
import shutil
import ssl
import subprocess

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from penstock.registry.errors import CannotStart
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
