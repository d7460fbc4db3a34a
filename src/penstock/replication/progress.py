"""What a leader knows of its followers, and whether they are in sync. Pure; time is passed in.

A follower is in sync while it has caught up with the end of the log within replica.lag.time.max.ms. It has
caught up when it fetches from the end; or, if records come in all the time, when it fetches from where the
end was at its fetch before: then it was at the end at the time of that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    log_end_offset: int = -1
    """-1 until it has fetched from this leader."""
    log_start_offset: int = -1
    caught_up_ms: int = 0
    fetched_ms: int = 0
    leader_end: int = 0
    """Where the leader's log ended when it fetched last."""
    broker_epoch: int = -1
    """Of the broker that has fetched so far. One that was started again may have lost the end of its log, and
    what it had before must not count: the controller lets it in with its own epoch only (KIP-903)."""

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.leader_end = leader_end
        self.fetched_ms = now_ms


def lagging(
    isr: Iterable[int],
    leader: int,
    progress: Mapping[int, Progress],
    leader_end: int,
    now_ms: int,
    max_lag_ms: int,
) -> list[int]:
    """The followers that are in the ISR and should not be."""
    found = []
    for replica in isr:
        if replica == leader:
            continue
        one = progress.get(replica)
        if one is None:
            continue  # it has had no time yet: the leader counts from when it took over
        if one.log_end_offset != leader_end and now_ms - one.caught_up_ms > max_lag_ms:
            found.append(replica)
    return found


def has_caught_up(one: Progress, high_watermark: int, epoch_start: int) -> bool:
    """Whether a follower outside the ISR may join it.

    It needs all that was acknowledged, and something of this leader's own: before that it may still hold
    records that this leader never had.
    """
    return one.log_end_offset >= high_watermark and one.log_end_offset >= epoch_start
