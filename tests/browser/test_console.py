"""A person's way through the console, in a real browser: chromium of the system, driven by playwright."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from penstock.testing import PenstockBroker
from tests.console.conftest import ConsoleProcess
from tests.console.stuck import UNVERIFIED, leave_hanging
from tests.registry.conftest import RegistryProcess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (apt install chromium)"),
    pytest.mark.timeout(400),
]
PATIENCE_MS = 90_000
expect.set_options(timeout=PATIENCE_MS)

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>{{7*7}}"


class Platform:
    def __init__(self, broker: PenstockBroker, console: ConsoleProcess) -> None:
        self.broker = broker
        self.bootstrap = broker.bootstrap
        self.url = console.url


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    directory: Path = tmp_path_factory.mktemp("platform")
    with PenstockBroker({"group.initial.rebalance.delay.ms": 0, **UNVERIFIED}) as broker:
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
    "console",
    "A user creates a topic, produces a message and finds it with a search that can be kept as a link",
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


@pytest.mark.promise("console", "A topic is deleted only after the user has typed its name")
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


@pytest.mark.promise(
    "console",
    "The page shows the lag of a group falling while the group consumes, and a preview before offsets "
    "are reset",
)
def test_lag_falls_and_offsets_are_reset_with_a_preview(page: Page, platform: Platform) -> None:
    producer = Producer({"bootstrap.servers": platform.bootstrap})
    for number in range(20):
        producer.produce("work", str(number).encode(), partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": platform.bootstrap, "group.id": "workers"})
    consumer.commit(offsets=[TopicPartition("work", 0, 5)], asynchronous=False)
    page.goto(f"{platform.url}/group?id=workers")
    expect(page.get_by_text("15 records behind")).to_be_visible()
    consumer.commit(offsets=[TopicPartition("work", 0, 18)], asynchronous=False)
    consumer.close()
    expect(page.get_by_text("2 records behind")).to_be_visible()
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    move = dialog.get_by_role("button", name="Move offsets")
    expect(move).to_be_disabled()
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("cell", name="-18")).to_be_visible()
    expect(page.get_by_text("2 records behind")).to_be_visible()  # nothing was moved yet
    move.click()
    expect(page.get_by_text("20 records behind")).to_be_visible()


@pytest.mark.promise("console", "An incompatible schema is rejected before it is registered, with the reason")
def test_an_incompatible_schema_is_explained(page: Page, platform: Platform) -> None:
    first = '{"type": "record", "name": "P", "fields": [{"name": "id", "type": "long"}]}'
    second = (
        '{"type": "record", "name": "P", "fields": '
        '[{"name": "id", "type": "long"}, {"name": "weight", "type": "double"}]}'
    )
    for text, compatible in ((first, True), (second, False)):
        page.goto(f"{platform.url}/schemas")
        page.get_by_role("button", name="Register schema").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Subject").fill("parcels-value")
        dialog.get_by_label("Schema", exact=True).fill(text)
        dialog.get_by_role("button", name="Check").click()
        register = dialog.get_by_role("button", name="Register")
        if compatible:
            expect(dialog.get_by_text("Compatible: it can be registered.")).to_be_visible()
            register.click()
            page.wait_for_url("**/subject?name=parcels-value")
            expect(page.get_by_text("1 versions, compatibility BACKWARD")).to_be_visible()
        else:
            expect(dialog.get_by_text("Incompatible with parcels-value version 1")).to_be_visible()
            expect(dialog.get_by_text("READER_FIELD_MISSING_DEFAULT_VALUE")).to_be_visible()
            expect(register).to_be_disabled()


@pytest.mark.promise(
    "console", "No content of a message, a key, a header or a group's name is executed in the browser"
)
def test_hostile_content_is_shown_as_text(page: Page, platform: Platform) -> None:
    producer = Producer({"bootstrap.servers": platform.bootstrap, "message.max.bytes": 1_040_000})
    producer.produce("hostile", HOSTILE.encode(), HOSTILE.encode(), headers=[(HOSTILE, HOSTILE.encode())])
    producer.produce("hostile", b"\xff\xfe" * 100, b"broken")
    producer.produce("hostile", b"z" * 1_000_000, b"large")
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": platform.bootstrap, "group.id": HOSTILE})
    consumer.commit(offsets=[TopicPartition("hostile", 0, 1)], asynchronous=False)
    consumer.close()
    page.goto(f"{platform.url}/topics/hostile")
    expect(page.get_by_role("cell", name="large")).to_be_visible()
    expect(page.get_by_role("cell", name="ff fe ff fe")).to_be_visible()
    page.get_by_role("cell", name="large").click()
    expect(page.get_by_role("dialog")).to_contain_text("900,000 more characters")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("cell", name=HOSTILE).first.click()
    expect(page.get_by_role("dialog").get_by_text(HOSTILE).first).to_be_visible()
    page.keyboard.press("Escape")
    page.goto(f"{platform.url}/groups")
    page.get_by_role("link", name=HOSTILE).click()
    expect(page.get_by_text("2 records behind")).to_be_visible()
    page.goto(f"{platform.url}/")
    expect(page.get_by_text("Slowest groups", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
    assert page.locator("img[src=x]").count() == 0
    assert page.title() == "Overview - Penstock"


@pytest.mark.promise("console", "The console works on a phone's width, in light and dark, and by keyboard")
def test_a_phone_in_the_dark(browser: Browser, platform: Platform) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(f"{platform.url}/topics")
    expect(page.get_by_role("table")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("document.body.classList.contains('body--dark')")
    navigation = page.get_by_role("button", name="Navigation")
    navigation.focus()
    page.keyboard.press("Enter")
    groups = page.get_by_role("link", name="Groups")
    expect(groups).to_be_in_viewport()
    groups.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/groups**")
    context.close()


@pytest.mark.promise("console", "Lists, searches and messages can be used with the keyboard alone")
def test_a_message_is_found_and_opened_by_keys(page: Page, platform: Platform) -> None:
    producer = Producer({"bootstrap.servers": platform.bootstrap})
    producer.produce("by-keys", b"a letter", b"the key")
    producer.produce("another", b"x")
    assert producer.flush(60) == 0
    page.goto(f"{platform.url}/")
    expect(page.get_by_text("Slowest groups", exact=True)).to_be_visible()
    page.keyboard.type("gt")
    page.wait_for_url("**/topics**")
    expect(page.get_by_role("link", name="by-keys")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Filter by name")).to_be_focused()
    page.keyboard.type("by-k")
    expect(page.get_by_label("Filter by name")).to_have_value("by-k")
    expect(page).to_have_url(re.compile("q=by-k"))
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="by-keys").press("Enter")
    page.wait_for_url("**/topics/by-keys**")
    page.get_by_role("button", name="Open message 0-0").press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("a letter")


@pytest.mark.promise(
    "console",
    "Transactions are shown, hanging ones first, and aborted only after the user has typed their name",
)
def test_transactions_are_shown_and_aborted(page: Page, platform: Platform) -> None:
    platform.broker.create_topic("ledger", 2)
    leave_hanging(platform.broker, "ledger", 4711)
    producer = Producer({"bootstrap.servers": platform.bootstrap, "transactional.id": "booking"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("ledger", b"x", partition=1)
    producer.flush()
    page.goto(f"{platform.url}/")
    page.get_by_role("link", name="Transactions").click()
    expect(page.get_by_text("No transaction hangs.")).to_be_visible()  # not for 15 minutes
    page.get_by_label("Last record before").click()
    page.get_by_role("option", name="any time").click()
    expect(page.get_by_text("from offset 0, producer 4711 epoch 3")).to_be_visible()
    page.get_by_role("button", name="Abort").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("ledger-0")
    dialog.get_by_role("button", name="Abort").click()
    expect(page.get_by_text("No transaction hangs.")).to_be_visible()
    page.get_by_role("link", name="booking").click()
    expect(page.get_by_role("link", name="ledger-1")).to_be_visible()
    page.get_by_role("button", name="Abort").click()
    dialog.get_by_label("Name").fill("ledger-1")
    dialog.get_by_role("button", name="Abort").click()
    expect(page.get_by_text("The name does not match.")).to_be_visible()
    dialog.get_by_label("Name").fill("booking")
    dialog.get_by_role("button", name="Abort").click()
    expect(page.get_by_text("None.")).to_be_visible()
    expect(page.get_by_role("button", name="Abort")).to_have_count(0)
    with pytest.raises(KafkaException):
        producer.commit_transaction()
