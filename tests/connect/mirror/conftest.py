"""Two clusters of one broker each, with ACLs, and a worker on the second one that delivers exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.client import LATEST, READ_COMMITTED, ClientSettings, Cluster
from penstock.connect.connectors.mirror.batches import batches_to_copy
from penstock.testing import PenstockBroker
from penstock.wire.batches.records import Record, iter_records
from tests.connect.conftest import Worker, Workers

BROKER = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "log.cleaner.backoff.ms": 200,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ONCE = ("--set", "exactly.once.source.support=enabled")


WAIT_SECONDS = 150.0
_PAUSE_SECONDS = 0.2  # reading whole topics again and again must not slow down what is waited for


def until(check: Callable[[], Any], what: str, more: Callable[[], str] = lambda: "") -> Any:
    """What `check` gives once it gives something."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := check()):
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS:g} s: {what} {more()}"
        time.sleep(_PAUSE_SECONDS)
    return found


@dataclass
class Pair:
    source: PenstockBroker
    target: PenstockBroker

    def config(self, alias: str, **more: object) -> dict[str, object]:
        """Of a connector from the source to the target; `__` stands for a dot, `_0_` for a dash."""
        return {
            "source.cluster.alias": alias,
            "target.cluster.alias": "there",
            "source.cluster.bootstrap.servers": self.source.bootstrap,
            "target.cluster.bootstrap.servers": self.target.bootstrap,
            **{name.replace("__", "."): value for name, value in more.items()},
        }


@pytest.fixture(scope="module")
def clusters() -> Iterator[Pair]:
    with PenstockBroker(BROKER) as source, PenstockBroker(BROKER) as target:
        yield Pair(source, target)


@pytest.fixture(scope="module")
def mirror(clusters: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    started = Workers(tmp_path_factory.mktemp("mirror"))
    yield started.start(clusters.target.bootstrap, *ONCE)
    started.close()


def connect(bootstrap: str) -> Cluster:
    return Cluster(ClientSettings.from_kafka({"bootstrap.servers": bootstrap}))


def partition(cluster: Cluster, topic: str, number: int) -> tuple[list[Record], list[bytes]]:
    """All committed records of a partition, and the bytes of each batch's records as the log has them."""
    place = (topic, number)
    end = cluster.list_offsets({place: LATEST}, READ_COMMITTED)[place] or 0
    offset, records, payloads = 0, [], []
    while offset < end:
        fetched = cluster.fetch(topic, number, offset, isolation=READ_COMMITTED)
        assert fetched.error is None, f"{topic}-{number} from {offset}: {fetched.error}"
        batches, following = batches_to_copy(fetched, offset, isolation=READ_COMMITTED)
        for data, _ in batches:
            payloads.append(bytes(data[61:]))
            records += list(iter_records(data))
        offset = following  # a slow broker may answer without records: the same again
    return records, payloads


def contents(records: list[Record]) -> list[tuple[object, ...]]:
    return [(each.timestamp, each.key, each.value, each.headers) for each in records]


def until_equal(pair: Pair, topic: str, remote: str, partitions: int) -> None:
    """The target has what the source has, each record once and in order."""
    with connect(pair.source.bootstrap) as source, connect(pair.target.bootstrap) as target:
        for number in range(partitions):
            expected = contents(partition(source, topic, number)[0])

            def there(number: int = number, expected: list[tuple[object, ...]] = expected) -> bool:
                if remote not in target.partitions([remote]):
                    return False
                if target.partitions([remote])[remote].partition_count <= number:
                    return False
                found = contents(partition(target, remote, number)[0])
                assert found == expected[: len(found)], f"{remote}-{number} is not {topic}-{number}"
                return len(found) == len(expected)

            until(there, f"{remote}-{number} has all {len(expected)} records")
