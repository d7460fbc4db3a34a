"""Checks each second, in its own thread, whether the cluster responds: Spark only sends requests between
batches.

A query of Spark that waits for a broker looks like one without new records. This requests the end offsets of
the queries' topics, so that a missing leader of one of them is noticed as well.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from penstock.client import LATEST, ClientSettings, Cluster
from penstock.errors import ApiError, PenstockError
from penstock.sql.settings import EngineSettings

log = logging.getLogger(__name__)

_EVERY_SECONDS = 1.0
_AWAY_SECONDS = 4.0
"""Without an answer for so long it is away: a broker that restarts or is busy may take a moment."""
_LOG_SECONDS = 60.0
_SHORT = {
    "request.timeout.ms": "2000",
    "default.api.timeout.ms": "2500",
    "socket.connection.setup.timeout.ms": "2000",
}


@dataclass(frozen=True, slots=True)
class _Silence:
    """Since when something has not responded, on two clocks, and the latest reason."""

    since: float
    wall: str
    reason: str


class ClusterHealth:
    """`topics` returns the topics that queries read and write. Thread-safe."""

    def __init__(
        self,
        settings: EngineSettings,
        topics: Callable[[], Collection[str]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._silent: dict[str | None, _Silence] = {}
        """By topic; None is the whole cluster. Replaced as a whole."""
        self._log_at = 0.0
        self._logged = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="sql-cluster-health", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(1.0)  # a daemon: it may be waiting for a response

    def away(self, topics: Iterable[str | None] = ()) -> str | None:
        """Why the cluster, or one of these topics, counts as unavailable; None while it responds."""
        now = self._clock()
        for each in (None, *topics):
            found = self._silent.get(each)
            if found is not None and now - found.since >= _AWAY_SECONDS:
                what = f"the cluster at {self._settings.bootstrap}" if each is None else f"topic {each}"
                return f"{what} has not answered since {found.wall}: {found.reason}"
        return None

    def _watch(self) -> None:
        with Cluster(ClientSettings.from_kafka({**self._settings.client(), **_SHORT})) as cluster:
            while not self._stopping.wait(_EVERY_SECONDS):
                begun, wall = self._clock(), time.strftime("%H:%M:%S")
                before = self._silent
                self._silent = {
                    each: _Silence(before[each].since, before[each].wall, reason)
                    if each in before
                    else _Silence(begun, wall, reason)
                    for each, reason in self._look(cluster).items()
                }
                self._tell()

    def _look(self, cluster: Cluster) -> dict[str | None, str]:
        """What does not respond now, and why."""
        wanted = set(self._topics())
        try:
            there = cluster.partitions(wanted) if wanted else {}
            if not wanted:
                cluster.id()
        except ApiError:
            return {}  # any response counts
        except PenstockError as error:
            return {None: _reason(error)}
        places = {name: range(info.partition_count) for name, info in there.items()}
        if self._ends(cluster, places) is None:
            return {}
        silent: dict[str | None, str] = {}
        for name, partitions in places.items():
            if self._stopping.is_set():
                break
            why = self._ends(cluster, {name: partitions})
            if why is not None:
                silent[name] = why
        # All of them: then no leader is reachable, whichever broker returned the metadata.
        return {None: next(iter(silent.values()))} if silent and len(silent) == len(places) else silent

    def _ends(self, cluster: Cluster, places: dict[str, range]) -> str | None:
        """Why the ends of these topics are unknown; None if they are known."""
        try:
            cluster.list_offsets({(name, each): LATEST for name, those in places.items() for each in those})
        except ApiError:
            return None
        except PenstockError as error:
            return _reason(error)
        return None

    def _tell(self) -> None:
        """Logs one line a minute while it is unavailable, and one when it responds again."""
        why, now = self.away(self._silent), self._clock()
        if why is not None and now >= self._log_at:
            log.warning("%s", why)
            self._log_at, self._logged = now + _LOG_SECONDS, True
        elif not self._silent and self._logged:
            log.info("the cluster at %s answers again", self._settings.bootstrap)
            self._log_at, self._logged = 0.0, False


def _reason(error: PenstockError) -> str:
    """The connection error, without the text that `Cluster` adds."""
    return str(error.__cause__ or error)
