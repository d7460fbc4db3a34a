"""SQL, pipelines, lineage and the demonstration's page in a real browser, with a real SQL server."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from penstock.demo.replay import FLIGHTS
from penstock.demo.topics import ALERTS, DEAD, DELAYS
from penstock.testing import PenstockBroker
from tests.browser.test_console import CHROMIUM, HOSTILE, PATIENCE_MS
from tests.console.conftest import ConsoleProcess
from tests.registry.conftest import RegistryProcess
from tests.spark import class_archive
from tests.sql.conftest import BROKER_SETTINGS
from tests.sql.serving import SqlServer

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (apt install chromium)"),
    pytest.mark.timeout(1500),
]
SPARK_MS = 400_000
"""For what a micro-batch has to be done."""
FLOWS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.active()
ADDRESS = {{"kafka.bootstrap.servers": "{bootstrap}"}}
dp.create_sink("sorted", "penstock", ADDRESS)

@dp.append_flow(target="sorted", name="sorting")
def sorting():
    rows = spark.readStream.format("penstock").options(**ADDRESS, subscribe="parcels").load()
    topic = F.when(F.length("value") > 3, "long-parcels").otherwise("short-parcels")
    return rows.select(topic.alias("topic"), "key", "value")
"""


class Platform:
    def __init__(self, broker: PenstockBroker, server: SqlServer, directory: Path, *options: str) -> None:
        self.broker, self.server, self.directory = broker, server, directory
        self.console = ConsoleProcess(broker.bootstrap, directory, "--sql", server.url, *options)
        self.url = self.console.url

    def sql(self, text: str) -> None:
        with self.server.client() as client:
            client.ok(text)

    def produce(self, topic: str, *values: bytes, **more: Any) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for value in values:
            producer.produce(topic, value, **more)
        assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    directory: Path = tmp_path_factory.mktemp("streaming")
    class_archive.prepare_environment()
    conf = {"spark.default.parallelism": "1", **class_archive.SHARED_CONF}
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    with PenstockBroker(BROKER_SETTINGS) as broker:
        registry = RegistryProcess(broker.bootstrap, directory)
        server = SqlServer(broker.bootstrap, registry.wait().url, directory / "sql", *options)
        try:
            server.wait()
            projects = directory / "projects"
            for name, text in (("parcels", FLOWS.format(bootstrap=broker.bootstrap)), ("hostile", "")):
                make_project(projects / name, "parcels" if name == "parcels" else HOSTILE, text)
            pages = ("--page", "penstock.demo.page")
            made = Platform(broker, server, directory, "--pipelines", str(projects), *pages)
            try:
                made.sql("CREATE STREAM orders (region STRING, price BIGINT) WITH (topic = 'orders');")
                made.sql("CREATE TABLE totals AS SELECT region, COUNT(*) AS n FROM orders GROUP BY region;")
                yield made
            finally:
                made.console.stop()
        finally:
            server.stop()
            registry.stop()


def make_project(root: Path, name: str, text: str) -> None:
    (root / "transformations").mkdir(parents=True)
    configuration = {"spark.sql.shuffle.partitions": "1", "spark.sql.catalogImplementation": "in-memory"}
    spec = {
        "name": name,
        "storage": (root / "storage").as_uri(),
        "libraries": [{"glob": {"include": "transformations/**"}}],
        "configuration": configuration,
    }
    (root / "spark-pipeline.yml").write_text(json.dumps(spec))  # which YAML reads
    (root / "transformations" / "flows.py").write_text(text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1200, "height": 900})
    made.set_default_timeout(PATIENCE_MS)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, platform: Platform) -> Iterator[Page]:
    """A page; it asks nobody but the console for anything, and no script of it fails."""
    opened = context.new_page()
    errors: list[str] = []
    elsewhere: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    mine = (platform.url, "data:", "blob:")
    opened.on("request", lambda asked: None if asked.url.startswith(mine) else elsewhere.append(asked.url))
    yield opened
    assert (errors, elsewhere) == ([], [])


@pytest.fixture
def feeding(platform: Platform) -> Iterator[Callable[[str], None]]:
    """Records that go on coming until the test ends."""
    stopping = threading.Event()
    threads: list[threading.Thread] = []

    def feed(topic: str) -> None:
        def run() -> None:
            producer = Producer({"bootstrap.servers": platform.broker.bootstrap})
            count = 0
            while not stopping.wait(0.1):
                region = ("north", "south")[count % 2]
                producer.produce(topic, json.dumps({"region": region, "price": count}).encode())
                producer.poll(0)
                count += 1
            producer.flush(30)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()

    yield feed
    stopping.set()
    for thread in threads:
        thread.join(60)


def write(page: Page, text: str) -> None:
    """Into the editor, in place of what is there."""
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)
    expect(page.locator(".cm-content")).to_have_text(text)


def charted(page: Page) -> dict[str, list[Any]]:
    """What the charts that are visible show, by the names of their series."""
    found: dict[str, list[Any]] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".nicegui-echart")]
          .filter(each => each.offsetParent !== null)
          .flatMap(each => getElement(+each.id.slice(1)).chart?.getOption()?.series || [])
          .map(series => [series.name, series.data]))"""
    )
    return found


def until(done: Callable[[], Any], milliseconds: int = SPARK_MS) -> Any:
    deadline = time.monotonic() + milliseconds / 1000
    while not (found := done()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.2)
    return found


@pytest.mark.promise(
    "console", "A user runs a live SQL query, sees its rows and a chart that follows, and cancels it"
)
def test_a_live_query_is_charted_and_cancelled(
    page: Page, platform: Platform, feeding: Callable[[str], None]
) -> None:
    feeding("orders")
    page.goto(f"{platform.url}/sql")
    expect(page.get_by_text("totals", exact=True)).to_be_visible()
    write(page, "SELECT region, n FROM totals EMIT CHANGES;")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("cell", name="north").first).to_be_visible(timeout=SPARK_MS)
    expect(page.get_by_role("status")).to_contain_text("Live")
    first = until(lambda: (charted(page).get("n") or [None])[0])
    until(lambda: charted(page)["n"][0] > first)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status")).to_contain_text("Cancelled")
    running = f"{platform.server.url}/info"
    until(lambda: httpx.get(running, trust_env=False).json()["running"] == 0)


@pytest.mark.promise(
    "console", "An error in SQL is shown at its place in the editor, and names are completed"
)
def test_an_error_is_marked_and_names_are_completed(page: Page, platform: Platform) -> None:
    page.goto(f"{platform.url}/sql")
    expect(page.get_by_text("totals", exact=True)).to_be_visible()
    write(page, "SELECT regon FROM orders;")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("Line 1, column 8: no column `regon`")
    expect(page.locator(".sql-error")).to_have_text("regon")
    write(page, "SELECT * FROM ")
    page.keyboard.type("ord")
    popup = page.get_by_role("listbox")
    expect(popup).to_contain_text("orders")
    popup.get_by_text("orders").first.click()
    expect(page.locator(".cm-content")).to_have_text("SELECT * FROM orders")
    expect(page.locator(".sql-error")).to_have_count(0)
    page.get_by_role("button", name="History").click()
    page.locator(".q-menu").get_by_text("SELECT regon FROM orders;").click()
    expect(page.locator(".cm-content")).to_have_text("SELECT regon FROM orders;")


@pytest.mark.promise(
    "console", "A link to the SQL page runs nothing, and a user with the role `read` changes nothing there"
)
def test_a_reader_changes_nothing(context: BrowserContext, platform: Platform, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ray: pear, read\n")
    users.chmod(0o600)
    console = ConsoleProcess(
        platform.broker.bootstrap, tmp_path, "--sql", platform.server.url, "--auth-file", str(users)
    )
    try:
        page = context.new_page()
        page.goto(console.url)
        page.get_by_label("User").fill("ray")
        page.get_by_label("Password").fill("pear")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{console.url}/")
        page.goto(f"{console.url}/sql?q=CREATE%20STREAM%20planted%20(a%20INT);")
        expect(page.locator(".cm-content")).to_have_text("CREATE STREAM planted (a INT);")
        expect(page.get_by_text("totals", exact=True)).to_be_visible()
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("alert")).to_contain_text("needs the role write")
        write(page, "SELECT * FROM `_schemas`;")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("alert")).to_contain_text("holds the state of servers")
        write(page, "SHOW STREAMS;")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("cell", name="orders").first).to_be_visible()
        expect(page.get_by_role("cell", name="planted")).to_have_count(0)
        page.goto(f"{console.url}/query?owner=SQL&name=ctas_totals_1")
        expect(page.get_by_text("Rows per second")).to_be_visible()
        expect(page.get_by_role("button", name="Terminate")).to_have_count(0)
    finally:
        console.stop()


@pytest.mark.promise(
    "console", "Lineage shows how records flow from topic to query to topic, with live rates; nodes are links"
)
def test_lineage_shows_the_flow_with_rates(
    page: Page, platform: Platform, feeding: Callable[[str], None]
) -> None:
    feeding("orders")
    consumer = Consumer({"bootstrap.servers": platform.broker.bootstrap, "group.id": HOSTILE})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.close()
    page.goto(f"{platform.url}/lineage")
    edge = page.locator(".edge").filter(has_text="ctas_totals_1").filter(has_text="orders")
    expect(edge).to_have_count(1)
    expect(edge).to_contain_text(re.compile(r"[1-9]\d*(\.\d)?/s"), timeout=SPARK_MS)
    expect(page.locator(".edge").filter(has_text=HOSTILE)).to_have_count(1)
    assert page.locator("img[src=x]").count() == 0
    page.get_by_label("Filter by name").fill("totals")
    expect(page).to_have_url(re.compile("q=totals"))
    node = page.locator(".lineage svg text").filter(has_text=re.compile("^ctas_totals_1$"))
    node.click()
    page.wait_for_url("**/query?**")
    expect(page.get_by_text("Rows per second")).to_be_visible()


@pytest.mark.promise(
    "console", "A streaming query is shown with its curves, and ends only after the user has typed its name"
)
def test_a_query_is_terminated_by_its_name(
    page: Page, platform: Platform, feeding: Callable[[str], None]
) -> None:
    feeding("orders")
    platform.sql("CREATE STREAM dear AS SELECT region, price FROM orders WHERE price > 5;")
    page.goto(f"{platform.url}/pipelines")
    page.get_by_role("link", name="csas_dear_1").click()
    until(lambda: charted(page).get("processed"))
    until(lambda: charted(page).get("batch"))
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="dear", exact=True)).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused", exact=True)).to_be_visible(timeout=SPARK_MS)
    page.get_by_role("button", name="Terminate").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("csas_dear_2")
    dialog.get_by_role("button", name="Terminate").click()
    expect(page.get_by_text("The name does not match.")).to_be_visible()
    dialog.get_by_label("Name").fill("csas_dear_1")
    dialog.get_by_role("button", name="Terminate").click()
    page.wait_for_url("**/pipelines**")
    expect(page.get_by_role("link", name="ctas_totals_1")).to_be_visible()
    expect(page.get_by_role("link", name="csas_dear_1")).to_have_count(0)


@pytest.mark.promise(
    "console", "A pipeline is started, watched with its curves and log, and stopped by its name"
)
def test_a_pipeline_is_started_watched_and_stopped(
    page: Page, platform: Platform, feeding: Callable[[str], None]
) -> None:
    for topic in ("parcels", "long-parcels", "short-parcels"):
        platform.broker.create_topic(topic, 1)
    feeding("parcels")
    page.goto(f"{platform.url}/pipelines")
    expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()  # never run
    page.get_by_role("link", name="parcels", exact=True).click()
    page.get_by_role("button", name="Start").click()
    stop = page.get_by_role("button", name="Stop")
    try:
        page.get_by_role("link", name="sorting").click(timeout=SPARK_MS)
        until(lambda: charted(page).get("processed"))
        expect(page.get_by_role("link", name="long-parcels")).to_be_visible()
        expect(page.get_by_role("link", name="short-parcels")).to_be_visible()
        page.get_by_role("link", name="Pipeline parcels").click()
        expect(page.locator(".log-lines")).to_contain_text("sorting runs")
    finally:
        page.goto(f"{platform.url}/pipeline?name=parcels")
        stop.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name").fill("parcels")
        dialog.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Start")).to_be_visible(timeout=SPARK_MS)
    expect(page.get_by_text(re.compile("^stopped, "))).to_be_visible()


@pytest.mark.promise("console", "No name of a column, value or query of SQL is executed in the browser")
def test_hostile_names_are_shown_as_text(page: Page, platform: Platform) -> None:
    page.goto(f"{platform.url}/sql")
    column = HOSTILE.replace("`", "")
    write(page, f"SELECT region AS `{column}`, '{HOSTILE.replace(chr(39), chr(39) * 2)}' AS v FROM totals;")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("columnheader", name=column)).to_be_visible(timeout=SPARK_MS)
    page.goto(f"{platform.url}/query?owner=SQL&name={HOSTILE.replace('<', '%3C').replace('#', '%23')}")
    expect(page.get_by_role("alert")).to_contain_text("no query")
    assert page.locator("img[src=x]").count() == 0
    assert "owned" not in page.title().partition(" - Penstock")[0].replace(HOSTILE, "")


def demo_records(platform: Platform) -> None:
    """What the replay and its pipeline write, of one hour."""
    for topic in (FLIGHTS, DELAYS, ALERTS, DEAD):
        platform.broker.create_topic(topic, 1)
    platform.produce(FLIGHTS, *(b"{}" for _ in range(30)))
    hour = {"hour": "2013-02-08T14:00:00.000Z", "flights": 9, "cancelled": 2, "mean_delay": 31.4,
            "worst_delay": 99, "wind_mph": 20.0, "visibility_miles": 0.5}  # fmt: skip
    platform.produce(DELAYS, *(json.dumps({"origin": each, **hour}).encode() for each in ("EWR", "JFK")))
    alert = {"id": 1, "flight": "B6135", "origin": "JFK", "dest": "SEA", "delay_minutes": 151,
             "scheduled": "2013-02-08T14:05:00.000Z", "cancelled": False}  # fmt: skip
    platform.produce(ALERTS, json.dumps(alert).encode())
    headers = [("reason", b"not JSON"), ("source", b"flights-0-7")]
    platform.produce(DEAD, HOSTILE.encode(), key=b"7", headers=headers)


@pytest.mark.promise(
    "demo", "The demonstration's page in the console shows airports with delays, alerts and dead letters"
)
def test_the_page_of_the_demonstration(page: Page, platform: Platform) -> None:
    demo_records(platform)
    page.goto(f"{platform.url}/")
    page.get_by_role("link", name="Flights").click()
    expect(page.get_by_text("+31 min")).to_have_count(2)
    expect(page.get_by_text("no hour has closed yet")).to_be_visible()  # at LaGuardia
    expect(page.get_by_text("151 min late")).to_be_visible()
    expect(page.get_by_text("flights-0-7")).to_be_visible()
    until(lambda: charted(page).get("EWR") == [31.4])
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.promise("console", "The console works on a phone's width, in light and dark, and by keyboard")
@pytest.mark.parametrize("path", ["sql", "pipelines", "lineage", "query?name=ctas_totals_1", "flights"])
def test_pages_fit_a_phone(browser: Browser, platform: Platform, path: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(f"{platform.url}/{path}")
    expect(page.locator(".command").first).to_be_visible()
    expect(page.locator("h1")).to_be_visible()
    page.wait_for_function("document.querySelector('.nicegui-content').offsetHeight > 200")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("document.body.classList.contains('body--dark')")
    context.close()


@pytest.mark.promise("console", "Lists, searches and messages can be used with the keyboard alone")
def test_sql_is_run_by_keys(page: Page, platform: Platform) -> None:
    page.goto(f"{platform.url}/")
    expect(page.get_by_text("Slowest groups", exact=True)).to_be_visible()
    page.keyboard.type("gq")
    page.wait_for_url("**/sql")
    expect(page.locator(".cm-content")).to_be_visible()
    page.locator(".cm-content").focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("SHOW TABLES;")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("cell", name="totals").first).to_be_visible()
