"""The leader epoch cache: the start offset of each leader epoch (KIP-101), and its checkpoint file.

Followers truncate their logs by it, and consumers detect with it that the log was truncated. The file is
Kafka's `leader-epoch-checkpoint`; if it is lost, it is rebuilt from the batches of the log.
"""

from __future__ import annotations

import bisect
import os
from typing import NamedTuple

from penstock.fs import Fs
from penstock.log.checkpoint import CheckpointError, parse_checkpoint, render_checkpoint
from penstock.log.files import sync_path

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochCache:
    def __init__(self, path: str, fs: Fs) -> None:
        self.path = path
        self._fs = fs
        self.entries: list[EpochEntry] = []
        self.damaged = False
        self._is_saved = True
        self._is_synced = False  # unknown for an existing file
        if fs.exists(path):
            try:
                rows = parse_checkpoint(fs.read_bytes(path), columns=2)
                self.entries = [EpochEntry(int(epoch), int(start)) for epoch, start in rows]
            except (CheckpointError, ValueError):
                self.damaged = True
            if any(
                a.epoch >= b.epoch or a.start_offset > b.start_offset
                for a, b in zip(self.entries, self.entries[1:])
            ):
                self.entries, self.damaged = [], True

    @property
    def latest(self) -> int:
        return self.entries[-1].epoch if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """The batch at `start_offset` was written in `epoch`. Adds an entry if the epoch is newer than the
        last."""
        if epoch > self.latest:
            before = self.entries
            kept = [entry for entry in before if entry.start_offset < start_offset]
            self.entries = [*kept, EpochEntry(epoch, start_offset)]
            try:
                self._save()
            except OSError:
                self.entries = before  # the append fails, and the next one tries again
                raise

    def epoch_for(self, offset: int) -> int:
        i = bisect.bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[i - 1].epoch if i else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """The largest epoch that is not above `epoch`, and its end offset (OffsetForLeaderEpoch)."""
        if epoch < 0 or not self.entries:
            return EpochEntry(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest:
            return EpochEntry(epoch, log_end_offset)
        i = bisect.bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if i == len(self.entries):
            return EpochEntry(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        end = self.entries[i].start_offset
        return EpochEntry(self.entries[i - 1].epoch if i else epoch, end)

    def truncate_from_end(self, end_offset: int) -> None:
        kept = [entry for entry in self.entries if entry.start_offset < end_offset]
        if len(kept) != len(self.entries):
            self.entries, self._is_saved = kept, False
            self._save()

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes entries before the log start. This is written only with the next change or `save`: such
        entries are harmless and are removed when the log is opened, and a rename over an existing file can
        block."""
        i = bisect.bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if i > 1 or (i == 1 and self.entries[0].start_offset < start_offset):
            current = self.entries[i - 1]
            self.entries = [EpochEntry(current.epoch, start_offset), *self.entries[i:]]
            self._is_saved = False

    def clear(self) -> None:
        self.entries = []
        self._save()

    def save(self) -> None:
        if not self._is_saved:
            self._save()

    def sync(self) -> bool:
        """Sync the file. Runs in a thread, when the batches are synced: recovery does not read the epochs of
        synced batches. Returns whether the directory must be synced too."""
        if self._is_synced:
            return False
        self._is_synced = True  # set before the sync: a later save resets it
        try:
            sync_path(self.path, self._fs)
        except OSError:
            self._is_synced = False
            raise
        return True

    def _save(self) -> None:
        # Not synced here, because this runs on the event loop. Recovery restores the entries of unsynced
        # batches.
        data = render_checkpoint([(str(epoch), str(start)) for epoch, start in self.entries])
        temporary = self.path + ".tmp"
        fd = self._fs.open(temporary, _CREATE)
        try:
            self._fs.write_all(fd, data)
        finally:
            self._fs.close(fd)
        self._fs.rename(temporary, self.path)
        self._is_saved, self._is_synced = True, False
