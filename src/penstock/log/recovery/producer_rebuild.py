"""The state of producers, read back when a log is opened or cut: a snapshot and the batches after it.

That may be a whole segment of headers. A truncation therefore only says what is to be read, and it is read in
a thread. Whoever needs the state earlier is asked to try again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import takewhile

from penstock.log.producer_state import ProducerStateManager
from penstock.log.recovery.replay import batches_from, remember_tail, replay_producers
from penstock.log.segment import Segment


class ProducerRebuild:
    """`stable_until`: below it no transaction is open, whatever is found.

    With `mend`, where a log is opened, aborted transactions that an index lacks are put back.
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
        """Read it, unless that is done. Blocking, in any thread; batches of producers come after it."""
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
