"""A person's way through the console, in a real browser: chromium of the system, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from penstock.testing import PenstockBroker
from tests.console.conftest import ConsoleProcess
from tests.registry.conftest import RegistryProcess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (apt install chromium)"),
    pytest.mark.timeout(400),
]
PATIENCE_MS = 90_000
expect.set_options(timeout=PATIENCE_MS)


class Platform:
    def __init__(self, broker: PenstockBroker, console: ConsoleProcess) -> None:
        self.bootstrap = broker.bootstrap
        self.url = console.url


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    directory: Path = tmp_path_factory.mktemp("platform")
    with PenstockBroker({"group.initial.rebalance.delay.ms": 0}) as broker:
        registry = RegistryProcess(broker.bootstrap, directory)
        try:
            registry.wait()
            console = ConsoleProcess(broker.bootstrap, directory, "--registry", registry.url)
            try:
                yield Platform(broker, console)
            finally:
                console.stop()
        finally:
            registry.stop()


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
    opened.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((platform.url, "data:", "blob:"))
            else elsewhere.append(request.url)
        ),
    )
    yield opened
    assert (errors, elsewhere) == ([], [])


@pytest.mark.promise(
    "console", "A person creates a topic, produces a message and finds it by a search that a link keeps"
)
def test_a_topic_is_created_written_and_searched(page: Page, platform: Platform) -> None:
    page.goto(f"{platform.url}/topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("parcels")
    dialog.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url("**/topics/parcels")
    for word in ("amber", "cobalt"):
        page.get_by_role("button", name="Produce").click()
        dialog.get_by_label("Key (empty: null)").fill(f"key-{word}")
        dialog.get_by_label("Value", exact=True).fill(f'{{"colour": "{word}"}}')
        dialog.get_by_role("button", name="Send").click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("cell", name=f"key-{word}")).to_be_visible()
    page.get_by_label("Search", exact=True).fill("COBALT")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("cell", name="key-amber")).to_have_count(0)
    expect(page.get_by_role("cell", name="key-cobalt")).to_be_visible()
    assert "q=COBALT" in page.url
    page.goto(page.url)  # as somebody else who gets the link
    expect(page.get_by_role("cell", name="key-cobalt")).to_be_visible()
    expect(page.get_by_role("cell", name="key-amber")).to_have_count(0)
    page.get_by_role("cell", name="key-cobalt").click()
    expect(page.get_by_role("dialog")).to_contain_text('"colour": "cobalt"')


@pytest.mark.promise("console", "A topic is deleted only after its name was typed")
def test_deleting_a_topic_asks_for_its_name(page: Page, platform: Platform) -> None:
    producer = Producer({"bootstrap.servers": platform.bootstrap})
    producer.produce("doomed", b"x")
    assert producer.flush(60) == 0
    page.goto(f"{platform.url}/topics/doomed")
    page.get_by_role("button", name="Actions").click()
    page.get_by_text("Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("dooned")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("The name does not match.")).to_be_visible()
    dialog.get_by_label("Name").fill("doomed")
    dialog.get_by_role("button", name="Delete").click()
    page.wait_for_url("**/topics")
