"""The cluster of a source: its id, which is the same for all addresses of its brokers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from penstock.client import ClientError, ClientSettings, Cluster
from penstock.errors import ApiError

log = logging.getLogger(__name__)

_PREFIX = "kafka."
_WAIT_MS = 3000


class Clusters:
    """Asks each cluster once. Use one instance per load of a project: an unavailable cluster may be back at
    the next.
    """

    def __init__(self) -> None:
        self._asked: dict[tuple[tuple[str, str], ...], str | None] = {}

    def id_of(self, options: Mapping[str, str]) -> str | None:
        """The id of the cluster in a source's options; None if they name none, or it cannot be asked."""
        known = {
            key[len(_PREFIX) :].lower(): value
            for key, value in options.items()
            if key.lower().startswith(_PREFIX)
        }
        if "bootstrap.servers" not in known:
            return None
        asked = tuple(sorted(known.items()))
        if asked not in self._asked:
            self._asked[asked] = _ask(known)
        return self._asked[asked]


def _ask(known: Mapping[str, str]) -> str | None:
    try:
        settings = ClientSettings.from_kafka(known)
        quick = replace(
            settings,
            api_timeout_ms=min(_WAIT_MS, settings.api_timeout_ms),
            request_timeout_ms=min(_WAIT_MS, settings.request_timeout_ms),
            connect_timeout_ms=min(_WAIT_MS, settings.connect_timeout_ms),
        )
        with Cluster(quick) as cluster:
            return cluster.id()
    except (ClientError, ApiError, OSError) as error:
        # Away, or with settings that only Java's client understands. The flow may still run, so this is no
        # error: sources are compared by the address of their brokers then.
        log.info("could not read the cluster id of %s: %s", known["bootstrap.servers"], error)
        return None
