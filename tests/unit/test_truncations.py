"""Between a truncation and the next record: checkpoints, and what is known of producers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import NotLeaderOrFollower
from penstock.replication.following import Following
from penstock.replication.partition import Partition
from penstock.replication.truncations import Truncations
from tests.unit.cluster_images import partition as image_of
from tests.unit.log_helpers import append, batch, make_log


@pytest.mark.promise(
    "crashes",
    "Truncation lowers the recovery point, in memory under a flush and on disk before the next append",
)
def test_who_leads_right_after_a_truncation_appends_when_the_recovery_point_on_disk_is_lower(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        written, lowered = asyncio.Event(), []

        async def with_logs(work: Callable[..., None], *args: object) -> None:
            await written.wait()
            work(*args)

        broker: Any = SimpleNamespace(
            logs=SimpleNamespace(truncated=lambda log, offset: lowered.append(offset)),
            with_logs=with_logs,
            in_thread=lambda work, *args: loop.run_in_executor(None, work, *args),
            loop=loop,
        )
        log = make_log(tmp_path)
        for _ in range(30):
            append(log, batch([b"v"]))
        partition = Partition(image_of((1, 2), (1, 2), epoch=10), log, 2, lambda key: None)
        following = Following(partition)
        truncations = Truncations(broker)
        following.truncate_to(10)
        settled = truncations.settle(log)
        partition.update(image_of((2, 1), (2, 1), epoch=11))
        data = batch([b"v"])
        with pytest.raises(NotLeaderOrFollower):
            partition.append(data, 0, len(data), 1)
        written.set()
        await settled
        assert lowered == [10]
        assert partition.append(data, 0, len(data), 1).base_offset == 10

    asyncio.run(main())
