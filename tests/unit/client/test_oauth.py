"""Where OAUTHBEARER's tokens come from, without a broker: files, a real token endpoint, AWS's signer."""

from __future__ import annotations

import base64
import json
import pickle
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.client.errors import AuthenticationFailed, BadClientSetting, ConnectionFailed
from penstock.client.librdkafka import with_login
from penstock.client.oauth import current, forget
from penstock.client.sasl import mechanism
from penstock.client.security import Security

SECRET = "planted secret:4711"


class Endpoint:
    """A token endpoint for one client, which counts what it is asked."""

    def __init__(self) -> None:
        self.forms: list[dict[str, list[str]]] = []
        self.life = 3600
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
                login = base64.b64encode(b"robot:planted%20secret%3A4711").decode()
                if outer.status == 302:
                    self.send_response(302)
                    self.send_header("Location", f"http://127.0.0.1:{outer.port}/elsewhere")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if self.headers["authorization"] != f"Basic {login}":
                    self._answer(401, {"error": "invalid_client", "error_description": "who are you"})
                    return
                outer.forms.append(form)
                token = {"access_token": f"t{len(outer.forms)}", "expires_in": outer.life}
                self._answer(outer.status, token)

            def _answer(self, status: int, body: dict[str, object]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def settings(url: str, **more: str) -> dict[str, str]:
    names = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    names["sasl.oauthbearer.token.endpoint.url"] = url
    return {**names, **{name.replace("__", "."): value for name, value in more.items()}}


LIBRDKAFKA = {"sasl.oauthbearer.client.id": "robot", "sasl.oauthbearer.client.secret": SECRET}
JAVA = {
    "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    f'clientId="robot" clientSecret="{SECRET}" scope="kafka" extension_logicalCluster="lkc-1";'
}


@pytest.mark.promise(
    "clients",
    "`penstock.client`, Spark and the commands log in with OAUTHBEARER, configured with the settings of "
    "Kafka's Java client and of librdkafka",
)
def test_a_token_endpoint_is_asked_once_for_all_connections_until_the_token_ends(endpoint: Endpoint) -> None:
    security = Security.from_kafka({**settings(endpoint.url), **LIBRDKAFKA})
    assert mechanism(security).first() == b"n,,\x01auth=Bearer t1\x01\x01"
    # As in another process of Spark: equal sources share a token.
    again = pickle.loads(pickle.dumps(security))
    assert mechanism(again).first() == b"n,,\x01auth=Bearer t1\x01\x01"
    assert endpoint.forms == [{"grant_type": ["client_credentials"]}]
    assert security.tokens is not None
    forget(security.tokens, current(security.tokens))
    endpoint.life = 0
    assert mechanism(security).first() == b"n,,\x01auth=Bearer t2\x01\x01"
    assert mechanism(security).first() == b"n,,\x01auth=Bearer t3\x01\x01"
    assert SECRET not in repr(security)


def test_javas_names_say_scope_and_extensions(endpoint: Endpoint) -> None:
    security = Security.from_kafka({**settings(endpoint.url), **JAVA})
    assert mechanism(security).first() == b"n,,\x01auth=Bearer t1\x01logicalCluster=lkc-1\x01\x01"
    assert endpoint.forms == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]


def test_librdkafka_gets_the_token_by_a_callback_and_none_of_the_settings(endpoint: Endpoint) -> None:
    made = with_login({**settings(endpoint.url), **JAVA, "client.id": "c"})
    assert made.keys() == {"security.protocol", "sasl.mechanisms", "client.id", "oauth_cb"}
    token, expires, principal, extensions = made["oauth_cb"]("")
    assert (token, principal, extensions) == ("t1", "", {"logicalCluster": "lkc-1"})
    assert abs(expires - time.time() - 3600) < 60
    plain = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    assert with_login(plain) == plain


def test_what_the_endpoint_refuses_is_told_without_the_secret(endpoint: Endpoint) -> None:
    wrong = {**LIBRDKAFKA, "sasl.oauthbearer.client.secret": "wrong-4711"}
    with pytest.raises(AuthenticationFailed, match="answered 401: invalid_client, who are you") as told:
        mechanism(Security.from_kafka({**settings(endpoint.url), **wrong})).first()
    assert "wrong-4711" not in str(told.value)
    endpoint.status = 503
    with pytest.raises(ConnectionFailed, match="answered 503"):
        mechanism(Security.from_kafka({**settings(endpoint.url), **LIBRDKAFKA})).first()
    endpoint.status = 302
    with pytest.raises(AuthenticationFailed, match="answered 302"):
        mechanism(Security.from_kafka({**settings(endpoint.url), **LIBRDKAFKA})).first()
    assert len(endpoint.forms) == 1


def test_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    security = Security.from_kafka(settings(file.as_uri()))
    with pytest.raises(AuthenticationFailed, match="No such file"):
        mechanism(security).first()
    for value in ("first", "second"):
        file.write_text(value + "\n")
        assert mechanism(security).first() == f"n,,\x01auth=Bearer {value}\x01\x01".encode()
    file.write_text("two words\n")
    with pytest.raises(AuthenticationFailed, match="has no token"):
        mechanism(security).first()


def test_a_refused_token_is_acknowledged_and_not_used_again(endpoint: Endpoint) -> None:
    security = Security.from_kafka({**settings(endpoint.url), **LIBRDKAFKA})
    one = mechanism(security)
    one.first()
    assert one.respond(b'{"status":"invalid_token"}') == b"\x01" and not one.done
    with pytest.raises(AuthenticationFailed):
        one.respond(b"more")
    assert mechanism(security).first() == b"n,,\x01auth=Bearer t2\x01\x01"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs sasl.oauthbearer.token.endpoint.url"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://issuer.example/token"}, "must begin with https://"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token"}, "client.id"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "AWS_REGION"),
    ],
)
def test_what_is_missing_is_named(given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    base = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(BadClientSetting, match=said):
        Security.from_kafka({**base, **given})


@pytest.mark.promise(
    "clients", "AWS MSK IAM login works: the client sends a request signed with the machine's AWS credentials"
)
def test_the_token_of_msk_iam_is_signed_for_the_cluster_of_the_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="the extra aws is not installed")
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "bootstrap.servers": "b-1.demo.abc.c2.kafka.eu-north-1.amazonaws.com:9098",
    }
    security = Security.from_kafka(given)
    assert security.mechanism == "OAUTHBEARER"
    message = mechanism(security).first().decode()
    token = message.removeprefix("n,,\x01auth=Bearer ").removesuffix("\x01\x01")
    url = urlsplit(base64.urlsafe_b64decode(token + "==").decode())
    assert url.hostname == "kafka.eu-north-1.amazonaws.com"
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert asked["Action"] == "kafka-cluster:Connect" and SECRET not in message
    # As a broker of MSK does: who knows the secret comes to the same signature.
    signer = SigV4QueryAuth(Credentials("AKIAEXAMPLE", SECRET), "kafka-cluster", "eu-north-1")
    unsigned = {name: value for name, value in asked.items() if name not in ("X-Amz-Signature", "User-Agent")}
    request = AWSRequest("GET", f"{url.scheme}://{url.netloc}/?" + _query(unsigned))
    request.context["timestamp"] = asked["X-Amz-Date"]
    to_sign = signer.string_to_sign(request, _canonical(url.netloc, unsigned))
    assert signer.signature(to_sign, request) == asked["X-Amz-Signature"]


def _query(fields: dict[str, str]) -> str:
    from urllib.parse import quote

    return "&".join(
        f"{quote(name, safe='')}={quote(value, safe='-_.~')}" for name, value in sorted(fields.items())
    )


def _canonical(host: str, fields: dict[str, str]) -> str:
    import hashlib

    empty = hashlib.sha256(b"").hexdigest()
    return f"GET\n/\n{_query(fields)}\nhost:{host}\n\nhost\n{empty}"
