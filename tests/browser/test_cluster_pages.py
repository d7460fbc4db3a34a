"""Users, ACLs, quotas and the placement of partitions in the console, with three brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from playwright.sync_api import Browser, Page, expect

from penstock.cli.main import cli
from penstock.testing import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.browser.conftest import CHROMIUM, PATIENCE_MS
from tests.cluster.harness import Cluster, Node, running, wait_until
from tests.console.conftest import ConsoleProcess

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (apt install chromium)"),
    pytest.mark.timeout(600),
]
HOSTILE = "<img src=x onerror=\"document.title='owned'\">{{7*7}}"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "penstock.audit.enable": "true",
    "auto.leader.rebalance.enable": "false",
}


class Site:
    def __init__(self, cluster: Cluster, console: ConsoleProcess) -> None:
        self.cluster, self.console, self.url = cluster, console, console.url

    def penstock(self, *words: str) -> object:
        result = CliRunner().invoke(cli, [*words, "--json", "--bootstrap", self.cluster.bootstrap])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("site")
    users = directory / "users"
    users.write_text("ann: pear, admin\nray: plum, read\n")
    users.chmod(0o600)
    with running(directory, settings=SETTINGS) as cluster:
        console = ConsoleProcess(cluster.bootstrap, directory, "--auth-file", str(users))
        try:
            yield Site(cluster, console)
        finally:
            console.stop()


def make_topic(site: Site, topic: str, *assignment: list[int]) -> None:
    """A topic that every broker knows: the console may ask any of them."""
    new = NewTopic(topic, num_partitions=len(assignment), replica_assignment=list(assignment))
    site.cluster.admin.create_topics([new])[topic].result(60)

    def known(node: Node) -> bool:
        with WireClient(node.clients.target, timeout=60.0) as client:
            answer = client.request(ApiKey.METADATA, 12, Message(topics=None))
        return any(found.name == topic for found in answer.topics)

    for node in site.cluster.nodes.values():
        wait_until(f"broker {node.id} knows {topic}", lambda node=node: known(node))


def log_in(page: Page, site: Site, user: str = "ann", password: str = "pear") -> None:
    expect.set_options(timeout=PATIENCE_MS)
    page.goto(f"{site.url}/login")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{site.url}/")


@pytest.mark.promise("console", "People log in and out with the form, in a real browser")
def test_people_log_in_and_out(page: Page, site: Site) -> None:
    log_in(page, site)
    expect(page.get_by_text("ann (admin)")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.goto(f"{site.url}/users")
    page.wait_for_url("**/login")


@pytest.mark.promise(
    "console", "A user, an ACL with a preview of what it allows, and a quota are created, changed and deleted"
)
def test_a_user_gets_an_acl_and_a_quota(page: Page, site: Site) -> None:
    make_topic(site, "invoices", [1, 2])
    make_topic(site, "invoices-eu", [1, 2])
    log_in(page, site)
    page.get_by_role("link", name="Users").click()
    page.get_by_role("button", name="Create user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("dora")
    dialog.get_by_label("Password", exact=True).fill("secret")
    dialog.get_by_label("Password again").fill("secert")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_text("The passwords differ.")).to_be_visible()
    dialog.get_by_label("Password again").fill("secret")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("cell", name="dora", exact=True)).to_be_visible()
    assert site.penstock("users", "list") == [
        {"user": "dora", "mechanism": "SCRAM-SHA-512", "iterations": 4096}
    ]

    page.get_by_role("button", name="ACLs of dora").click()
    page.wait_for_url("**/acls?principal=User%3Adora")
    page.get_by_role("button", name="Create ACL").click()
    dialog.get_by_label("Name, * for all").fill("invoices")
    dialog.get_by_label("Pattern").click()
    page.get_by_role("option", name="prefixed").click()
    create = dialog.get_by_role("button", name="Create", exact=True)
    expect(create).to_be_disabled()
    dialog.get_by_role("button", name="Preview").click()
    expect(
        dialog.get_by_text("User:dora may read every topic whose name begins with 'invoices'.")
    ).to_be_visible()
    expect(dialog.get_by_text("It applies to 2 existing topics: invoices, invoices-eu")).to_be_visible()
    expect(dialog.locator(".command-text")).to_contain_text(
        "penstock acls allow User:dora read --topic invoices --prefixed"
    )
    assert site.penstock("acls", "list") == []  # nothing was created yet
    create.click()
    expect(page.get_by_role("cell", name="prefixed")).to_be_visible()
    (acl,) = site.penstock("acls", "list")  # type: ignore[misc]
    assert (acl["principal"], acl["operation"], acl["name"]) == ("User:dora", "read", "invoices")
    page.get_by_role("button", name="Delete").click()
    dialog.get_by_label("Name").fill("User:dora")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("cell", name="prefixed")).to_have_count(0)
    assert site.penstock("acls", "list") == []

    page.get_by_role("link", name="Quotas").click()
    page.get_by_role("button", name="Set quota").click()
    dialog.get_by_label("User").fill("dora")
    dialog.get_by_label("Value").fill("1048576")
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("cell", name="1,048,576")).to_be_visible()
    (quota,) = site.penstock("quotas", "list")  # type: ignore[misc]
    assert (quota["user"], quota["quota"], quota["value"]) == ("dora", "producer_byte_rate", 1048576.0)
    page.get_by_role("button", name="Remove quota").click()
    dialog.get_by_label("Name").fill("dora")
    dialog.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("cell", name="1,048,576")).to_have_count(0)
    assert site.penstock("quotas", "list") == []

    page.get_by_role("link", name="Users").click()
    page.get_by_role("button", name="Delete dora").click()
    dialog.get_by_label("Name").fill("dora")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("cell", name="dora", exact=True)).to_have_count(0)
    assert site.penstock("users", "list") == []


@pytest.mark.promise(
    "console", "What a person does in the console is in its log and, by the client id, in the audit topic"
)
def test_actions_name_the_person(page: Page, site: Site) -> None:
    log_in(page, site)
    page.goto(f"{site.url}/topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("anns-topic")
    dialog.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url("**/topics/anns-topic")
    assert "user ann: create topic 'anns-topic'" in site.console.log.read_text()
    consumer = Consumer(
        {"bootstrap.servers": site.cluster.bootstrap, "group.id": "auditors", "auto.offset.reset": "earliest"}
    )
    partitions = consumer.list_topics("__penstock_audit", timeout=30).topics["__penstock_audit"].partitions
    consumer.assign([TopicPartition("__penstock_audit", number, 0) for number in partitions])
    while True:
        record = consumer.poll(60)
        assert record is not None, "the audit topic does not name the action"
        if record.error() is None:
            event = json.loads(record.value() or b"{}")
            if event.get("resource") == "anns-topic":
                break
    consumer.close()
    assert (event["api"], event["client_id"]) == ("CreateTopics", "penstock-console/ann")


def replicas(site: Site, topic: str) -> list[tuple[int, ...]]:
    found = site.cluster.metadata(topic).topics[topic].partitions
    return [tuple(found[number].replicas) for number in sorted(found)]


@pytest.mark.promise(
    "console", "A rebalance shows what would move and how many bytes before it moves anything"
)
def test_partitions_are_moved_after_a_preview(page: Page, site: Site) -> None:
    make_topic(site, "heavy", *[[1, 2]] * 6)
    producer = Producer({"bootstrap.servers": site.cluster.bootstrap})
    for number in range(600):
        producer.produce("heavy", b"x" * 10_000, partition=number % 6)
    assert producer.flush(60) == 0
    before = replicas(site, "heavy")
    log_in(page, site)
    page.get_by_role("link", name="Placement").click()
    page.get_by_role("button", name="Rebalance").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Only this topic").fill("heavy")
    move = dialog.get_by_role("button", name="Move", exact=True)
    expect(move).to_be_disabled()
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_text("4 copies, 3.8 MiB to copy.")).to_be_visible()
    expect(dialog.get_by_role("cell", name=re.compile(r"^9\d\d\.\d KiB$")).first).to_be_visible()
    assert replicas(site, "heavy") == before
    move.click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("No reassignment is in progress.")).to_be_visible()
    plan = site.penstock("cluster", "rebalance", "--topic", "heavy", "--preview")
    assert plan["moves"] == []  # type: ignore[index]
    spread = {
        b for p in site.cluster.metadata("heavy").topics["heavy"].partitions.values() for b in p.replicas
    }
    assert spread == {1, 2, 3}


@pytest.mark.promise("console", "A throttled move is shown with its progress, and cancelled")
def test_a_move_is_cancelled(page: Page, site: Site) -> None:
    make_topic(site, "slow", [1])
    producer = Producer({"bootstrap.servers": site.cluster.bootstrap})
    for _ in range(2000):
        producer.produce("slow", b"x" * 10_000)
    assert producer.flush(60) == 0
    log_in(page, site)
    page.goto(f"{site.url}/placement?q=slow")
    page.get_by_role("button", name="Move partition slow-0").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Brokers, such as").fill("9")
    dialog.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("broker 9 is not up: the cluster has 1, 2, 3.")).to_be_visible()
    dialog.get_by_label("Brokers, such as").fill("3")
    dialog.get_by_label("Throttle on each broker").fill("0.01")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_text("1 partitions, 1 copies, 19.1 MiB to copy.")).to_be_visible()
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(page.get_by_text("of 19.1 MiB")).to_be_visible()
    page.get_by_role("button", name="Cancel this move").click()
    expect(page.get_by_text("No reassignment is in progress.")).to_be_visible()
    assert replicas(site, "slow") == [(1,)]


@pytest.mark.promise("console", "Leaders that would be elected are shown before the election")
def test_preferred_leaders_are_elected_after_a_preview(page: Page, site: Site) -> None:
    make_topic(site, "led", [1, 2])
    site.penstock("cluster", "reassign", "--move", "led:0=2,1")
    assert site.cluster.leaders("led") == {0: 1}
    log_in(page, site)
    page.goto(f"{site.url}/placement?q=led&show=leader+not+preferred")
    expect(page.get_by_role("cell", name="2, 1")).to_be_visible()
    page.get_by_role("button", name="Elect leaders").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("cell", name="led-0")).to_be_visible()
    dialog.get_by_role("button", name="Elect", exact=True).click()
    expect(page.get_by_role("cell", name="2, 1")).to_have_count(0)
    assert site.cluster.leaders("led") == {0: 2}


@pytest.mark.promise("console", "The role read sees users, ACLs, quotas and placement, and changes nothing")
def test_readers_have_no_buttons(page: Page, site: Site) -> None:
    log_in(page, site, "ray", "plum")
    for path, button in (
        ("users", "Create user"),
        ("acls", "Create ACL"),
        ("quotas", "Set quota"),
        ("placement", "Rebalance"),
    ):
        page.goto(f"{site.url}/{path}")
        expect(page.get_by_role("table").first).to_be_visible()
        expect(page.locator(".command-text").last).to_contain_text("penstock")
        expect(page.get_by_role("button", name=button)).to_have_count(0)


def test_names_of_users_acls_and_quotas_are_text(browser: Browser, site: Site) -> None:
    site.penstock("acls", "allow", f"User:{HOSTILE}", "read", "--topic", HOSTILE)
    site.penstock("quotas", "set", "--user", HOSTILE, "producer_byte_rate=1")
    # On a phone in the dark, too.
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    log_in(page, site)
    for path in ("acls", "quotas", "placement", "users"):
        page.goto(f"{site.url}/{path}")
        shown = (
            page.get_by_role("cell", name="<img").first
            if path in ("acls", "quotas")
            else page.get_by_role("table")
        )
        expect(shown).to_be_visible()
        assert page.locator("img[src=x]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert "owned" not in page.title()
    page.goto(f"{site.url}/acls")
    page.get_by_role("button", name="Delete").first.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text(f"User:{HOSTILE} may read topic")
    assert page.locator("img[src=x]").count() == 0
    context.close()
