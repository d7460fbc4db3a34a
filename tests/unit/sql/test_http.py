"""The HTTP endpoint over an engine of a few lines: streams, bounds, clients that go away, bad requests."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import httpx
import pytest

from penstock.elected.membership import Identity
from penstock.elected.process import listen
from penstock.sql.errors import NotAllowed, Place, Unknown
from penstock.sql.language.statements import Describe, Drop, Select, Show
from penstock.sql.results import Done, Rows
from penstock.sql.server.http import SqlApi, needs
from penstock.web.access import AccessSettings, ServerAccess
from penstock.web.guard import Guard
from penstock.web.server import Server


class Numbers:
    """Executes statements: SELECT … EMIT counts up until it is closed, others give three rows."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.given = 0

    def execute(self, statement, properties, user=None):
        if isinstance(statement, Drop):
            return Done(f"dropped {statement.name}", {"name": statement.name})
        if isinstance(statement, Describe):
            raise Unknown("no stream `x`", Place(1, 10))
        if isinstance(statement, Show):
            raise RuntimeError("broken\nover two lines")
        assert isinstance(statement, Select)
        columns = (("n", "INT"),)
        if statement.query.emit is None:
            return Rows(columns, iter([[1], [None], [properties.get("x", "é")]]))
        return Rows(columns, self._count(), live=True, close=self.closed.set)

    def _count(self):
        while not self.closed.is_set():
            self.given += 1
            yield [self.given]
            if self.given == 3:
                self.closed.wait()  # nothing more comes, and nobody is told

    def describe_queries(self, user=None):
        return [{"id": "q"}]

    def describe_query(self, query_id, user=None):
        return {"id": "q"} if query_id == "q" else None

    def describe_relations(self, user=None):
        return []

    def topics(self, user=None):
        return ["a"]


class Endless(Numbers):
    def _count(self):
        while not self.closed.is_set():
            self.given += 1
            yield ["x" * 1000]


class Leads:
    url = "http://me"
    leader = None
    runs = True

    def away(self):
        return None

    async def known(self, timeout):
        return self.runs


class Running:
    """The endpoint on a port of its own, in a thread."""

    def __init__(self, engine, access=None, **options):
        self.engine = engine
        self.access = access
        self.leads = Leads()
        self._options = options
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self):
        self.api = SqlApi(self.engine, self.leads, **self._options)
        with listen("127.0.0.1", 0) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self._server = Server(
                self.api.application(), Guard(), access=self.access, needs=needs, operator=self.api.operator()
            )
            serving = asyncio.ensure_future(self._server.serve(sockets=[listener]))
            await self._server.listening()
            self._started.set()
            await serving
        await self.api.close()

    def __enter__(self):
        self._thread.start()
        self._started.wait()
        self.http = httpx.Client(base_url=self.url, timeout=60, trust_env=False)
        return self

    def __exit__(self, *_):
        self.http.close()
        self.api.stop()
        self._server.should_exit = True
        self._thread.join()

    def lines(self, sql, **more):
        answer = self.http.post("/sql", json={"sql": sql, **more})
        return answer.status_code, [json.loads(each) for each in answer.text.splitlines()]


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_statements_are_answered_one_after_the_other_up_to_the_first_error():
    with Running(Numbers()) as running:
        status, lines = running.lines("SELECT n FROM t; DROP STREAM s;\n DESCRIBE x; DROP STREAM never;")
        assert status == 200
        assert lines == [
            {"statement": "SELECT n FROM t"},
            {"columns": [["n", "INT"]]},
            {"row": [1]},
            {"row": [None]},
            {"row": ["é"]},
            {"done": "3 rows"},
            {"statement": "DROP STREAM s"},
            {"done": "dropped s", "details": {"name": "s"}},
            {"statement": "DESCRIBE x"},
            {"error": "Unknown", "message": "no stream `x`", "line": 1, "column": 10},
        ]


@pytest.mark.promise(
    "access",
    "Credentials that came over TLS are not forwarded without TLS: an https server does not accept an "
    "http leader",
)
def test_a_statement_that_came_over_tls_is_not_sent_to_a_leader_without(impostor):
    async def known(timeout):
        return True

    with Running(Numbers(), leader_wait=0.1) as running:
        running.leads.known = known
        running.leads.runs, running.leads.url = False, "https://me"
        running.leads.leader = Identity("127.0.0.1", impostor.server_port)
        running.http.auth = ("ann", "secret")
        status, (error,) = running.lines("SELECT n FROM t")
        assert (status, error["error"]) == (503, "Unavailable")
        assert running.http.get("/queries").status_code == 503 and impostor.requests == []
        running.leads.url = "http://me"
        running.lines("SELECT n FROM t")
        assert impostor.requests[0]["authorization"].startswith("Basic ")


def test_properties_and_variables_hold_for_what_follows_and_are_told():
    with Running(Numbers()) as running:
        status, lines = running.lines(
            "SET 'spark.x' = 'y'; DEFINE name = 's'; DROP STREAM ${name}; SELECT n FROM t; SHOW PROPERTIES; "
            "UNSET 'spark.x';",
            properties={"spark.z": "1"},
        )
        assert {"done": "spark.x = y", "properties": {"spark.x": "y"}} in lines
        assert {"done": "name = s", "variables": {"name": "s"}} in lines
        assert {"done": "dropped s", "details": {"name": "s"}} in lines
        assert {"row": ["spark.x", "y"]} in lines and {"row": ["spark.z", "1"]} in lines
        assert lines[-1] == {"done": "spark.x is unset", "properties": {"spark.x": None}}


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        (
            "SET 'auto.offset.rest' = 'latest';",
            {
                "error": "Unknown",
                "message": "no property `auto.offset.rest`; did you mean `auto.offset.reset`?",
            },
        ),
        (
            "SELECT n FROM t;\n SET auto.offset.reset = 'newest';",
            {
                "error": "Clash",
                "line": 2,
                "message": "auto.offset.reset must be earliest or latest, not 'newest'",
            },
        ),
    ],
)
def test_a_property_that_is_none_is_not_set(sql, error):
    with Running(Numbers()) as running:
        _, lines = running.lines(sql)
        told = lines[-1]
        assert told["message"].startswith(error["message"])
        assert told["error"] == error["error"] and told["line"] == error.get("line", 1)


@pytest.mark.parametrize(
    ("sql", "status", "error"),
    [("DESCRIBE x;", 400, "Unknown"), ("SELEC 1;", 400, "BadSyntax"), ("SHOW TOPICS;", 500, "Internal")],
)
def test_an_error_at_once_is_in_the_status_too(sql, status, error):
    with Running(Numbers()) as running:
        got, lines = running.lines(sql)
        assert (got, lines[-1]["error"]) == (status, error)
        assert "\n" not in lines[-1]["message"]


@pytest.mark.promise(
    "sql", "A push query ends when its client disconnects, and runs only as fast as its client reads"
)
def test_a_push_query_ends_when_its_client_goes_away_though_no_row_comes():
    with Running(Numbers()) as running:
        with running.http.stream("POST", "/sql", json={"sql": "SELECT n FROM t EMIT CHANGES;"}) as answer:
            lines = answer.iter_lines()
            while next(lines) != '{"row":[3]}':
                pass
            assert not running.engine.closed.is_set()
        assert running.engine.closed.wait(60)
        wait_until(lambda: running.http.get("/info").json()["running"] == 0)


class Slow(Numbers):
    """Rows that are computed until `ended`, though they were closed before."""

    def __init__(self):
        super().__init__()
        self.begun, self.ended = threading.Event(), threading.Event()

    def execute(self, statement, properties, user=None):
        return Rows((("n", "INT"),), self._compute(), close=self.closed.set)

    def _compute(self):
        self.begun.set()
        self.ended.wait()
        yield [1]


@pytest.mark.promise(
    "sql",
    "When its client disconnects, a SELECT cancels its Spark jobs, and counts as a running request until "
    "they have ended",
)
def test_a_request_counts_until_its_thread_has_ended():
    with Running(Slow(), max_requests=1) as running:
        with pytest.raises(httpx.ReadTimeout):
            running.http.post("/sql", json={"sql": "SELECT n FROM t;"}, timeout=1)
        assert running.engine.begun.is_set()
        assert running.engine.closed.wait(60)  # its client has gone: it is cancelled, and has not ended
        assert running.http.get("/info").json()["running"] == 1
        assert running.lines("SELECT n FROM t;")[0] == 503
        running.engine.ended.set()
        wait_until(lambda: running.http.get("/info").json()["running"] == 0)
        assert running.lines("SELECT n FROM t;")[0] == 200


@pytest.mark.promise(
    "sql", "A push query ends when its client disconnects, and runs only as fast as its client reads"
)
def test_a_client_that_does_not_read_holds_the_query_back():
    with Running(Endless()) as running:
        with running.http.stream("POST", "/sql", json={"sql": "SELECT n FROM t EMIT CHANGES;"}) as answer:
            lines = answer.iter_lines()
            next(lines)
            given = -1
            while given != running.engine.given:  # until nothing moves any more
                given = running.engine.given
                time.sleep(0.3)
            assert given < 20_000, "more than some megabytes were computed for nobody"
        assert running.engine.closed.wait(60)


def test_a_server_that_stops_ends_push_queries_and_says_so():
    with Running(Numbers()) as running:
        with running.http.stream("POST", "/sql", json={"sql": "SELECT n FROM t EMIT CHANGES;"}) as answer:
            lines = answer.iter_lines()
            while next(lines) != '{"row":[3]}':
                pass
            running.api.stop()
            assert json.loads(next(lines))["error"] == "Unavailable"
        assert running.lines("SELECT 1;")[0] == 503


def test_more_requests_than_are_allowed_are_told_to_come_later():
    with Running(Numbers(), max_requests=1) as running:
        with running.http.stream("POST", "/sql", json={"sql": "SELECT n FROM t EMIT CHANGES;"}) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert running.lines("SELECT n FROM t;")[0] == 503
        wait_until(lambda: running.lines("SELECT n FROM t;")[0] == 200)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"sql": 1}', 400),
        (b'{"sql": "x", "properties": []}', 400),
        (b'{"sql": "x", "properties": {"a": {}}}', 400),
        (b'{"sql": "x", "other": 1}', 400),
        (b"[" * 100_000, 400),
        (b'{"sql": "' + b" " * 200_000 + b'"}', 413),
    ],
)
def test_a_bad_body_is_refused_in_words(body, status):
    with Running(Numbers(), max_body_bytes=150_000) as running:
        answer = running.http.post("/sql", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == status
        assert answer.json().keys() == {"error", "message"}


def test_nothing_to_do_is_done():
    with Running(Numbers()) as running:
        assert running.lines(" ; -- nothing\n") == (200, [])


def test_other_routes():
    with Running(Numbers()) as running:
        http = running.http
        assert http.get("/queries").json() == [{"id": "q"}]
        assert http.get("/queries/q").json() == {"id": "q"}
        assert http.get("/queries/none").status_code == 404
        assert http.get("/relations").json() == {"relations": [], "topics": ["a"]}
        assert (http.get("/health").json(), http.get("/ready").json()) == (
            {"status": "healthy"},
            {"status": "ready"},
        )
        assert http.get("/info").json()["leads"] is True
        assert "penstock_sql_leader 1.0" in http.get("/metrics").text
        assert "process_resident_memory_bytes" in http.get("/metrics").text
        assert http.get("/sql").status_code == 405
        assert "POST /sql" in http.get("/nowhere").json()["message"]


def test_without_a_leader_a_statement_waits_and_is_then_refused():
    with Running(Numbers(), leader_wait=0.3) as running:
        running.leads.runs = False
        status, lines = running.lines("SELECT n FROM t;")
        assert status == 503 and "no server is the leader" in lines[0]["message"]
        assert running.http.get("/ready").status_code == 503


@pytest.mark.promise(
    "http",
    "A request body must have a JSON content type, and Origin and Sec-Fetch-Site must be the server's "
    "own or allowed",
)
@pytest.mark.parametrize(
    "headers, expected",
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({}, 415),
        ({"content-type": "application/json", "origin": "http://evil.example"}, 403),
        ({"content-type": "application/json", "origin": "null"}, 403),
        ({"content-type": "application/json", "sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "application/json", "host": "evil.example"}, 403),
    ],
)
def test_a_statement_that_a_web_page_could_send_is_not_run(headers, expected):
    class Untouched(Numbers):
        def execute(self, statement, properties, user=None):
            raise AssertionError("it was run")

    with Running(Untouched()) as running:
        answer = running.http.post("/sql", content=b'{"sql": "DROP STREAM s;"}', headers=headers)
        assert answer.status_code == expected
        assert answer.json()["message"] and "access-control-allow-origin" not in answer.headers


@pytest.mark.promise(
    "http", "A request with a foreign host name that resolves to this machine (DNS rebinding) is rejected"
)
@pytest.mark.parametrize("path", ["/", "/info", "/ready", "/metrics", "/queries", "/relations", "/nowhere"])
def test_nothing_is_told_to_a_page_under_a_rebound_name(path):
    with Running(Numbers()) as running:
        answer = running.http.get(path, headers={"host": "evil.example"})
        assert answer.status_code == 403 and "--allow-host evil.example" in answer.text


def test_a_page_of_the_server_may_send_statements():
    with Running(Numbers()) as running:
        answer = running.http.post(
            "/sql",
            json={"sql": "DROP STREAM s;"},
            headers={"origin": running.url, "sec-fetch-site": "same-origin"},
        )
        assert answer.status_code == 200


def test_what_the_server_does_not_allow_is_403():
    class Strict(Numbers):
        def execute(self, statement, properties, user=None):
            raise NotAllowed("this server does not run Python functions")

    with Running(Strict()) as running:
        assert running.lines("DROP STREAM s;")[0] == 403


@pytest.fixture
def access(tmp_path):
    users = tmp_path / "users"
    users.write_text("reader: r, read\nwriter: w, write\nadmin: a, admin\n")
    made = ServerAccess(AccessSettings(users_file=str(users)))
    yield made
    made.close()


@pytest.mark.promise(
    "sql", "Statements run as their user: metrics cover only the queries that the user may see"
)
def test_metrics_are_of_the_queries_that_a_user_may_see(access):
    class Some(Numbers):
        def describe_queries(self, user=None):
            shown = {"reader": ["mine"], "admin": ["mine", "hidden"]}.get(user, [])
            return [{"id": each, "state": "RUNNING", "lag": 3, "errors": 0} for each in shown]

    with Running(Some(), access) as running:
        assert running.http.get("/metrics").status_code == 401
        of_reader = running.http.get("/metrics", auth=("reader", "r")).text
        assert 'query="mine"' in of_reader and "hidden" not in of_reader
        assert 'query="hidden"' in running.http.get("/metrics", auth=("admin", "a")).text


FUNCTION = "CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$return x$$;"


@pytest.mark.promise(
    "access",
    "A request or statement is executed only for users with the role that it needs: registry, SQL, metrics",
)
@pytest.mark.parametrize(
    ("needed", "sql"),
    [
        ("read", "SELECT n FROM t;"),
        ("read", "SET 'auto.offset.reset' = 'earliest'; SELECT n FROM t;"),
        ("write", "DROP STREAM s;"),
        ("write", "INSERT INTO s VALUES (1);"),
        ("write", "CREATE STREAM s AS SELECT n FROM t;"),
        ("write", "CREATE STREAM s (n INT) WITH (topic = 't', format = 'json');"),
        ("write", "TERMINATE q;"),
        ("write", "CREATE TABLE t WITH (storage = 'delta') AS SELECT n, count(*) AS c FROM s GROUP BY n;"),
        ("admin", "CREATE TABLE t (n INT PRIMARY KEY) WITH (storage = 'parquet', path = '/etc');"),
        ("admin", "CREATE TABLE t WITH (storage = 'delta', path = '/etc') AS SELECT n, 1 AS c FROM s;"),
        ("admin", "SET 'spark.sql.catalog.evil' = 'org.example.Catalog'; SELECT n FROM t;"),
        ("read", "SET 'spark.sql.ansi.enabled' = 'true'; SELECT n FROM t;"),
        ("admin", FUNCTION),
        ("admin", "SELECT reflect('java.lang.System', 'exit', 1) FROM t;"),
    ],
)
def test_a_statement_is_run_for_who_has_the_role_for_it(access, needed, sql):
    class Any(Numbers):
        executed = 0

        def execute(self, statement, properties, user=None):
            self.executed += 1
            return Done("done", {})

    order = ("read", "write", "admin")
    with Running(Any(), access) as running:
        assert running.http.post("/sql", json={"sql": sql}).status_code == 401
        assert running.http.get("/queries").status_code == 401
        for user, role in (("reader", "read"), ("writer", "write"), ("admin", "admin")):
            running.engine.executed = 0
            answer = running.http.post("/sql", json={"sql": sql}, auth=(user, user[0]))
            last = json.loads(answer.text.splitlines()[-1])
            if order.index(role) >= order.index(needed):
                assert last == {"done": "done"} and running.engine.executed == 1
            else:
                assert last["error"] == "NotAllowed" and f"needs the role {needed}" in last["message"]
                assert running.engine.executed == 0
