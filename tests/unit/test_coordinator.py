"""Where the state of a group or a transactional id lies."""

from __future__ import annotations

import pytest

from penstock.coordinator import partition_for


@pytest.mark.promise("groups", "The state of a group is in the partition that Kafka would choose for it")
@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("my-group", 12),
        ("orders", 31),
        ("payments", 13),
        ("x", 20),
        ("größe", 7),
        ("polygenelubricants", 0),
        ("", 0),
    ],
)
def test_a_key_lies_in_the_partition_that_kafka_would_choose(key: str, partition: int) -> None:
    """The numbers are Java's: the absolute value of String.hashCode, and 0 for the least of all numbers."""
    assert partition_for(key, 50) == partition
