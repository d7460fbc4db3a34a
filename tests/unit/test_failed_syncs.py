"""After a sync that failed nobody knows what is on disk: the next one, which succeeds, says nothing of it."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from penstock import errors
from penstock.fs import FaultyFs
from tests.unit.log_helpers import append, batch, make_log
from tests.unit.test_produce_wait import codes, produce, replicate, topic
from tests.unit.test_transactions_broker import running


@pytest.mark.promise(
    "log",
    "After a failed fsync, no later one acknowledges the records: the log accepts no writes until it is "
    "opened again",
)
def test_after_a_failed_sync_a_later_one_does_not_vouch_for_the_records(tmp_path: Path) -> None:
    """The kernel may have dropped the pages, and tells of it once."""
    fs = FaultyFs()
    log = make_log(tmp_path, fs=fs)
    append(log, batch([b"a"]))
    fs.fail("fsync", ".log", errno.EIO)
    with pytest.raises(errors.KafkaStorageError):
        log.flush()
    with pytest.raises(errors.KafkaStorageError):
        log.flush()
    assert log.recovery_point == 0


class _Held(FaultyFs):
    """The first sync of `f-0` waits, and fails."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    def fsync(self, fd: int) -> None:
        if (
            "/f-0/" in self._paths.get(fd, "")
            and self._paths[fd].endswith(".log")
            and not self.reached.is_set()
        ):
            self.reached.set()
            assert self.go_on.wait(30)
            raise OSError(errno.EIO, "the disk is broken")
        super().fsync(fd)


@pytest.mark.promise(
    "log",
    "After a failed fsync, no later one acknowledges the records: the log accepts no writes until it is "
    "opened again",
)
def test_a_record_behind_a_failed_sync_is_not_acknowledged(tmp_path: Path) -> None:
    """flush.messages=1: it was appended while the sync was under way, and its own sync is the next."""

    async def main() -> None:
        fs = _Held()
        async with running(tmp_path, fs) as broker:
            (partition,) = await topic(broker, flush_messages="1")
            first = produce(broker)
            assert await asyncio.get_running_loop().run_in_executor(None, fs.reached.wait, 30)
            second = produce(broker)
            replicate(partition)
            fs.go_on.set()
            assert await codes(first) == [errors.KafkaStorageError.code]
            assert await codes(second) == [errors.KafkaStorageError.code]
            assert partition.log.recovery_point == 0

    asyncio.run(main())
