"""What a leader knows about its followers, and whether they are in sync. Pure; time is passed in.

A follower is in sync if it has caught up with the end of the log within replica.lag.time.max.ms. It has
caught up when it fetches from the log end offset. If records arrive all the time, a fetch from the log end
offset at the time of its previous fetch is enough: then it had caught up at the time of the previous fetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    log_end_offset: int = -1
    """-1 until the follower has fetched from this leader."""
    log_start_offset: int = -1
    caught_up_ms: int = 0
    fetched_ms: int = 0
    leader_end: int = 0
    """The leader's log end offset at the follower's last fetch."""
    broker_epoch: int = -1
    """The epoch of the broker that has fetched. A restarted broker may have lost the end of its log, so what
    it had before must not count: the controller adds it to the ISR only with its current epoch (KIP-903)."""

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
    """The followers that are in the ISR but no longer in sync."""
    found = []
    for replica in isr:
        if replica == leader:
            continue
        one = progress.get(replica)
        if one is None:
            continue  # a new follower: its time starts when the leader has taken over
        if one.log_end_offset != leader_end and now_ms - one.caught_up_ms > max_lag_ms:
            found.append(replica)
    return found


def has_caught_up(one: Progress, high_watermark: int, epoch_start: int) -> bool:
    """Whether a follower outside the ISR may join it.

    It must have all acknowledged records, and have reached the start of this leader epoch: before that it may
    still have records that this leader never had.
    """
    return one.log_end_offset >= high_watermark and one.log_end_offset >= epoch_start
