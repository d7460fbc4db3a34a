"""Acknowledgements in a request, and their validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import ApiError, InvalidRequest

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4


class Acknowledgement(NamedTuple):
    """One type for the whole batch, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]

    def by_type(self) -> list[tuple[int, int, int]]:
        """First offset, last offset and type of each run of the same type."""
        found: list[tuple[int, int, int]] = []
        for offset, type_ in enumerate(self.types, self.first):
            if found and found[-1][2] == type_:
                found[-1] = (found[-1][0], offset, type_)
            else:
                found.append((offset, offset, type_))
        return found


def check_acknowledgements(batches: Sequence[Acknowledgement], *, renew: bool) -> ApiError | None:
    """Validates the acknowledgements of a partition by themselves, as Kafka does."""
    previous = -1
    for batch in batches:
        if batch.first > batch.last:
            return InvalidRequest("The first offset of an acknowledgement batch is after its last.")
        if batch.first <= previous:
            return InvalidRequest("Acknowledgement batches overlap, or are not in order.")
        if not batch.types:
            return InvalidRequest("An acknowledgement batch has no types.")
        if len(batch.types) > 1 and len(batch.types) != batch.last - batch.first + 1:
            return InvalidRequest("An acknowledgement batch has neither one type nor one for each offset.")
        if any(not GAP <= type_ <= (RENEW if renew else REJECT) for type_ in batch.types):
            return InvalidRequest("An acknowledgement batch has an unknown type.")
        previous = batch.last
    return None
