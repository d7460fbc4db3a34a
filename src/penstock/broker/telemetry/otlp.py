"""Reads OpenTelemetry's MetricsData, the payload of a push, from Protobuf bytes. Pure.

It reads what Kafka's clients send: gauges and sums, with labels that are text, numbers or booleans.
Metrics of other kinds are counted in `skipped`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import InvalidRecord

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GAUGE, _SUM = 5, 7


@dataclass(frozen=True, slots=True)
class Point:
    """A data point of a metric."""

    name: str
    labels: dict[str, Any]
    value: float | int
    kind: str
    unit: str
    time_ms: int


@dataclass(slots=True)
class Metrics:
    resource: dict[str, Any] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    skipped: int = 0


def read_metrics(data: bytes) -> Metrics:
    """Raises InvalidRecord if this is not MetricsData."""
    found = Metrics()
    try:
        for number, resource_metrics in _messages(data):
            if number == 1:
                _resource_metrics(found, resource_metrics)
    except (IndexError, ValueError, struct.error) as error:
        raise InvalidRecord(f"The pushed metrics are not OpenTelemetry's MetricsData: {error}") from None
    return found


def _resource_metrics(found: Metrics, data: bytes) -> None:
    for number, part in _messages(data):
        if number == 1:
            found.resource.update(_attribute(one) for field_, one in _messages(part) if field_ == 1)
        elif number == 2:
            for field_, metric in _messages(part):
                if field_ == 2:
                    _metric(found, metric)


def _metric(found: Metrics, data: bytes) -> None:
    name = unit = ""
    series: list[tuple[str, bytes]] = []
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 3:
            unit = _text(value)
        elif number == _GAUGE:
            series.append(("gauge", _bytes(value)))
        elif number == _SUM:
            series.append(("sum", _bytes(value)))
        elif number in (9, 10, 11):
            found.skipped += 1
    for kind, part in series:
        for number, point in _messages(part):
            if number == 1:
                found.points.append(_point(name, unit, kind, point))


def _point(name: str, unit: str, kind: str, data: bytes) -> Point:
    labels: dict[str, Any] = {}
    value: float | int = 0
    time_ns = 0
    for number, item in _fields(data):
        if number == 7:
            key, text = _attribute(_bytes(item))
            labels[key] = text
        elif number == 3:
            (time_ns,) = struct.unpack("<Q", _bytes(item))
        elif number == 4:
            (value,) = struct.unpack("<d", _bytes(item))
        elif number == 6:
            (value,) = struct.unpack("<q", _bytes(item))
    return Point(name, labels, value, kind, unit, time_ns // 1_000_000)


def _attribute(data: bytes) -> tuple[str, Any]:
    key, value = "", None
    for number, item in _fields(data):
        if number == 1:
            key = _text(item)
        elif number == 2:
            value = _any_value(_bytes(item))
    return key, value


def _any_value(data: bytes) -> Any:
    for number, item in _fields(data):
        if number == 1:
            return _text(item)
        if number == 2:
            return bool(item)
        if number == 3 and isinstance(item, int):
            return item - (1 << 64) if item >= 1 << 63 else item
        if number == 4:
            return struct.unpack("<d", _bytes(item))[0]
    return None


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that are themselves messages or text."""
    for number, value in _fields(data):
        if isinstance(value, bytes):
            yield number, value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field number and value: an int for a varint, else bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(data, position)
        elif wire_type == _FIXED64:
            size = 8
        elif wire_type == _FIXED32:
            size = 4
        else:
            raise ValueError(f"wire type {wire_type} at byte {position}")
        if position + size > end:
            raise ValueError(f"field {number} ends after its message")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 64, 7):
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
    raise ValueError(f"a number of more than 64 bits at byte {position}")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes were expected")
    return value


def _text(value: int | bytes) -> str:
    return _bytes(value).decode()
