"""Rebuilds the producer state when a log is opened or truncated: from a snapshot and the batches after it.

This may read the headers of a whole segment. So a truncation only creates the rebuild, which then runs in a
thread. Requests that need the state before that get a retriable error.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import takewhile

from penstock.log.producer_state import ProducerStateManager
from penstock.log.recovery.replay import batches_from, remember_tail, replay_producers
from penstock.log.segment import Segment


class ProducerRebuild:
    """`stable_until`: no transaction is open below this offset, whatever the log has.

    With `mend`, used when a log is opened, aborted transactions that are missing in an index are added to it.
    """

    def __init__(
        self,
        producers: ProducerStateManager,
        segments: Sequence[Segment],
        log_start_offset: int,
        log_end_offset: int,
        snapshot_at_most: int,
        *,
        stable_until: int = 0,
        mend: bool = False,
    ) -> None:
        self.stable_until = stable_until
        self._producers = producers.empty()
        self._segments = list(segments)
        self._log_start_offset = log_start_offset
        self._log_end_offset = log_end_offset
        self._snapshot_at_most = snapshot_at_most
        self._mend = mend
        self._lock = threading.Lock()
        self._done = False

    def run(self) -> ProducerStateManager:
        """Rebuild the state, unless that is already done. Blocking; runs in any thread."""
        with self._lock:
            if not self._done:
                self._read(self._producers)
                self._done = True
        return self._producers

    def _read(self, producers: ProducerStateManager) -> None:
        segments = self._segments
        offset = producers.load_latest(self._snapshot_at_most)
        start = self._log_start_offset if offset is None else offset
        first = max(sum(1 for segment in segments if segment.base_offset <= start) - 1, 0)
        batches = takewhile(
            lambda found: found[2].base_offset < self._log_end_offset, batches_from(segments[first:], start)
        )
        replay_producers(producers, batches, start, mend=self._mend)
        if offset is not None and producers.producers:
            remember_tail(producers, segments)
