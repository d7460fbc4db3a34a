"""`penstock up --secure`: one command, a login that works everywhere, and nothing for who has none."""

from __future__ import annotations

import json
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.clients.secure_clients import SECURE_CLIENTS, Login, LoginRefused
from tests.clients.secure_up import SecureUp, answer
from tests.doc_blocks import commands
from tests.doc_shell import Shell


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureUp]:
    running = SecureUp(tmp_path_factory.mktemp("secure"), "--set", "num.partitions=1")
    yield running
    running.stop()


def login(up: SecureUp, user: str, password: str) -> Login:
    return Login("SASL_SSL", Path(up.ready["ca"]), mechanism="SCRAM-SHA-512", user=user, password=password)


@pytest.mark.promise(
    "access",
    "`penstock up --secure` writes a client file that logs in with librdkafka, kafka-python, aiokafka, "
    "Kafka's tools and every command",
)
@pytest.mark.parametrize("name", list(SECURE_CLIENTS))
def test_the_administrator_writes_and_reads_with_each_client(up: SecureUp, name: str) -> None:
    admin = login(up, up.client["sasl.username"], up.client["sasl.password"])
    assert name.encode() in SECURE_CLIENTS[name](up.ready["bootstrap"], f"by-{name}", admin)


@pytest.mark.promise(
    "access",
    "With `penstock up --secure`, no port serves anything without a login: brokers, registry, Connect, "
    "ZooKeeper",
)
@pytest.mark.parametrize("name", list(SECURE_CLIENTS))
def test_who_has_no_password_or_a_wrong_one_is_refused(up: SecureUp, name: str) -> None:
    for stranger in (
        login(up, "admin", "wrong"),
        login(up, "nobody", up.client["sasl.password"]),
        Login("SSL", Path(up.ready["ca"])),
        Login("PLAINTEXT"),
    ):
        # kafka-python and aiokafka see a closed connection on a listener that wants another protocol.
        with pytest.raises((LoginRefused, OSError)):
            SECURE_CLIENTS[name](up.ready["bootstrap"], "strangers", stranger)


@pytest.mark.promise(
    "access",
    "`penstock up --secure` writes a client file that logs in with librdkafka, kafka-python, aiokafka, "
    "Kafka's tools and every command",
)
def test_the_client_file_is_librdkafkas_as_it_stands(up: SecureUp) -> None:
    assert up.ready["client_config"] == str(up.data / "secure" / "client.properties")
    topics = AdminClient(up.client).list_topics(timeout=30).topics
    assert "_schemas" in topics
    with pytest.raises(KafkaException):
        AdminClient({**up.client, "sasl.password": "wrong"}).list_topics(timeout=5)


@pytest.mark.promise(
    "access",
    "`penstock up --secure` writes a client file that logs in with librdkafka, kafka-python, aiokafka, "
    "Kafka's tools and every command",
)
@pytest.mark.parametrize(
    "file", ["client_config", pytest.param("client_config_java", marks=pytest.mark.long)]
)
def test_commands_of_every_kind_take_the_file(up: SecureUp, file: str) -> None:
    config = ("--client-config", up.ready[file])
    topic = file.replace("_", "-")
    up.penstock("topics", "create", topic, *config)
    up.penstock("produce", topic, *config, input="one\ntwo\n")
    assert up.penstock("consume", topic, *config) == "one\ntwo\n"
    group = ("--group", "readers", "--max", "2")
    assert up.penstock("consume", topic, *group, *config) == "one\ntwo\n"
    for words in (
        ("topics", "describe", topic),
        ("configs", "describe", "topic", topic),
        ("offsets", topic),
        ("groups", "describe", "readers"),
        ("transactions", "list"),
        ("cluster", "describe"),
        ("users", "list"),
        ("acls", "list"),
        ("quotas", "list"),
    ):
        up.penstock(*words, "--json", *config)


@pytest.mark.promise(
    "access",
    "`penstock up --secure` writes a client file that logs in with librdkafka, kafka-python, aiokafka, "
    "Kafka's tools and every command",
)
def test_the_shell_file_makes_options_unnecessary_also_for_the_registry(up: SecureUp) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
    (up.directory / "r.avsc").write_text(schema)
    script = f"""
        . {up.ready["client_env"]}
        penstock() {{ {sys.executable} -m penstock "$@"; }}
        set -e
        penstock schemas register typed-value {up.directory / "r.avsc"}
        penstock topics create typed
        echo '{{"n": 7}}' | penstock produce typed --value-format avro
        penstock consume typed --value-format avro
    """
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"n": 7}


@pytest.mark.promise(
    "access",
    "With `penstock up --secure`, no port serves anything without a login: brokers, registry, Connect, "
    "ZooKeeper",
)
def test_a_new_user_may_do_nothing_until_it_is_allowed(up: SecureUp) -> None:
    config = ("--client-config", up.ready["client_config"])
    up.penstock("users", "add", "alice", "--password-file", "-", *config, input="wonderland")
    up.penstock("topics", "create", "orders", *config)
    alice = ("-X", "sasl.username=alice", "-X", "sasl.password=wonderland")
    assert json.loads(up.penstock("topics", "list", "--json", *config, *alice)) == []
    up.penstock("produce", "orders", *config, *alice, input="no\n", ok=False)
    up.penstock("users", "list", *config, *alice, ok=False)
    up.penstock("acls", "allow", "User:alice", "read", "write", "--topic", "orders", *config)
    up.penstock("produce", "orders", *config, *alice, input="yes\n")
    assert up.penstock("consume", "orders", *config, *alice) == "yes\n"
    registry = ("-X", "sasl.username=registry", "-X", "sasl.password=guess")
    up.penstock("topics", "list", *config, *registry, "--timeout", "3", ok=False)


@pytest.mark.promise("docs", "The commands of security.md after `penstock up --secure` run as printed")
def test_the_commands_of_the_page_run(up: SecureUp) -> None:
    shell = Shell(up.directory, {"PASSWORD": "wonderland"}, {"alice": "carol", "orders": "carols-orders"})
    # Asked for on a terminal; here it is in the environment.
    lines = "\n".join(commands("docs/security.md", "In one command"))
    shell.run(lines.replace("users add alice", "users add alice --password-env PASSWORD"))
    carol = ("-X", "sasl.username=carol", "-X", "sasl.password=wonderland")
    config = ("--client-config", up.ready["client_config"])
    up.penstock("produce", "carols-orders", *config, *carol, input="yes\n")
    assert up.penstock("consume", "carols-orders", "--group", "carol-1", *config, *carol) == "yes\n"


@pytest.mark.promise(
    "access",
    "With `penstock up --secure`, no port serves anything without a login: brokers, registry, Connect, "
    "ZooKeeper",
)
def test_the_registry_wants_the_password_over_https(up: SecureUp) -> None:
    url = up.ready["registry"]
    assert url.startswith("https://")
    user = up.client["sasl.username"], up.client["sasl.password"]
    with httpx.Client(verify=up.tls(), trust_env=False) as http:
        for path in ("/", "/subjects", "/schemas/ids/1", "/metrics", "/docs", "/openapi.json"):
            assert http.get(url + path).status_code == 401
            assert http.get(url + path, auth=("admin", "wrong")).status_code == 401
        assert http.get(f"{url}/subjects", auth=user).status_code == 200
    client = SchemaRegistryClient(
        {"url": url, "basic.auth.user.info": ":".join(user), "ssl.ca.location": up.ready["ca"]}
    )
    assert isinstance(client.get_subjects(), list)


@pytest.mark.promise(
    "access",
    "With `penstock up --secure`, no port serves anything without a login: brokers, registry, Connect, "
    "ZooKeeper",
)
def test_the_connect_worker_wants_the_password_and_has_a_login_of_its_own(up: SecureUp) -> None:
    url = up.ready["connect"]
    assert url.startswith("https://")
    user = up.client["sasl.username"], up.client["sasl.password"]
    up.penstock("topics", "create", "lines", "--client-config", up.ready["client_config"])
    lines = up.directory / "lines"
    lines.write_text("one\ntwo\n")
    config = {"connector.class": "FileStreamSource", "file": str(lines), "topic": "lines"}
    config["value.converter"] = "org.apache.kafka.connect.storage.StringConverter"
    with httpx.Client(base_url=url, verify=up.tls(), trust_env=False, timeout=60) as http:
        for path in ("/", "/connectors", "/connector-plugins", "/metrics", "/admin/loggers"):
            assert http.get(path).status_code == 401
            assert http.get(path, auth=("admin", "wrong")).status_code == 401
        body = {"name": "lines", "config": config}
        assert http.post("/connectors", json=body).status_code == 401
        assert http.post("/connectors", json=body, auth=user).status_code == 201
    command = f". {up.ready['client_env']}; {sys.executable} -m penstock"
    listed = subprocess.run(
        ["sh", "-c", f"{command} connect list --json"], capture_output=True, text=True, timeout=120
    )
    assert "lines" in listed.stdout, listed.stderr
    read = subprocess.run(
        ["sh", "-c", f"{command} consume lines --from earliest --follow -n 2"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert read.stdout == "one\ntwo\n", read.stderr
    # Its user is no administrator: it may not write where the servers keep their state.
    passwords = (up.data / "secure" / "connect.properties").read_text()
    file = up.directory / "connect.properties"
    file.write_text(f"bootstrap.servers={up.ready['bootstrap']}\n{passwords}")
    up.penstock("produce", "_schemas", "--client-config", str(file), input="no\n", ok=False)
    up.penstock("users", "list", "--client-config", str(file), ok=False)


METADATA = b"\0\3\0\1" + struct.pack(">ih", 7, -1) + struct.pack(">i", -1)
API_VERSIONS = b"\0\x12\0\0" + struct.pack(">ih", 7, -1)


@pytest.mark.promise(
    "access",
    "With `penstock up --secure`, no port serves anything without a login: brokers, registry, Connect, "
    "ZooKeeper",
)
def test_no_port_answers_a_stranger(up: SecureUp) -> None:
    (broker,) = up.ready["brokers"]
    urls = [up.ready["registry"], up.ready["connect"], up.ready["console"], broker["metrics"]]
    served = {("127.0.0.1", port) for port in (broker["port"], *(httpx.URL(url).port for url in urls))}
    assert up.ports() == served
    for port in served:
        for request in (
            _framed(METADATA),
            _framed(API_VERSIONS),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        ):
            # An alert of TLS may come back, which begins with its type, 21; nothing else.
            assert answer(port, request)[:1] in (b"", b"\x15")
    # With TLS and without a login the broker lists its requests, as Kafka does, and hangs up on all others.
    assert answer(("127.0.0.1", broker["port"]), _framed(METADATA), up.tls()) == b""
    root = broker["metrics"].removesuffix("/metrics")
    user = up.client["sasl.username"], up.client["sasl.password"]
    with httpx.Client(verify=up.tls(), trust_env=False) as http:
        for path in ("/metrics", "/health", "/ready", "/admin/loggers"):
            assert http.get(root + path).status_code == 401
            assert http.get(root + path, auth=("admin", "wrong")).status_code == 401
        assert http.get(broker["metrics"], auth=user).status_code == 200


def _framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


@pytest.mark.promise(
    "access",
    "With `penstock up --secure`, only the owner can read the files, and no secret is in a process "
    "argument or a log",
)
def test_all_files_and_the_directory_are_the_owners_alone(up: SecureUp) -> None:
    for path in (up.data, *up.data.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.promise(
    "access",
    "With `penstock up --secure`, only the owner can read the files, and no secret is in a process "
    "argument or a log",
)
def test_no_secret_is_an_argument_or_in_the_log(up: SecureUp) -> None:
    passwords = (up.data / "secure" / "passwords.properties").read_text().splitlines()
    secrets = [line.split("=", 1)[1] for line in passwords]
    assert len(secrets) == 6
    said = [up.log.read_bytes(), json.dumps(up.ready).encode()]
    said += [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in up.processes()]
    for secret in secrets:
        assert not any(secret.encode() in each for each in said)


@pytest.mark.promise(
    "access",
    "A second `penstock up --secure` uses the same certificate authority, users and passwords; a start "
    "without --secure is rejected",
)
def test_a_second_start_has_the_same_authority_users_and_passwords(tmp_path: Path) -> None:
    up = SecureUp(tmp_path, "--no-registry")
    config = ("--client-config", up.ready["client_config"])
    up.penstock("users", "add", "alice", "--password-file", "-", *config, input="wonderland")
    up.penstock("produce", "t", *config, input="kept\n")
    secure = up.data / "secure"
    kept = {name: (secure / name).read_bytes() for name in ("ca.pem", "ca.key", "passwords.properties")}
    certificate, before = (secure / "server.pem").read_bytes(), up.client
    up.stop()
    refused = up.penstock("up", "--data", str(up.data), "--port", "0", ok=False)
    assert "start it with --secure" in refused
    up.start()
    try:
        assert {name: (secure / name).read_bytes() for name in kept} == kept
        assert (secure / "server.pem").read_bytes() == certificate
        assert {**up.client, "bootstrap.servers": ""} == {**before, "bootstrap.servers": ""}
        assert up.penstock("consume", "t", *config) == "kept\n"
        alice = ("-X", "sasl.username=alice", "-X", "sasl.password=wonderland")
        up.penstock("topics", "list", *config, *alice)
    finally:
        up.stop()


def test_what_secure_sets_cannot_be_set_beside_it(tmp_path: Path) -> None:
    for setting in (
        "listeners=PLAINTEXT://127.0.0.1:0",
        "authorizer.class.name=",
        "super.users=User:ANONYMOUS",
        "allow.everyone.if.no.acl.found=true",
    ):
        command = [sys.executable, "-m", "penstock", "up", "--secure", "--port", "0", "--set", setting]
        done = subprocess.run(
            [*command, "--data", str(tmp_path / "data")], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2 and "--secure sets it" in done.stderr
