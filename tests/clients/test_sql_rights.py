"""What a user's statements may do, asked of a real broker with ACLs; no Spark: it is decided before.

`tests/sql/test_user_rights.py` has the same through a server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.cli.access.acls import acls as commands
from penstock.client import ClientSettings, Cluster
from penstock.sql.access.rights import ClusterRights
from penstock.sql.access.statements import Checks
from penstock.sql.access.watching import while_allowed
from penstock.sql.catalog.catalog import Catalog, Function, QueryDef, Relation
from penstock.sql.catalog.cluster_admin import ClusterAdmin
from penstock.sql.catalog.naming import Names
from penstock.sql.errors import NotAllowed, SqlError, Unavailable, Unknown
from penstock.sql.language.parser import parse
from penstock.sql.language.statements import Column
from penstock.sql.results import Rows
from penstock.sql.settings import EngineSettings
from penstock.testing import PenstockBroker
from penstock.testing.ports import free_port

PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
COLUMNS = (Column("id", "BIGINT"), Column("city", "STRING"))


def relation(name: str, topic: str | None, made_by: str | None = None, kind: str = "stream") -> Relation:
    return Relation(name, kind, topic, COLUMNS, made_by=made_by, path=None if topic else f"/tables/{name}")  # type: ignore[arg-type]


def catalog() -> Catalog:
    orders, hidden = relation("orders", "orders"), relation("hidden", "hidden")
    mine, filed = relation("mine", "alice-mine", "csas_mine"), relation("filed", None, "ctas_filed", "table")
    declared = relation("declared", None, None, "table")
    queries = [
        QueryDef("csas_mine", "csas", "…", mine, {"orders": orders}),
        QueryDef("ctas_filed", "ctas", "…", filed, {"orders": orders}),
        QueryDef("insert_hidden", "insert", "…", hidden, {"orders": orders}),
    ]
    relations = {each.folded: each for each in (orders, hidden, mine, filed, declared)}
    return Catalog(
        relations, {"f": Function("f", (), "INT", "return 1", "")}, {each.id: each for each in queries}
    )


class Site:
    def __init__(self, bootstrap: str, login: str) -> None:
        self.bootstrap = bootstrap
        self.server = {
            **PLAIN,
            "bootstrap.servers": login,
            "sasl.username": "sqlserver",
            "sasl.password": "server-secret",
        }
        self.rights = ClusterRights(self.server)
        self.admin = ClusterAdmin(
            EngineSettings(
                login, None, "", {k: v for k, v in self.server.items() if k != "bootstrap.servers"}
            )
        )

    def checks(self, user: str, rights: ClusterRights | None = None) -> Checks:
        found = (rights or self.rights).of(user)
        assert found is not None
        return Checks(found, catalog(), Names(catalog(), self.admin))

    def refusal(self, user: str, sql: str, rights: ClusterRights | None = None) -> SqlError | None:
        """Why the statement is refused; None if it is not."""
        (statement,) = parse(sql, {})
        try:
            self.checks(user, rights).check(statement)
        except SqlError as error:
            return error
        return None

    def acls(self, *words: str) -> None:
        done = CliRunner().invoke(commands, [*words, "-b", self.bootstrap])
        assert done.exit_code == 0, (words, done.output)

    def fresh(self) -> ClusterRights:
        """Without what was decided a moment ago."""
        return ClusterRights(self.server)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    plain, login = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = {
        "listeners": f"PLAINTEXT://{plain},LOGIN://{login}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
        "delegation.token.secret.key": "a-secret-for-tokens",
    }
    with PenstockBroker(settings):
        admin = AdminClient({"bootstrap.servers": plain})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("sqlserver", info, b"server-secret")
        admin.alter_user_scram_credentials([change])["sqlserver"].result(30)
        with Cluster(ClientSettings.from_kafka({"bootstrap.servers": plain})) as cluster:
            for topic in ("orders", "hidden", "alice-mine"):
                cluster.create_topic(topic)
        made = Site(plain, login)
        for words in (
            ("User:sqlserver", "describe", "--topic", "*"),
            ("User:sqlserver", "create-tokens", "--user", "*"),
            ("User:alice", "read", "write", "--topic", "orders"),
            ("User:alice", "read", "write", "create", "delete", "--topic", "alice-", "--prefixed"),
            ("User:bob", "describe", "--topic", "orders"),
            ("User:carol", "create", "describe", "--topic", "carol-", "--prefixed"),
            ("User:dave", "read", "--topic", "orders"),
        ):
            made.acls("allow", *words)
        yield made
        made.rights.close()
        made.admin.close()


READS = [
    "SELECT * FROM orders",
    "SELECT * FROM orders EMIT CHANGES",
    "SELECT city FROM filed WHERE id = 1",
    "SELECT * FROM (SELECT id FROM orders) x",
    "WITH x AS (SELECT id FROM orders) SELECT * FROM x",
    "SELECT 1 WHERE EXISTS (SELECT id FROM orders)",
    "SELECT a.id FROM orders a JOIN orders b ON a.id = b.id",
    "EXPLAIN SELECT * FROM orders",
]


@pytest.mark.promise(
    "sql",
    "Statements run as their user: without the right to read a topic, no SELECT reads it",
)
@pytest.mark.parametrize("sql", READS)
def test_who_may_not_read_a_topic_reads_it_by_no_select(site: Site, sql: str) -> None:
    assert site.refusal("alice", sql) is None
    assert site.refusal("root", sql) is None, "a super user of the brokers"
    told = site.refusal("eve", sql)
    name = "filed" if "filed" in sql else "orders"
    # One who may not describe it gets the answer for a name that there is not.
    assert isinstance(told, Unknown) and told.message == f"no stream, table or topic `{name}`"
    told = site.refusal("bob", sql)
    assert (
        isinstance(told, NotAllowed)
        and told.message == "User:bob may not read the topic `orders`: it needs Read"
    )


@pytest.mark.promise(
    "sql",
    "Statements run as their user: without the right to write to a topic, no INSERT writes to it",
)
@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO orders (id, city) VALUES (9, 'x')",
        "INSERT INTO orders SELECT id, city FROM orders",
        "CREATE STREAM copy WITH (topic = 'copy') AS SELECT id FROM orders",
        "CREATE STREAM copy WITH (topic = 'hidden') AS SELECT id FROM orders",
        "CREATE STREAM x (id INT) WITH (topic = 'new-topic', format = 'json')",
        "CREATE STREAM x (id INT) WITH (topic = 'hidden', format = 'json')",
        "CREATE STREAM x (id INT) WITH (topic = 'orders', format = 'json', dead_letter_topic = 'hidden')",
        "CREATE TABLE files (id INT PRIMARY KEY) WITH (storage = 'delta', path = '/etc')",
        "CREATE TABLE t WITH (storage = 'delta', path = '/etc') AS SELECT city FROM orders GROUP BY city",
        "CREATE FUNCTION g (x INT) RETURNS INT LANGUAGE PYTHON AS $$ return x $$",
        "DROP FUNCTION f",
        "SELECT reflect('java.lang.System', 'exit', '1') FROM orders",
    ],
)
def test_who_may_only_read_changes_nothing(site: Site, sql: str) -> None:
    told = site.refusal("dave", sql)
    assert isinstance(told, NotAllowed) and "User:dave may not" in told.message, told
    assert site.refusal("root", sql) is None


def test_what_a_user_may_create_and_write_it_may_make(site: Site) -> None:
    make = "CREATE STREAM copy WITH (topic = '{}-copy') AS SELECT id FROM orders"
    assert site.refusal("alice", make.format("alice")) is None
    # Create and Describe without Write: the query would write what its user may not.
    declare = "CREATE STREAM x (id INT) WITH (topic = 'carol-new', format = 'json')"
    assert site.refusal("carol", declare) is None
    site.acls("allow", "User:carol", "read", "--topic", "orders")
    told = site.refusal("carol", make.format("carol"), site.fresh())
    assert isinstance(told, NotAllowed) and "may not write to the topic `carol-copy`" in told.message
    assert "carol-copy" not in site.admin.topics() and "alice-copy" not in site.admin.topics()


@pytest.mark.promise(
    "sql", "Statements run as their user: the topics that a query creates have their own ACLs"
)
def test_queries_are_steered_by_who_may_read_and_write_all_of_theirs(site: Site) -> None:
    for verb in (
        "TERMINATE csas_mine",
        "PAUSE csas_mine",
        "DROP STREAM mine",
        "DROP STREAM mine DELETE TOPIC",
    ):
        assert site.refusal("alice", verb) is None, verb
        assert isinstance(site.refusal("dave", verb), Unknown), verb
    for verb in ("DESCRIBE csas_mine", "EXPLAIN csas_mine", "RESUME csas_mine"):
        told = site.refusal("eve", verb)
        assert isinstance(told, Unknown) and told.message == "no query `csas_mine`"
    assert isinstance(site.refusal("alice", "TERMINATE ALL"), Unknown), "one of them writes to a hidden topic"
    assert isinstance(site.refusal("dave", "DROP STREAM orders DELETE TOPIC"), NotAllowed)
    assert isinstance(site.refusal("alice", "SELECT * FROM declared"), Unknown), "files that nobody can judge"


def test_lists_have_what_the_user_may_describe(site: Site) -> None:
    seen, topics = site.checks("alice").visible()
    assert seen.relations.keys() == {"orders", "mine", "filed"} and topics == {"orders", "alice-mine"}
    assert seen.queries.keys() == {"csas_mine", "ctas_filed"}
    seen, topics = site.checks("eve").visible()
    assert not seen.relations and not seen.queries and not topics


@pytest.mark.promise("sql", "A push query ends when its user loses the right to read its sources")
def test_a_push_query_ends_when_the_right_is_taken_away(site: Site) -> None:
    site.acls("allow", "User:fred", "read", "--topic", "orders")
    (statement,) = parse("SELECT * FROM orders EMIT CHANGES", {})
    closed, checked = threading.Event(), threading.Event()

    def rows() -> Iterator[list[int]]:
        yield [1]
        assert closed.wait(60)

    def check() -> None:
        site.checks("fred").check(statement)
        checked.set()

    watched = while_allowed(Rows((("id", "INT"),), rows(), live=True, close=closed.set), check, 0.05)
    assert next(watched.rows) == [1]
    assert checked.wait(60) and not closed.is_set()
    site.acls("delete", "--principal", "User:fred", "--topic", "orders")
    with pytest.raises(Unknown):
        next(watched.rows)


def test_a_user_for_whom_there_is_no_token_does_nothing(site: Site) -> None:
    site.acls("deny", "User:sqlserver", "create-tokens", "--user", "User:bob")
    try:
        told = site.refusal("bob", "SELECT * FROM orders", site.fresh())
        assert isinstance(told, Unavailable) and "CreateTokens on User:bob" in told.message
    finally:
        site.acls(
            "delete", "--principal", "User:sqlserver", "--operation", "create-tokens", "--user", "User:bob"
        )


def test_without_acls_or_without_logins_nobody_is_limited(site: Site) -> None:
    assert site.rights.of(None) is None
    with PenstockBroker() as broker:
        rights = ClusterRights({"bootstrap.servers": broker.bootstrap})
        assert rights.of("eve") is None
        rights.close()
