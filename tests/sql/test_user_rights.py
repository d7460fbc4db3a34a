"""A server whose users have ACLs: what `tests/clients/test_sql_rights.py` decides is in force."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.cli.access.acls import acls
from penstock.testing import PenstockBroker
from penstock.testing.ports import free_port
from tests.sql.conftest import BROKER_SETTINGS
from tests.sql.serving import SqlClient, SqlServer

USERS = {"root": "admin", "alice": "write", "eve": "write"}
STREAM = "CREATE STREAM {0} (id BIGINT, city STRING) WITH (topic = '{0}', format = 'json');"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    directory = tmp_path_factory.mktemp("rights")
    plain, login = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = {
        "listeners": f"PLAINTEXT://{plain},LOGIN://{login}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
        "delegation.token.secret.key": "a-secret-for-tokens",
        "num.partitions": 1,
        **BROKER_SETTINGS,
    }
    users = directory / "users"
    users.write_text("".join(f"{name}: {name}-secret, {role}\n" for name, role in USERS.items()))
    users.chmod(0o600)
    config = directory / "server.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.username=sqlserver\nsasl.password=server-secret\n"
    )
    with PenstockBroker(settings):
        admin = AdminClient({"bootstrap.servers": plain})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("sqlserver", info, b"server-secret")
        admin.alter_user_scram_credentials([change])["sqlserver"].result(30)
        for words in (
            ("User:sqlserver", "all", "--topic", "*"),
            ("User:sqlserver", "all", "--group", "*"),
            ("User:sqlserver", "all", "--transactional-id", "*"),
            ("User:sqlserver", "create-tokens", "--user", "*"),
            ("User:alice", "read", "write", "--topic", "orders"),
        ):
            done = CliRunner().invoke(acls, ["allow", *words, "-b", plain])
            assert done.exit_code == 0, (words, done.output)
        producer = Producer({"bootstrap.servers": plain})
        for topic in ("orders", "hidden"):
            producer.produce(topic, json.dumps({"id": 1, "city": "Turku"}))
        assert producer.flush(30) == 0
        options = ("--no-registry", "--auth-file", str(users), "--client-config", str(config))
        started = SqlServer(login, "http://127.0.0.1:9", directory / "sql", *options)
        try:
            yield started.wait()
        finally:
            started.stop()


def client(server: SqlServer, user: str) -> SqlClient:
    made = SqlClient(server.url)
    made.http.auth = httpx.BasicAuth(user, f"{user}-secret")
    return made


@pytest.mark.promise(
    "sql",
    "Statements run as their user: without the right to read a topic, no SELECT reads it",
)
def test_the_server_does_for_each_user_what_the_clusters_acls_allow(server: SqlServer) -> None:
    with client(server, "root") as root, client(server, "alice") as alice, client(server, "eve") as eve:
        root.ok(STREAM.format("orders") + STREAM.format("hidden"))
        assert alice.rows("SELECT city FROM orders") == [["Turku"]]
        assert [row[0] for row in alice.rows("SHOW STREAMS")] == ["orders"] and eve.rows("SHOW TOPICS") == []
        for sql in (
            "SELECT * FROM orders",
            "SELECT * FROM orders EMIT CHANGES LIMIT 1",
            "INSERT INTO orders (id) VALUES (2)",
            "DESCRIBE orders EXTENDED",
            "SELECT * FROM order",
            "SELECT * FROM nowhere",
        ):
            error = eve.run(sql)[-1].error
            assert error is not None and error["error"] in ("Unknown", "BadSyntax"), (sql, error)
            assert "did you mean" not in error["message"] and "hidden" not in error["message"]
        assert eve.http.get("/relations").json() == {"relations": [], "topics": []}
        assert [each["name"] for each in alice.http.get("/relations").json()["relations"]] == ["orders"]
        assert alice.run("CREATE STREAM c WITH (topic = 'c') AS SELECT id FROM orders")[-1].error is not None
        assert root.rows("SELECT count(*) FROM orders") == [[1]]
