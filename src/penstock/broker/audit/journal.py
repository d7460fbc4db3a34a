"""The events that wait to be written: a bounded queue that folds repetitions. Pure.

The first of several equal denials is written at once. Those that follow within the time window are counted,
and written as one entry when the window ends. For a sender that is denied many resources, only the first
names get entries of their own; the others are folded into one entry without a name. So a client can cause
only a few entries per window, whatever it sends. Events that do not fit are counted, and the count is written
when there is room.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from penstock.broker.audit.event import Entry, Event, Kind


@dataclass(slots=True)
class _Window:
    event: Event
    first_ms: int
    last_ms: int
    count: int = 0  # without the first one, which has been written


class Journal:
    def __init__(self, *, capacity: int = 2_000, window_ms: int = 10_000, names: int = 20) -> None:
        """At most `capacity` entries wait, and at most as many windows are open; `names` is the limit per
        sender."""
        self._capacity = capacity
        self._window_ms = window_ms
        self._names = names
        self._waiting: deque[Entry] = deque()
        self._windows: dict[tuple[str | None, ...], _Window] = {}  # in the order in which they end
        self._names_of: dict[tuple[str, ...], int] = {}
        self._dropped = 0
        self._dropped_ms = (0, 0)

    @property
    def has_entries(self) -> bool:
        return bool(self._waiting or self._dropped)

    def add(self, event: Event, now_ms: int) -> None:
        if event.kind is Kind.ADMIN and not event.is_frequent:
            self._put(Entry(event, now_ms, now_ms), self._capacity)
            return
        self.close_windows(now_ms)
        window = self._windows.get(event.fold_key)
        if window is None and self._names_of.get(event.sender, 0) >= self._names:
            event = replace(event, name=None)
            window = self._windows.get(event.fold_key)
        if window is not None:
            window.count += 1
            window.last_ms = now_ms
            return
        if len(self._windows) >= self._capacity:
            self._drop(now_ms, now_ms, 1)
            return
        self._windows[event.fold_key] = _Window(event, now_ms, now_ms)
        self._names_of[event.sender] = self._names_of.get(event.sender, 0) + 1
        self._put_repeatable(Entry(event, now_ms, now_ms))

    def close_windows(self, now_ms: int, *, every: bool = False) -> None:
        """Turns the counts of windows that have ended, or with `every` of all windows, into entries."""
        while self._windows:
            key, window = next(iter(self._windows.items()))
            # A window also ends if the clock was set back.
            if not every and 0 <= now_ms - window.first_ms < self._window_ms:
                return
            del self._windows[key]
            sender = window.event.sender
            self._names_of[sender] -= 1
            if not self._names_of[sender]:
                del self._names_of[sender]
            if window.count:
                self._put_repeatable(Entry(window.event, window.first_ms, window.last_ms, window.count))

    def first(self, most: int) -> list[Entry]:
        """The entries to write next. They stay in the journal until `written` is called."""
        if self._dropped and len(self._waiting) < self._capacity:
            self._waiting.append(Entry(None, *self._dropped_ms, self._dropped))
            self._dropped = 0
        return [self._waiting[index] for index in range(min(most, len(self._waiting)))]

    def drop(self, now_ms: int) -> None:
        """Count an event that is not recorded."""
        self._drop(now_ms, now_ms, 1)

    def written(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()

    def _put_repeatable(self, entry: Entry) -> None:
        # Denials and frequent requests must leave room for the changes that administrators make.
        self._put(entry, self._capacity // 2)

    def _put(self, entry: Entry, capacity: int) -> None:
        if len(self._waiting) >= capacity:
            self._drop(entry.first_ms, entry.last_ms, entry.count)
        else:
            self._waiting.append(entry)

    def _drop(self, first_ms: int, last_ms: int, count: int) -> None:
        self._dropped_ms = (self._dropped_ms[0] if self._dropped else first_ms, last_ms)
        self._dropped += count
