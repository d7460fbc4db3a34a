"""`penstock mcp`: what a language model can ask of a real broker and registry, and what it cannot change."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import PenstockBroker
from tests.mcp_server.asking import Asked, Refused, ask
from tests.registry.conftest import Registries, RegistryProcess

pytestmark = pytest.mark.timeout(300)
READING = {
    "list_topics", "describe_topic", "read_messages", "list_groups", "describe_group", "list_transactions",
    "check_cluster",
}  # fmt: skip
LONG = "x" * 10_000


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker({"group.initial.rebalance.delay.ms": 0}) as process:
        process.create_topic("orders", partitions=2)
        producer = Producer({"bootstrap.servers": process.bootstrap})
        for number in range(30):
            value = json.dumps({"id": number, "city": "Bern" if number % 10 == 3 else "Basel"})
            producer.produce("orders", value, f"k{number}", headers={"source": b"web"}, partition=number % 2)
        producer.produce("orders", LONG, "long", partition=0)
        producer.produce("orders", None, "gone", partition=0)
        assert producer.flush(30) == 0
        group = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "billing"})
        group.commit(offsets=[TopicPartition("orders", 1, 5)], asynchronous=False)
        group.close()
        yield process


@pytest.fixture(scope="module")
def registry(broker: PenstockBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    started = Registries(tmp_path_factory.mktemp("registry"))
    try:
        yield started.start(broker.bootstrap)
    finally:
        started.close()


@pytest.mark.promise(
    "operations",
    "`penstock mcp` answers a language model's questions about topics, messages, groups and their lag, "
    "transactions, schemas and what is wrong with the cluster",
)
def test_it_answers_what_is_asked(broker: PenstockBroker, registry: RegistryProcess) -> None:
    schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]})
    command = [sys.executable, "-m", "penstock", "schemas", "register", "orders-value", "-", "--type", "avro"]
    subprocess.run([*command, "--registry", registry.url], input=schema, text=True, check=True, timeout=120)

    async def work(asked: Asked) -> None:
        assert await asked.tools() == dict.fromkeys(READING | {"list_subjects", "get_schema"}, True)
        listed = await asked("list_topics", name_contains="ord")
        assert [(one["name"], one["partitions"], one["records"]) for one in listed["topics"]] == [
            ("orders", 2, 32)
        ]
        described = await asked("describe_topic", topic="orders")
        assert [(one["leader"], one["latest"]) for one in described["partitions"]] == [(1, 17), (1, 15)]
        found = await asked("read_messages", topic="orders", search="city=Bern", search_kind="json")
        assert sorted(json.loads(one["value"])["id"] for one in found["messages"]) == [3, 13, 23]
        assert found["complete"] and found["messages"][0]["headers"] == {"source": "web"}
        newest = await asked("read_messages", topic="orders", partition=0, limit=2)
        gone, long = newest["messages"]
        assert (gone["key"], gone["value"]) == ("gone", None)
        assert long["value"].endswith("… (6000 more characters)") and len(long["value"]) < 4100
        (group,) = (await asked("list_groups", name_contains="bill"))["groups"]
        assert (group["group"], group["lag"]) == ("billing", 10)
        lag = await asked("describe_group", group="billing")
        assert [(one["partition"], one["committed"], one["lag"]) for one in lag["partitions"]] == [(1, 5, 10)]
        (transaction,) = (await asked("list_transactions"))["transactions"]  # the registry's
        assert transaction["state"] in ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit")
        assert (await asked("list_subjects"))["subjects"] == ["orders-value"]
        registered = await asked("get_schema", subject="orders-value")
        assert (registered["version"], registered["type"]) == (1, "AVRO")
        checked = await asked("check_cluster")
        assert "groups" in checked["checks"]

    ask(work, "--bootstrap", broker.bootstrap, "--registry", registry.url)


@pytest.mark.promise(
    "operations", "`penstock mcp` changes nothing unless it is started with `--allow-writes`"
)
def test_it_offers_no_change_unless_that_is_allowed(broker: PenstockBroker) -> None:
    async def reading(asked: Asked) -> None:
        assert set(await asked.tools()) == READING
        with pytest.raises(Exception, match="create_topic"):
            await asked("create_topic", topic="made")

    async def writing(asked: Asked) -> None:
        offered = await asked.tools()
        assert {name for name, only_reads in offered.items() if not only_reads} == {
            "create_topic", "produce_message"
        }  # fmt: skip
        assert await asked("create_topic", topic="made", partitions=3) == {"created": "made"}
        written = await asked("produce_message", topic="made", value="v", key="k", partition=2)
        assert written == {"partition": 2, "offset": 0}
        (message,) = (await asked("read_messages", topic="made"))["messages"]
        assert (message["key"], message["value"], message["partition"]) == ("k", "v", 2)

    ask(reading, "--bootstrap", broker.bootstrap)
    ask(writing, "--bootstrap", broker.bootstrap, "--allow-writes")


def test_what_cannot_be_answered_says_why(broker: PenstockBroker) -> None:
    async def work(asked: Asked) -> None:
        with pytest.raises(Refused, match=r"order'.*orders"):
            await asked("read_messages", topic="order")
        with pytest.raises(Refused, match="no group 'biling'"):
            await asked("describe_group", group="biling")
        with pytest.raises(Refused, match="whenever"):
            await asked("read_messages", topic="orders", start="whenever")
        with pytest.raises(Refused, match="search_kind is one of"):
            await asked("read_messages", topic="orders", search="x", search_kind="glob")

    ask(work, "--bootstrap", broker.bootstrap)


def test_without_a_broker_it_says_so_and_ends() -> None:
    command = [sys.executable, "-m", "penstock", "mcp", "--bootstrap", "127.0.0.1:1"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and not done.stdout
    assert "cannot reach a broker at 127.0.0.1:1" in done.stderr
