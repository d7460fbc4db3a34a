"""Log levels of this broker, as Kafka clients describe and alter them: the broker logger resources (KIP-412).

They are levels of this process and are lost when it stops. `/admin/loggers` of the metrics port has the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from penstock.controller import AlterConfigsResult, AlterOp, AlterResource, ConfigOp
from penstock.controller.configs import check_ops
from penstock.errors import ApiError, InvalidConfig, InvalidRequest
from penstock.web.loggers import ROOT, Loggers, UnknownLogger

LEVELS = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")

_loggers = Loggers()


def levels(broker_id: int, name: str, wanted: Collection[str] | None) -> dict[str, str]:
    """The levels of the requested loggers, or of all. InvalidRequest if the request names another broker."""
    _check_broker(broker_id, name)
    return {
        logger: level for logger, level in _loggers.levels().items() if wanted is None or logger in wanted
    }


def alter(
    broker_id: int, resources: Sequence[AlterResource], validate_only: bool
) -> list[AlterConfigsResult]:
    """Alters log levels; the changes of one resource are applied together or not at all."""
    times = Counter(resource.name for resource in resources)
    results = []
    for resource in {each.name: each for each in resources}.values():
        error = None
        try:
            if times[resource.name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            check_ops(resource.ops)
            _check_broker(broker_id, resource.name)
            for op in resource.ops:
                _check(op)
            for op in () if validate_only else resource.ops:
                _apply(op)
        except ApiError as caught:
            error = caught
        results.append(AlterConfigsResult(resource.type, resource.name, error))
    return results


def _check_broker(broker_id: int, name: str) -> None:
    if not name.isdecimal():
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    if name != str(broker_id):
        raise InvalidRequest(f"Unexpected broker id, expected {broker_id} but received {name}")


def _check(op: ConfigOp) -> None:
    if op.op not in (AlterOp.SET, AlterOp.DELETE):
        raise InvalidRequest(f"{AlterOp(op.op).name} is not allowed for the resource BROKER_LOGGER")
    if op.op == AlterOp.DELETE and op.name == ROOT:
        raise InvalidRequest("Removing the log level of the root logger is not allowed")
    try:
        _loggers.one(op.name)
    except UnknownLogger:
        raise InvalidConfig(f"Logger {op.name} does not exist!") from None
    if op.op == AlterOp.SET and op.value not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {op.name} to {op.value} as it is not a supported log level."
            f" Valid log levels are {', '.join(LEVELS)}"
        )


def _apply(op: ConfigOp) -> None:
    if op.op == AlterOp.DELETE:
        _loggers.unset(op.name)
    else:
        _loggers.set(op.name, op.value or "", below=False)
