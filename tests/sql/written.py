"""When to ask a question of SQL again: each costs the cores that the query it waits for needs.

Rows change when something is written. So a test that waits for rows looks at the ends of all topics, which
costs next to nothing, and asks again when one of them has moved. Rows may also come a little later than the
records, and those of Delta tables without any: it asks after a while in any case.
"""

from __future__ import annotations

import time

from penstock.client import LATEST, ClientSettings, Cluster
from penstock.errors import PenstockError

LOOK_SECONDS = 0.2


class Written:
    """The ends of all topics of a cluster, as a read_committed consumer sees them."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
        self._cluster = Cluster(ClientSettings.from_kafka({**settings, "default.api.timeout.ms": "5000"}))

    def ends(self) -> dict[tuple[str, int], int | None]:
        """Nothing where the cluster does not say: a topic may be deleted at this moment."""
        try:
            known = [info for name in self._cluster.topics() if (info := self._cluster.remembered(name))]
            places = [(info.name, index) for info in known for index in range(info.partition_count)]
            return dict(self._cluster.list_offsets(dict.fromkeys(places, LATEST)))
        except PenstockError:
            return {}

    def wait(self, seen: dict[tuple[str, int], int | None], seconds: float) -> None:
        """Until something is written that was not there when `seen` was taken, or for so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.ends() != seen:
                return
            time.sleep(LOOK_SECONDS)

    def close(self) -> None:
        self._cluster.close()
