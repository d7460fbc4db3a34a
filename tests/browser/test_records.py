"""Messages in the console: found by SQL, exported, imported, replayed, produced with a schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Page, expect

from penstock.testing import PenstockBroker
from tests.browser.conftest import CHROMIUM, PATIENCE_MS
from tests.console.conftest import ConsoleProcess
from tests.registry.conftest import RegistryProcess

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (apt install chromium)"),
    pytest.mark.timeout(600),
]
HOSTILE = "<img src=x onerror=\"document.title='owned'\">{{7*7}}"


class Site:
    def __init__(self, broker: PenstockBroker, registry: RegistryProcess, console: ConsoleProcess) -> None:
        self.broker, self.bootstrap = broker, broker.bootstrap
        self.registry, self.url = registry.url, console.url

    def values(self, topic: str) -> list[bytes | None]:
        """Every value of partition 0."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "test"})
        place = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=60)
        consumer.assign([place])
        found = []
        while len(found) < end:
            record = consumer.poll(60)
            assert record is not None and record.error() is None
            found.append(record.value())
        consumer.close()
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    expect.set_options(timeout=PATIENCE_MS)
    directory: Path = tmp_path_factory.mktemp("site")
    with PenstockBroker({"group.initial.rebalance.delay.ms": 0}) as broker:
        registry = RegistryProcess(broker.bootstrap, directory)
        try:
            registry.wait()
            console = ConsoleProcess(broker.bootstrap, directory, "--registry", registry.url)
            try:
                yield Site(broker, registry, console)
            finally:
                console.stop()
        finally:
            registry.stop()


def search(page: Page, condition: str) -> None:
    page.get_by_label("Search by").click()
    page.get_by_role("option", name="SQL condition").click()
    page.get_by_label("Search", exact=True).fill(condition)
    page.get_by_role("button", name="Read").click()


@pytest.mark.promise(
    "console",
    "Messages found by a SQL condition are exported, imported into another topic, and replayed into a third "
    "one, with a preview before each",
)
@pytest.mark.parametrize("form", ["JSON lines", "CSV", "Parquet"])
def test_found_messages_are_exported_imported_and_replayed(
    page: Page, site: Site, tmp_path: Path, form: str
) -> None:
    word = form.split()[0].lower()
    source, imported, replayed = (f"{word}-{name}" for name in ("source", "imported", "replayed"))
    producer = Producer({"bootstrap.servers": site.bootstrap})
    for name in (source, imported, replayed):
        site.broker.create_topic(name, 1)
    for number in range(40):
        city = "Bern" if number % 10 == 3 else HOSTILE
        value = json.dumps({"number": number, "customer": {"city": city}}).encode()
        producer.produce(source, value, f"key-{number}".encode(), headers=[("trace", str(number).encode())])
    producer.produce(source, b"\xff\xfe no JSON {", b"\xff")
    assert producer.flush(60) == 0

    page.goto(f"{site.url}/topics/{source}")
    expect(page.get_by_role("cell", name="key-39")).to_be_visible()
    search(page, "json->>'$.customer.city' = 'Bern' AND offset > 5 AND headers['trace'] <> '33'")
    expect(page.get_by_role("cell", name="key-39")).to_have_count(0)
    expect(page.get_by_role("cell", name="key-13")).to_be_visible()
    expect(page.get_by_role("cell", name="key-23")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator(".command-text").first).to_contain_text("--where")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_text(form, exact=True).click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)

    page.goto(f"{site.url}/topics/{imported}")
    page.get_by_role("button", name="Import").click()
    dialog = page.get_by_role("dialog")
    button = dialog.get_by_role("button", name="Import")
    expect(button).to_be_disabled()
    dialog.locator("input[type=file]").set_input_files(file)
    expect(dialog.get_by_text("2 records")).to_be_visible()
    expect(dialog.get_by_role("cell", name="key-13")).to_be_visible()
    assert site.values(imported) == []
    button.click()
    expect(page.get_by_text("2 records were written.")).to_be_visible()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("cell", name="key-23")).to_be_visible()
    written = site.values(source)
    assert sorted(site.values(imported), key=str) == [written[13], written[23]]

    page.goto(f"{site.url}/topics/{source}")
    expect(page.get_by_role("cell", name="key-39")).to_be_visible()
    page.get_by_role("button", name="Replay").click()
    dialog.get_by_label("To topic").fill(replayed)
    dialog.get_by_label("From", exact=True).fill("30")
    dialog.get_by_label("Until").fill("35")
    dialog.get_by_label("Only where").fill("offset <> 31")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_text("5 offsets are read, of which those that fit")).to_be_visible()
    assert site.values(replayed) == []
    dialog.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text("4 records were written.")).to_be_visible()
    assert site.values(replayed) == [written[at] for at in (30, 32, 33, 34)]
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.promise("console", "A file with a wrong line is not imported, and the line is named")
def test_a_wrong_file_is_not_imported(page: Page, site: Site, tmp_path: Path) -> None:
    site.broker.create_topic("untouched", 1)
    file = tmp_path / "wrong.jsonl"
    file.write_text('{"value": "good"}\n{"value": "good", "colour": 1}\n')
    page.goto(f"{site.url}/topics/untouched")
    page.get_by_role("button", name="Import").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("input[type=file]").set_input_files(file)
    expect(dialog.get_by_role("alert")).to_contain_text("line 2: unknown field 'colour'")
    expect(dialog.get_by_role("button", name="Import")).to_be_disabled()
    assert site.values("untouched") == []


@pytest.mark.promise("console", "A wrong SQL condition is explained on the page")
def test_a_wrong_condition_is_explained(page: Page, site: Site) -> None:
    site.broker.create_topic("asked", 1)
    page.goto(f"{site.url}/topics/asked")
    search(page, "colour = 'red'")
    expect(page.get_by_text('Referenced column "colour" not found in records')).to_be_visible()


@pytest.mark.promise(
    "console", "A message is produced with the registered schema of its topic, and a wrong field is named"
)
@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("AVRO", '{"type": "record", "name": "P", "fields": [{"name": "id", "type": "long"}]}'),
        ("JSON", '{"type": "object", "properties": {"id": {"type": "integer"}}}'),
        ("PROTOBUF", 'syntax = "proto3"; message P { int64 id = 1; }'),
    ],
)
def test_a_message_is_produced_with_its_schema(page: Page, site: Site, kind: str, schema: str) -> None:
    import httpx

    topic = f"typed-{kind.lower()}"
    site.broker.create_topic(topic, 1)
    page.goto(f"{site.url}/topics/{topic}")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")

    def choose() -> None:
        dialog.get_by_label("Format of the value").click()
        page.get_by_role("option", name="Registered schema").click()

    choose()
    expect(page.get_by_text(f"subject '{topic}-value' does not exist")).to_be_visible()
    body = {"schemaType": kind, "schema": schema}
    with httpx.Client(base_url=site.registry, trust_env=False) as http:
        assert http.post(f"/subjects/{topic}-value/versions", json=body).status_code == 200
    choose()
    expect(dialog.get_by_text(f"of {topic}-value: write JSON")).to_be_visible()
    expect(dialog.locator(".command-text")).to_contain_text("--value-format")
    dialog.get_by_label("Value", exact=True).fill('{"id": "no number"}')
    dialog.get_by_role("button", name="Send").click()
    expect(page.get_by_text("the value:").first).to_be_visible()
    assert site.values(topic) == []
    dialog.get_by_label("Value", exact=True).fill('{"id": 4711}')
    dialog.get_by_role("button", name="Send").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("cell", name="4711")).to_be_visible()
    (value,) = site.values(topic)
    assert value is not None and value[0] == 0 and len(value) > 5
