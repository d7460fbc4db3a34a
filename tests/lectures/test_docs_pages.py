"""The commands of the pages for newcomers run as they stand there, one after the other, on one broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import PenstockBroker

ROOT = Path(__file__).resolve().parents[2]
# A broker is running, and the tests run in its environment.
DONE_ALREADY = ("source ", "penstock up")


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(
        {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    ) as process:
        yield process


@pytest.mark.promise(
    "docs",
    "The commands of concepts.md, from-kafka.md, troubleshooting.md and of the lectures run as printed",
)
@pytest.mark.parametrize(
    ("page", "shows"),
    [
        ("docs/concepts.md", ["starts", "teachers", "lessons"]),
        ("docs/from-kafka.md", ["payments", "accounts", "cleanup.policy", "compact"]),
        ("docs/troubleshooting.md", ["127.0.0.1"]),
        ("examples/lectures/README.md", ["customers"]),
    ],
)
def test_the_commands_of_a_page_run(page: str, shows: list[str], broker: PenstockBroker) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
    lines = [line for line in "".join(blocks).splitlines() if not line.startswith(DONE_ALREADY)]
    assert lines
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = "\n".join(lines).replace("create_topic.py", f"create_topic.py --bootstrap {broker.bootstrap}")
    done = subprocess.run(
        ["bash", "-exuo", "pipefail", "-c", script],
        cwd=ROOT,
        env=os.environ | {"PENSTOCK_BOOTSTRAP": broker.bootstrap, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [text for text in shows if text not in done.stdout] == []
