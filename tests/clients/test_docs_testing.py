"""docs/testing.md and the README: their examples are tests, and they pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.doc_blocks import program, programs

# The reader's own code, which the test in the README tests.
MY_PRODUCER = """
from kafka import KafkaProducer

class my_producer:
    def __init__(self, bootstrap):
        self._producer = KafkaProducer(bootstrap_servers=bootstrap)

    def send(self, topic, value):
        self._producer.send(topic, value).get(60)


"""


@pytest.mark.promise("fixture", "Every example of testing.md and the one of the README run as printed")
def test_every_example_on_the_page_runs_and_passes(tmp_path: Path) -> None:
    of_readme = MY_PRODUCER + program("README.md", "def test_orders_arrive")
    examples = [*programs("docs/testing.md"), of_readme]
    assert len(examples) >= 7
    for number, example in enumerate(examples, 1):
        (tmp_path / f"test_example_{number}.py").write_text(example, encoding="utf-8")
    # As a user's project would run them: the plugin comes from the installed package alone.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    outcome = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
