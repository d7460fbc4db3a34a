"""Invariants of a replica; `Partition.check` runs them.

Unit tests check them after every test that creates partitions, the simulators after every step. The check
only reads memory. Invariants of the log are checked by the log itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log.check import InvariantViolated

if TYPE_CHECKING:
    from penstock.replication.partition import Partition


def check_partition(one: Partition, *, whole_image: bool = True) -> None:
    """Raise InvariantViolated unless all invariants hold.

    `whole_image` is False while the image may have only a part of a reassignment: the metadata store keeps
    replicas and ISR in separate nodes.
    """
    _Check(one, whole_image).run()


class _Check:
    def __init__(self, one: Partition, whole_image: bool) -> None:
        self.one = one
        self.whole_image = whole_image

    def that(self, holds: bool, what: str) -> None:
        if not holds:
            one, log = self.one, self.one.log
            raise InvariantViolated(
                f"{one.key[0]}-{one.key[1]} on broker {one._broker_id}: {what} (log start"
                f" {log.log_start_offset}, high watermark {log.high_watermark}, log end {log.log_end_offset},"
                f" epoch start {one.epoch_start}, pending ISR {one.pending_isr}, {one.image}, {one.progress})"
            )

    def run(self) -> None:
        self._offsets()
        self._image()
        self._in_sync()
        if self.one.is_leader:
            self._leader()
        else:
            self.that(not self.one.progress, "it counts followers, and does not lead")

    def _offsets(self) -> None:
        log = self.one.log
        stable = log.last_stable_offset
        self.that(log.log_start_offset <= log.high_watermark, "the log starts above its high watermark")
        self.that(log.high_watermark <= log.log_end_offset, "the high watermark is above the log's end")
        self.that(
            log.recovery_point <= log.log_end_offset,
            f"the recovery point {log.recovery_point} is above the log's end",
        )
        self.that(
            stable <= log.high_watermark, f"the last stable offset {stable} is above the high watermark"
        )
        self.that(
            log.log_start_offset <= stable, f"the last stable offset {stable} is before the log's start"
        )

    def _image(self) -> None:
        one, image, latest = self.one, self.one.image, self.one.log.latest_epoch
        self.that(image.index == one.key[1], "its image is of another partition")
        self.that(len(set(image.replicas)) == len(image.replicas), "a replica is named twice")
        self.that(len(set(image.isr)) == len(image.isr), "a replica in sync is named twice")
        if self.whole_image:
            self.that(set(image.isr) <= set(image.replicas), "a broker is in sync that is not a replica")
        self.that(latest <= image.leader_epoch, f"it has records of leader epoch {latest}, which is to come")

    def _in_sync(self) -> None:
        one, image = self.one, self.one.image
        alone = image.isr == (one._broker_id,) and image.leader == one._broker_id
        self.that(one._alone == alone, "it does not know whether it is alone in sync")
        self.that(not one.is_unsure or one.pending_isr is not None, "it waits for no answer, and is unsure")
        if one.pending_isr is not None:
            self.that(one.is_leader, "it has asked for an ISR, and does not lead")
            asked = set(one.asked_isr)
            self.that(
                asked <= set(one.pending_isr), f"it has asked for {one.asked_isr}, which is not pending"
            )
            self.that(one._broker_id in asked, f"it has asked for {one.asked_isr}, without itself")

    def _leader(self) -> None:
        one, log = self.one, self.one.log
        self.that(one._broker_id not in one.progress, "it counts itself as a follower")
        self.that(one.epoch_start <= log.log_end_offset, "the log is shorter than when its epoch began")
        for replica, progress in one.progress.items():
            end, start = progress.log_end_offset, progress.log_start_offset
            self.that(end <= log.log_end_offset, f"broker {replica} has fetched up to {end}, past the end")
            self.that(start <= max(end, 0), f"the log of broker {replica} starts at {start}, past its end")
        if one._alone and not one.pending_isr and not one.is_under_min_isr:
            behind = log.log_end_offset - log.high_watermark
            self.that(
                behind == 0 or (one._flush is not None and behind >= log.config.flush_messages),
                "it is alone in sync, and waits for others",
            )
