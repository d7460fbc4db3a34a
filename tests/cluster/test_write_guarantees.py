"""What docs/delivery.md says of acks=all with min.insync.replicas: "the leader and a quorum of n"."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from tests.cluster.harness import Cluster
from tests.cluster.history import read_all

pytestmark = pytest.mark.timeout(300)

PAGE = Path(__file__).parents[2] / "docs" / "delivery.md"


def run_the_commands_of_the_page(cluster: Cluster) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    (block,) = (block for block in blocks if "ledger" in block)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PENSTOCK_BOOTSTRAP": cluster.bootstrap, "PATH": path}
    subprocess.run(["bash", "-euo", "pipefail", "-c", block], env=environment, check=True)


def write(cluster: Cluster, value: bytes, acks: str) -> int:
    """The code that the broker answered; 0 when the record was accepted."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "retries": 0, "log_level": 0})
    producer.produce("ledger", value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    (error,) = errors
    return 0 if error is None else error.code()


@pytest.mark.promise(
    "topics",
    'acks=all with `min.insync.replicas=2` means "the leader and a quorum of two": writes are accepted '
    "with two replicas in sync and rejected with one",
)
def test_a_quorum_of_two_accepts_with_two_and_refuses_with_one(cluster: Cluster) -> None:
    run_the_commands_of_the_page(cluster)
    cluster.wait_in_sync("ledger", 3)
    last = cluster.leader("ledger")
    first, second = (node for node in cluster.nodes.values() if node is not last)

    first.kill()
    cluster.wait_in_sync("ledger", 2)
    assert write(cluster, b"two are left", "all") == 0

    second.kill()
    cluster.wait_in_sync("ledger", 1)
    assert write(cluster, b"one is left", "all") == KafkaError.NOT_ENOUGH_REPLICAS
    assert write(cluster, b"for the leader", "1") == 0

    first.start()
    cluster.wait_in_sync("ledger", 2)
    assert write(cluster, b"two again", "all") == 0
    values = [value for _, value in read_all(cluster, "ledger")[0]]
    assert values == [b"12", b"two are left", b"for the leader", b"two again"]
