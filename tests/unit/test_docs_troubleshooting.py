"""docs/troubleshooting.md: every message that the page explains is one that somebody can meet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from penstock import errors

ROOT = Path(__file__).resolve().parents[2]
OF_OTHERS = {
    "NoBrokersAvailable": "kafka-python",
    "DATA_SOURCE_NOT_FOUND": "Spark",
    "Timed out while waiting for the Python worker to connect back": "Spark",
    "ModuleNotFoundError": "Python",
}


def messages() -> list[str]:
    """What stands in backticks in the first column, where that is a message."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| (.*?) \|", page, re.M)
    found = [name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)]
    return [name for name in found if name not in ("spark", "read_committed")]


@pytest.fixture(scope="module")
def source() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))


@pytest.mark.promise("docs", "Every message that troubleshooting.md explains exists")
@pytest.mark.parametrize("message", messages())
def test_every_message_of_the_page_exists(message: str, source: str) -> None:
    if re.fullmatch(r"[A-Z][A-Z_]+", message) and message not in OF_OTHERS:
        assert hasattr(KafkaError, message) or errors.error_for_name(message)
    elif re.fullmatch(r"_[A-Z_]+", message):
        assert hasattr(KafkaError, message)
    elif message not in OF_OTHERS:
        for part in message.split("…"):
            if part.strip(": ") != "Address already in use":  # the operating system's
                assert part.strip() in source
