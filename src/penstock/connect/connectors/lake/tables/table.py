"""The interface of a table format for the sink: schema, stored offsets, and an append that updates both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from penstock.connect.api import ConnectError, TopicPartition
from penstock.connect.connectors.lake.tables.columns import TypeRules

TRIES = 20
"""The maximum number of attempts of one commit while other writers of the table are faster."""


class Span(NamedTuple):
    """Offsets of one partition whose rows are appended together."""

    start: int | None
    """The offset that the table must have for the partition; None if it must have none."""
    next: int


class Moved(ConnectError):
    """Another task has written these partitions in the meantime, up to these offsets."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__(f"another task has written these partitions: {dict(offsets)}")
        self.offsets = dict(offsets)


class LakeTable(Protocol):
    """One table. Raises RetriableError if it cannot be reached."""

    rules: TypeRules

    def schema(self) -> Any:
        """An Arrow schema with types from `rules`; None if there is no table yet."""

    def offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offset of each partition that was written."""

    def append(self, rows: Any, spans: Mapping[TopicPartition, Span]) -> None:
        """Append an Arrow table, update the offsets in the same commit, and add new columns.

        Raises Moved if the table does not have the offsets at which the spans start: then nothing was
        written.
        """


def check_spans(found: Mapping[TopicPartition, int], spans: Mapping[TopicPartition, Span]) -> None:
    moved = {
        place: found[place] for place, span in spans.items() if found.get(place, span.start) != span.start
    }
    if moved:
        raise Moved(moved)
