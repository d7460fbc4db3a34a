"""TLS and SASL of Penstock's own client, through servers that really check, in front of a real broker."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from penstock.admin.cluster import Cluster as AdminCluster
from penstock.cli.access.authority import Authority as CertsAuthority
from penstock.cli.main import cli
from penstock.cli.options.properties import read_properties
from penstock.client import (
    LATEST,
    AuthenticationFailed,
    ClientSettings,
    Cluster,
    ClusterTimeout,
    TlsFailed,
)
from penstock.client.errors import BadClientSetting
from penstock.console.reads.samples import take_sample
from penstock.errors import PenstockError
from penstock.spark.source.reading import read_range
from penstock.testing import PenstockBroker
from tests.certificates import Authority
from tests.clients.frame_proxy import Proxy, SaslProxy
from tests.clients.share_member import ACCEPT, ShareMember, alter_group

Behind = Callable[[Proxy], PenstockBroker]
USERS = {"alice": "wonder,land=1", "b=o,b": "builder"}


@pytest.fixture
def behind(broker: PenstockBroker) -> Iterator[Behind]:
    """Puts a proxy before the shared broker."""
    with ExitStack() as stack:

        def start(proxy: Proxy) -> PenstockBroker:
            stack.enter_context(proxy).serve(broker.port)
            return broker

        yield start


def connect(proxy: Proxy, **settings: str) -> Cluster:
    return Cluster(
        ClientSettings.from_kafka(
            {"bootstrap.servers": proxy.address, "default.api.timeout.ms": "20000", **settings}
        )
    )


def sasl(mechanism: str, user: str = "alice", password: str | None = None) -> dict[str, str]:
    secret = USERS.get(user, "") if password is None else password
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": secret,
    }


def values(cluster: Cluster, topic: str) -> list[bytes]:
    end = cluster.list_offsets({(topic, 0): LATEST})[topic, 0]
    assert end is not None
    return [value for batch in read_range(cluster, topic, 0, 0, end) for value in batch["value"].to_pylist()]


@pytest.mark.promise(
    "client library", "TLS works with PEM files, verified host names and client certificates"
)
def test_records_come_through_tls(behind: Behind, topic: str, tmp_path: Path) -> None:
    authority = Authority()
    proxy = Proxy(authority.server(tmp_path, "127.0.0.1"))
    broker = behind(proxy)
    broker.produce(topic, [b"x" * 30_000] * 30)
    trust = tmp_path / "ca.pem"
    trust.write_text(authority.pem)
    by_file = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)}
    for settings in (by_file, {"ssl.truststore.certificates": authority.pem}):
        with connect(proxy, **{"security.protocol": "SSL"}, **settings) as cluster:
            assert values(cluster, topic) == [b"x" * 30_000] * 30


@pytest.mark.promise(
    "client library", "TLS works with PEM files, verified host names and client certificates"
)
def test_a_certificate_of_another_authority_is_not_trusted(
    behind: Behind, topic: str, tmp_path: Path
) -> None:
    proxy = Proxy(Authority().server(tmp_path, "127.0.0.1"))
    behind(proxy)
    stranger = {"security.protocol": "SSL", "ssl.truststore.certificates": Authority("another").pem}
    with connect(proxy, **stranger) as cluster:
        with pytest.raises(TlsFailed, match=rf"{proxy.address}: its certificate is not trusted"):
            cluster.topics()


@pytest.mark.promise(
    "client library", "TLS works with PEM files, verified host names and client certificates"
)
def test_a_certificate_for_another_host_counts_only_where_names_are_not_checked(
    behind: Behind, topic: str, tmp_path: Path
) -> None:
    authority = Authority()
    proxy = Proxy(authority.server(tmp_path, "elsewhere.example"))
    behind(proxy)
    settings = {"security.protocol": "SSL", "ssl.truststore.certificates": authority.pem}
    with connect(proxy, **settings) as cluster, pytest.raises(TlsFailed, match=r"127\.0\.0\.1"):
        cluster.topics()
    with connect(proxy, **settings, **{"ssl.endpoint.identification.algorithm": ""}) as cluster:
        assert topic in cluster.topics()


@pytest.mark.promise(
    "client library", "TLS works with PEM files, verified host names and client certificates"
)
def test_a_revoked_certificate_of_a_server_is_not_trusted(behind: Behind, topic: str, tmp_path: Path) -> None:
    authority = CertsAuthority.open(tmp_path / "certs", "revoking", 30)
    server = authority.issue(tmp_path / "server.pem", "127.0.0.1", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server)
    proxy = Proxy(context)
    behind(proxy)
    lists, _ = authority.revoke([], 30)
    settings = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate_file),
        "ssl.crl.location": str(lists),
    }
    with connect(proxy, **settings) as cluster:
        assert topic in cluster.topics()
    authority.revoke([server], 30)
    with connect(proxy, **settings) as cluster, pytest.raises(TlsFailed, match="certificate revoked"):
        cluster.topics()
    lists.write_text(authority.certificate_file.read_text())
    with pytest.raises(BadClientSetting, match=r"ssl\.crl\.location=.* has CERTIFICATE"):
        connect(proxy, **settings)


@pytest.mark.promise(
    "client library", "TLS works with PEM files, verified host names and client certificates"
)
def test_a_client_shows_its_certificate_to_a_server_that_wants_one(
    behind: Behind, topic: str, tmp_path: Path
) -> None:
    authority, clients = Authority(), Authority("clients")
    proxy = Proxy(authority.server(tmp_path, "127.0.0.1", clients=clients))
    behind(proxy)
    settings = {"security.protocol": "SSL", "ssl.truststore.certificates": authority.pem}
    certificate, key = clients.issue("client.example", password="open sesame")
    store = tmp_path / "client.pem"
    store.write_text(key + certificate)
    as_text = {"ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}
    for own in ({"ssl.keystore.location": str(store)}, as_text):
        with connect(proxy, **settings, **own, **{"ssl.key.password": "open sesame"}) as cluster:
            assert topic in cluster.topics()
    with connect(proxy, **settings) as cluster, pytest.raises(PenstockError) as nobody:
        cluster.topics()
    assert isinstance(nobody.value, (TlsFailed, ClusterTimeout))


def test_tls_to_a_listener_without_it_says_so(broker: PenstockBroker) -> None:
    settings = ClientSettings.from_kafka(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SSL",
            "default.api.timeout.ms": "300",
            "request.timeout.ms": "5000",
        }
    )
    with Cluster(settings) as cluster, pytest.raises(PenstockError, match=r"speak\D*SSL|SSL fit") as failed:
        cluster.topics()
    assert broker.bootstrap in str(failed.value)


@pytest.mark.promise(
    "client library", "After the timeout, the error names the address, the reason and what to check"
)
def test_no_tls_to_a_listener_with_it_says_so(behind: Behind, topic: str, tmp_path: Path) -> None:
    proxy = Proxy(Authority().server(tmp_path, "127.0.0.1"))
    behind(proxy)
    with connect(proxy, **{"default.api.timeout.ms": "300"}) as cluster:
        with pytest.raises(ClusterTimeout, match=r"security\.protocol=PLAINTEXT"):
            cluster.topics()


@pytest.mark.promise(
    "client library", "SASL PLAIN and SCRAM work, the server is verified, and logins are renewed in time"
)
@pytest.mark.parametrize("user", list(USERS))
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_knows_the_password_is_let_in(behind: Behind, topic: str, mechanism: str, user: str) -> None:
    proxy = SaslProxy(USERS)
    broker = behind(proxy)
    broker.produce(topic, [b"one", b"two"])
    with connect(proxy, **sasl(mechanism, user)) as cluster:
        assert values(cluster, topic) == [b"one", b"two"]
    assert set(proxy.authenticated) == {user}


@pytest.mark.promise(
    "client library", "SASL PLAIN and SCRAM work, the server is verified, and logins are renewed in time"
)
@pytest.mark.parametrize("user", ["alice", "mallory"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_does_not_know_it_is_refused_at_once(
    behind: Behind, topic: str, mechanism: str, user: str
) -> None:
    proxy = SaslProxy(USERS)
    behind(proxy)
    with connect(proxy, **sasl(mechanism, user, "wrong")) as cluster:
        with pytest.raises(AuthenticationFailed, match=rf"refused {mechanism} as {user}: .*credentials"):
            cluster.topics()
    assert proxy.authenticated == []


@pytest.mark.promise(
    "client library", "SASL PLAIN and SCRAM work, the server is verified, and logins are renewed in time"
)
def test_a_server_that_accepts_any_password_is_not_believed(behind: Behind, topic: str) -> None:
    proxy = SaslProxy(USERS, impostor=True)
    behind(proxy)
    with connect(proxy, **sasl("SCRAM-SHA-256")) as cluster:
        with pytest.raises(AuthenticationFailed, match="impostor"):
            cluster.topics()


def test_a_mechanism_that_the_broker_does_not_take_is_named_with_those_it_takes(
    behind: Behind, topic: str
) -> None:
    proxy = SaslProxy(USERS, ("SCRAM-SHA-512",))
    behind(proxy)
    with connect(proxy, **sasl("PLAIN")) as cluster:
        with pytest.raises(AuthenticationFailed, match=r"sasl\.mechanism=PLAIN; supported: SCRAM-SHA-512"):
            cluster.topics()


@pytest.mark.promise(
    "client library", "SASL PLAIN and SCRAM work, the server is verified, and logins are renewed in time"
)
def test_an_authentication_that_ends_is_renewed_on_a_new_connection(behind: Behind, topic: str) -> None:
    proxy = SaslProxy(USERS, lifetime_ms=1)
    broker = behind(proxy)
    broker.produce(topic, [b"one"])
    with connect(proxy, **sasl("SCRAM-SHA-256")) as cluster:
        assert values(cluster, topic) == [b"one"]
        before = len(proxy.authenticated)
        assert values(cluster, topic) == [b"one"]
    assert len(proxy.authenticated) > before


def test_sasl_over_tls(behind: Behind, topic: str, tmp_path: Path) -> None:
    authority = Authority()
    proxy = SaslProxy(USERS, tls=authority.server(tmp_path, "127.0.0.1"))
    broker = behind(proxy)
    broker.produce(topic, [b"one"])
    settings = {
        **sasl("SCRAM-SHA-512"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.certificates": authority.pem,
    }
    with connect(proxy, **settings) as cluster:
        assert values(cluster, topic) == [b"one"]


@pytest.mark.promise(
    "group commands",
    "Commands for which librdkafka has no request (transactions, share groups, reassignment) work over "
    "TLS and SASL",
)
def test_commands_with_requests_that_librdkafka_lacks_work_over_tls_and_sasl(
    behind: Behind, topic: str, tmp_path: Path
) -> None:
    authority = Authority()
    proxy = SaslProxy(USERS, tls=authority.server(tmp_path, "127.0.0.1"))
    broker = behind(proxy)
    trust = tmp_path / "ca.pem"
    trust.write_text(authority.pem)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=SASL_SSL\nssl.ca.location={trust}\n"
        "sasl.mechanisms=SCRAM-SHA-256\nsasl.username=alice\nsasl.password=wonder,land=1\n"
    )
    common = ["-b", proxy.address, "--client-config", str(properties), "--json"]
    listed = CliRunner().invoke(cli, ["transactions", "list", *common])
    assert listed.exit_code == 0, listed.output
    assert topic in listed.stdout
    described = CliRunner().invoke(cli, ["cluster", "describe", *common])
    assert described.exit_code == 0, described.output
    known = json.loads(described.stdout)
    assert known["moving"] == [] and all(each["bytes"] is not None for each in known["brokers"])
    broker.produce(topic, [b"one", b"two", b"three"])
    with ShareMember(broker, f"{topic}-takers", topic) as member:
        alter_group(member.wire, member.group, share_auto_offset_reset="earliest")
        got: list[tuple[int, str, int]] = []
        while not got:
            got = member.fetch(max_wait_ms=500)
        assert [offset for offset, _, _ in got] == [0, 1, 2]
        assert member.acknowledge((0, 1, [ACCEPT])).error_code == 0
        shares = CliRunner().invoke(cli, ["groups", "list", "--type", "share", *common])
        assert [each["group"] for each in json.loads(shares.stdout)] == [member.group]
        settings = read_properties(str(properties))
        sample = take_sample(AdminCluster(proxy.address, settings, timeout=60.0), now=1.0)
        assert sample.lags[member.group] == 1
    wrong = CliRunner().invoke(cli, ["transactions", "list", *common, "-X", "sasl.password=guess"])
    assert wrong.exit_code == 1
    assert wrong.stderr.count("\n") == 1 and "guess" not in wrong.stderr
