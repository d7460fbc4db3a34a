"""Apache Kafka's own clients with each mechanism: right, wrong, expired, foreign, revoked while connected.

All in one Java process: a start of Java takes longer than all of these logins.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import PenstockBroker
from penstock.testing.ports import free_port
from tests.certificates import Authority
from tests.clients.test_revoked_logins import LIFE_S, MECHANISMS, PATIENCE_S, SECRET, TOKEN_S, Site
from tests.tools import kafka_classes
from tests.tools.conftest import KafkaTools

PACKAGE = "org.apache.kafka.common.security"
MODULES = {
    "PLAIN": f"{PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{PACKAGE}.scram.ScramLoginModule",
}
REFUSED = "SaslAuthenticationException"


class Java:
    """The process; `ask` sends a line and returns the answer."""

    def __init__(self, log: Path, allowed_files: list[Path]) -> None:
        # Since Kafka 4 a client reads tokens only from files that a system property allows.
        allowed = ",".join(each.as_uri() for each in allowed_files)
        command = kafka_classes.command()
        command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}")
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                [*command, str(Path(__file__).with_name("KafkaLogins.java"))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
            )  # fmt: skip
        self._log = log

    def ask(self, *words: str | Path) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._log.read_text()[-2000:]
        return answer.strip()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


class Files:
    """The site of the Python clients' tests, and .properties files for Java."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.site = Site(directory)
        self.token_files = [
            directory / f"token-{name}" for name in ("right", "expired", "foreign", "leaving")
        ]
        # A listener that asks for certificates, beside that for passwords.
        self.mutual = free_port()
        self.authority = Authority("authority of clients")
        (directory / "clients.pem").write_text(self.authority.pem)
        self.settings = dict(self.site.settings)
        self.settings["listeners"] += f",MUTUAL://127.0.0.1:{self.mutual}"
        self.settings["listener.security.protocol.map"] += ",MUTUAL:SSL"
        self.settings |= {
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.truststore.location": str(directory / "clients.pem"),
        }

    def _write(self, name: str, port: int, lines: list[str]) -> Path:
        file = self._directory / f"{name}.properties"
        common = [
            f"bootstrap.servers=127.0.0.1:{port}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.site.ca}",
        ]
        file.write_text("\n".join([*common, *lines]) + "\n")
        return file

    def password(self, user: str, mechanism: str, password: str = SECRET) -> Path:
        jaas = f'{MODULES[mechanism]} required username="{user}" password="{password}";'
        lines = ["security.protocol=SASL_SSL", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={jaas}"]
        return self._write(f"{user}-{mechanism}-{password == SECRET}", self.site.safe, lines)

    def token(self, name: str, life_s: float = TOKEN_S, audience: str = "kafka") -> Path:
        file = self._directory / f"token-{name}"
        new = file.with_suffix(".new")
        new.write_text(self.site.token(name, life_s, audience))
        new.replace(file)
        module = f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule"
        lines = [
            "security.protocol=SASL_SSL",
            "sasl.mechanism=OAUTHBEARER",
            f"sasl.jaas.config={module} required;",
            f"sasl.login.callback.handler.class={PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler",
            f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}",
            # A token of seconds is fetched anew before its end; Java's own defaults are minutes.
            "sasl.login.refresh.min.period.seconds=0",
            "sasl.login.refresh.buffer.seconds=0",
        ]
        return self._write(f"oauth-{name}", self.site.safe, lines)

    def certificate(self, name: str, authority: Authority | None, *, expired: bool = False) -> Path:
        lines = ["security.protocol=SSL"]
        if authority is not None:
            certificate, key = authority.issue(name, expired=expired)
            store = self._directory / f"{name}.pem"
            store.write_text(key + certificate)
            lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={store}"]
        return self._write(f"certificate-{name}", self.mutual, lines)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    made = Files(tmp_path_factory.mktemp("logins"))
    with PenstockBroker(made.settings, event_loop="uvloop"):
        yield made


@pytest.fixture(scope="module")
def java(kafka_tools: KafkaTools, files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    process = Java(tmp_path_factory.mktemp("java") / "java.log", files.token_files)
    yield process
    process.close()


def goes_on_then_is_out(java: Java, name: str, begun: float, revoke: object) -> None:
    while time.monotonic() - begun < 2.5 * LIFE_S:  # over the end of two logins
        assert java.ask("send", name) == "ok"
    assert callable(revoke)
    revoke()
    end = time.monotonic() + PATIENCE_S
    while (answer := java.ask("send", name)) == "ok":
        assert time.monotonic() < end, f"{name} still writes, {PATIENCE_S:g} s after it was revoked"
    # A Java producer that may not log in again keeps its record until delivery.timeout.ms.
    assert answer.startswith((REFUSED, "TimeoutException")), answer


@pytest.mark.promise(
    "protocol",
    "With every mechanism, a client whose user is deleted or whose token expires is disconnected when "
    "its login ends; until then it renews its login without an error",
)
@pytest.mark.parametrize("mechanism", [each for each in MECHANISMS if each in MODULES])
def test_kafkas_clients_with_a_password_right_wrong_foreign_and_revoked(
    java: Java, files: Files, mechanism: str
) -> None:
    user = f"java-{mechanism}"
    files.site.add(user, mechanism)
    right = files.password(user, mechanism)
    end = time.monotonic() + PATIENCE_S
    # PLAIN: the broker reads its changed file of users within a second.
    while java.ask("list", right) != "ok":
        assert mechanism == "PLAIN" and time.monotonic() < end
    begun = time.monotonic()
    assert java.ask("open", user, right) == "ok"
    wrong = java.ask("list", files.password(user, mechanism, "wrong"))
    foreign = java.ask("list", files.password("of-no-one", mechanism))
    assert wrong.startswith(REFUSED) and wrong == foreign
    goes_on_then_is_out(java, user, begun, lambda: files.site.revoke(user, mechanism))
    assert java.ask("list", right) == wrong


@pytest.mark.promise(
    "protocol", "Clients log in with PLAIN, SCRAM and OAUTHBEARER; without the right secret they cannot"
)
def test_kafkas_clients_with_a_token_right_expired_foreign_and_revoked(java: Java, files: Files) -> None:
    assert java.ask("list", files.token("right")) == "ok"
    assert java.ask("list", files.token("foreign", audience="another")).startswith(REFUSED)
    # Java's client does not send a token that has expired; Python's do, in tests/clients.
    assert java.ask("list", files.token("expired", life_s=-600)) != "ok"
    # One that nobody renews: out when its time is over.
    assert java.ask("open", "leaving", files.token("leaving", life_s=5)) == "ok"
    end = time.monotonic() + PATIENCE_S
    while (answer := java.ask("send", "leaving")) == "ok":
        assert time.monotonic() < end
    assert answer.startswith((REFUSED, "TimeoutException")), answer


@pytest.mark.promise(
    "protocol", "Client certificates that have expired or that another authority signed are rejected"
)
def test_kafkas_clients_with_a_certificate_right_missing_expired_and_foreign(
    java: Java, files: Files
) -> None:
    assert java.ask("list", files.certificate("right", files.authority)) == "ok"
    refused = "SslAuthenticationException"
    assert java.ask("list", files.certificate("without", None)).startswith(refused)
    assert java.ask("list", files.certificate("expired", files.authority, expired=True)).startswith(refused)
    assert java.ask("list", files.certificate("foreign", Authority("another"))).startswith(refused)
