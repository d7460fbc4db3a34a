"""Single message transforms and predicates, by the names of Kafka's classes."""

from __future__ import annotations

from penstock.connect.transforms.base import Predicate, Transform, parts
from penstock.connect.transforms.fields import (
    Cast,
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from penstock.connect.transforms.records import (
    DropHeaders,
    ExtractNewRecordState,
    Filter,
    HasHeaderKey,
    HeaderFrom,
    InsertHeader,
    RecordIsTombstone,
    RegexRouter,
    TimestampConverter,
    TimestampRouter,
    TopicNameMatches,
)

__all__ = ["PREDICATES", "TRANSFORMS", "Predicate", "Transform"]

_JAVA = "org.apache.kafka.connect.transforms."
_OF_PARTS = (
    Cast,
    ExtractField,
    Flatten,
    HeaderFrom,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
)
_WHOLE = (DropHeaders, Filter, InsertHeader, RegexRouter, TimestampRouter, ValueToKey)

_SHORT: dict[str, type[Transform]] = {each.__name__: each for each in _WHOLE}
for _part in _OF_PARTS:
    _SHORT |= parts(_part)

TRANSFORMS: dict[str, type[Transform]] = {
    **_SHORT,
    **{_JAVA + name: found for name, found in _SHORT.items()},
    "ExtractNewRecordState": ExtractNewRecordState,
    "io.debezium.transforms.ExtractNewRecordState": ExtractNewRecordState,
}

_PREDICATES = (HasHeaderKey, RecordIsTombstone, TopicNameMatches)
PREDICATES: dict[str, type[Predicate]] = {
    **{each.__name__: each for each in _PREDICATES},
    **{f"{_JAVA}predicates.{each.__name__}": each for each in _PREDICATES},
}
