"""Counters of the traffic of one topic's partitions on this broker, since it started."""

from __future__ import annotations


class Traffic:
    """Shared by the partitions of a topic. Only the event loop writes; any thread may read."""

    __slots__ = (
        "bytes_in", "bytes_out", "failed_fetches", "failed_produces", "isr_expands", "isr_shrinks",
        "messages_in", "replication_bytes_in", "replication_bytes_out",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
