"""What the sink needs of a table format: its schema, the offsets in it, and an append that moves both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from penstock.connect.api import ConnectError, TopicPartition
from penstock.connect.connectors.lake.tables.columns import TypeRules

TRIES = 20
"""Of one commit, while other writers of the table come first."""


class Span(NamedTuple):
    """Offsets of one partition whose rows are appended together."""

    start: int | None
    """The offset that the table must have for the partition; None: none."""
    next: int


class Moved(ConnectError):
    """Another task has written these partitions meanwhile; the offsets say how far."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__(f"another task has written these partitions: {dict(offsets)}")
        self.offsets = dict(offsets)


class LakeTable(Protocol):
    """One table. RetriableError where it cannot be reached."""

    rules: TypeRules

    def schema(self) -> Any:
        """An Arrow schema, of types that `rules` gives; None if there is no table yet."""

    def offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offset of each partition that was written."""

    def append(self, rows: Any, spans: Mapping[TopicPartition, Span]) -> None:
        """Add an Arrow table and move the offsets in one commit, and add columns that are new.

        Moved if the table does not have the offsets at which the spans start: then nothing was written.
        """


def check_spans(found: Mapping[TopicPartition, int], spans: Mapping[TopicPartition, Span]) -> None:
    moved = {
        place: found[place] for place, span in spans.items() if found.get(place, span.start) != span.start
    }
    if moved:
        raise Moved(moved)
