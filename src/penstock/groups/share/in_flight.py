"""The in-flight offsets of a share partition, as runs of offsets with the same state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from penstock.groups.share.batches import AVAILABLE, TERMINAL

SPENT, REJECTED = "delivery count spent", "rejected"
NOBODY = ""


class Run:
    """A run of offsets with the same state. `planned`: a change of them is being written."""

    __slots__ = ("count", "deadline", "first", "last", "member", "planned", "reason", "state")

    def __init__(self, first: int, last: int, state: int, count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member = NOBODY
        self.deadline = 0
        self.planned = False
        self.reason = SPENT  # of records to be archived

    def __repr__(self) -> str:
        return f"Run({self.first}-{self.last}, {self.state}, {self.count}, {self.member!r})"

    def part(self, first: int, last: int) -> Run:
        part = Run(first, last, self.state, self.count)
        part.member, part.deadline = self.member, self.deadline
        part.planned, part.reason = self.planned, self.reason
        return part

    def like(self, other: Run) -> bool:
        if self.state != other.state or self.planned or other.planned:
            return False
        if self.state in TERMINAL:
            return True
        return (
            self.count == other.count
            and self.member == other.member
            and self.deadline == other.deadline
            and self.reason == other.reason
        )


class InFlight:
    """From `start_offset` to before `end_offset` without gaps: each offset is in exactly one run."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        """The next offset that is to be fetched for the first time."""
        self._runs: list[Run] = []
        self._may_have_available = False

    @property
    def runs(self) -> Sequence[Run]:
        return self._runs

    def _append(self, run: Run) -> None:
        assert run.first == self.end_offset
        self._runs.append(run)
        self.end_offset = run.last + 1
        if run.state == AVAILABLE:
            self._may_have_available = True
        self._merge(len(self._runs) - 1)

    def _index(self, offset: int) -> int:
        """The index of the run with this offset, which must be in flight."""
        return bisect_right(self._runs, offset, key=_first) - 1

    def _cut(self, first: int, last: int) -> Iterator[Run]:
        """The runs from `first` to `last`, split at these offsets. Offsets that are not in flight are
        left out.
        """
        first, last = max(first, self.start_offset), min(last, self.end_offset - 1)
        if first > last:
            return
        index = self._index(first)
        while index < len(self._runs):
            run = self._runs[index]
            if run.first > last:
                return
            if run.first < first:
                self._runs.insert(index, run.part(run.first, first - 1))
                run.first = first
                index += 1
            if run.last > last:
                self._runs.insert(index + 1, run.part(last + 1, run.last))
                run.last = last
            yield run
            index += 1

    def _merge(self, index: int) -> None:
        """Merges a run with equal neighbours."""
        runs = self._runs
        while index + 1 < len(runs) and runs[index].like(runs[index + 1]):
            runs[index].last = runs[index + 1].last
            del runs[index + 1]
        while index > 0 and runs[index - 1].like(runs[index]):
            runs[index - 1].last = runs[index].last
            del runs[index]
            index -= 1

    def _advance(self) -> None:
        """Removes completed offsets at the start."""
        done = 0
        for run in self._runs:
            if run.state not in TERMINAL or run.planned:
                break
            done += 1
            self.start_offset = run.last + 1
        del self._runs[:done]


def _first(run: Run) -> int:
    return run.first
