"""kcat, where it is installed: librdkafka from another packager, often an older release."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing import PenstockBroker

pytestmark = pytest.mark.extras


@pytest.fixture
def kcat() -> str:
    found = shutil.which("kcat") or shutil.which("kafkacat")
    if found is None:
        pytest.skip("kcat is not installed")
    return found


@pytest.mark.promise(
    "clients", "Sarama, franz-go and kcat work unchanged (`make test-ecosystem`, where they are installed)"
)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_round_trip(kcat: str, penstock: PenstockBroker, codec: str) -> None:
    lines = "".join(f"key{n}:value {n}\n" for n in range(200))
    produce = [kcat, "-b", penstock.bootstrap, "-P", "-t", "lines", "-p", "0", "-K:", "-z", codec]
    subprocess.run(produce, input=lines, text=True, check=True, timeout=60)
    consume = [
        kcat,
        "-b",
        penstock.bootstrap,
        "-C",
        "-t",
        "lines",
        "-p",
        "0",
        "-o",
        "beginning",
        "-e",
        "-q",
        "-K:",
    ]
    done = subprocess.run(consume, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == lines


def test_kcat_lists_the_metadata(kcat: str, penstock: PenstockBroker) -> None:
    penstock.create_topic("lines", partitions=3)
    done = subprocess.run(
        [kcat, "-b", penstock.bootstrap, "-L"], capture_output=True, text=True, check=True, timeout=60
    )
    assert '"lines" with 3 partitions' in done.stdout
