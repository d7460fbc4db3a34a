"""The transactions of exactly-once source tasks (KIP-618): their ids, and when they are committed.

The cluster aborts a transaction that is open for `transaction.timeout.ms`, so each is committed after half of
that at the latest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.connect.errors import ConnectError
from penstock.connect.runtime.clients import WorkerSettings, transaction_timeout_ms

_INTERVAL = "transaction.boundary.interval.ms"


def transactional_id(group: str, connector: str, task: int) -> str:
    """The id that Kafka Connect would use."""
    return f"{group}-{connector}-{task}"


def commit_interval(worker: WorkerSettings, config: Mapping[str, str], settings: Mapping[str, Any]) -> float:
    """Seconds between commits; 0: after each poll."""
    if not worker.exactly_once:
        return worker.flush_seconds
    if settings["transaction.boundary"].lower() == "poll":
        return 0.0
    timeout = transaction_timeout_ms(worker, config)
    given = settings[_INTERVAL]
    if given is not None and given >= timeout:
        raise ConnectError(_too_long(given, timeout))
    return min(worker.flush_seconds if given is None else given / 1000, timeout / 2000)


def problems_of_interval(worker: WorkerSettings, config: Mapping[str, str]) -> dict[str, list[str]]:
    """An interval that is longer than a transaction may last, by the name of its setting."""
    given = config.get(_INTERVAL)
    if not worker.exactly_once or config.get("transaction.boundary", "").lower() != "interval" or not given:
        return {}
    try:
        timeout = transaction_timeout_ms(worker, config)
    except ConnectError as error:
        return {"producer.override.transaction.timeout.ms": [str(error)]}
    if not given.isdecimal() or int(given) < timeout:
        return {}
    return {_INTERVAL: [f"Invalid value {given} for configuration {_INTERVAL}: {_too_long(given, timeout)}"]}


def _too_long(interval: object, timeout: int) -> str:
    return (
        f"{_INTERVAL}={interval} must be less than the transaction timeout, {timeout} ms, after which the "
        "cluster aborts a transaction: set producer.override.transaction.timeout.ms"
    )
