"""The schemas of all messages and versions, derived from kio's dataclasses, with Kafka's own names.

kio is generated from Kafka's message definitions and represents times as timedelta and datetime; here they
are the numbers on the wire. One rule restores Kafka's names: a field whose kio type is a timedelta or
datetime gets its `_ms` suffix back (`throttle_time` -> `throttle_time_ms`), and an underscore that kio
appends to a Python keyword or builtin is removed (`id_` -> `id`). There are no exceptions; defaults that kio
cannot express are in NULL_BY_DEFAULT.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import sys
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin

from penstock.errors import UnsupportedVersion
from penstock.wire.api_keys import ApiKey
from penstock.wire.primitives import ZERO_UUID

# struct letter of each fixed-width kafka_type of kio
FIXED = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
LETTER_SIZE = {"b": 1, "h": 2, "i": 4, "q": 8, "H": 2, "I": 4, "d": 8, "?": 1}

# Arrays of structs whose default is null in Kafka's definitions; kio has no default for such fields.
NULL_BY_DEFAULT = {
    ("list_partition_reassignments", "topics"),
    ("consumer_group_heartbeat", "topic_partitions"),
    ("streams_group_heartbeat", "active_tasks"),
    ("streams_group_heartbeat", "standby_tasks"),
    ("streams_group_heartbeat", "warmup_tasks"),
    ("streams_group_heartbeat", "client_tags"),
    ("streams_group_heartbeat", "task_offsets"),
    ("streams_group_heartbeat", "task_end_offsets"),
    ("streams_group_heartbeat", "status"),
    ("streams_group_heartbeat", "partitions_by_user_endpoint"),
    ("streams_group_describe", "subtopologies"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """`type` is a struct letter ("i"), "string", "bytes", "uuid" or "struct"; `default` is None, a
    number, a string, bytes or a UUID; arrays default to empty (or None), structs to their fields'."""

    name: str
    type: str
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any
    struct: Struct | None


@dataclasses.dataclass(frozen=True, slots=True)
class Struct:
    name: str
    flexible: bool
    fields: tuple[Field, ...]

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


FieldNames = Mapping[str, frozenset[str]]
"""The names of a struct's fields by its path in the message: "ListOffsetsResponse.topics.partitions"."""


def message_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name.lower()
    except ValueError:
        raise UnsupportedVersion(f"API key {api_key} is not known") from None


@cache
def _load_kio() -> None:
    """Import the base modules of kio without hypothesis: kio would load it for its own tests if it is
    installed, which costs 20 MiB and a third of a second."""
    hidden = "hypothesis" not in sys.modules
    if hidden:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("kio.static.primitive")
    finally:
        if hidden:
            del sys.modules["hypothesis"]


@cache
def versions(name: str) -> range:
    """The versions of a message that have a schema; empty for an unknown message."""
    _load_kio()
    try:
        package = importlib.import_module(f"kio.schema.{name}")
    except ModuleNotFoundError:
        return range(0)
    found = [int(module.name[1:]) for module in pkgutil.iter_modules(package.__path__)]
    return range(min(found), max(found) + 1)


def load(name: str, version: int, kind: str) -> Struct:
    """The schema of `kind` ("request", "response" or "data") of the message `name`."""
    if version not in versions(name):
        raise UnsupportedVersion(f"version {version} of {name} is not known")
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    for item in vars(module).values():
        if isinstance(item, type) and getattr(getattr(item, "__type__", None), "name", None) == kind:
            return _struct(item, name)
    raise LookupError(f"kio has no {kind} in version {version} of {name}")


@cache
def field_names(name: str, kind: str) -> FieldNames:
    """The field names of a message and of its structs, of all versions together."""
    names: dict[str, set[str]] = {}
    for version in versions(name):
        known = load(name, version, kind)
        _add_names(names, known, known.name)
    return {path: frozenset(found) for path, found in names.items()}


def _add_names(names: dict[str, set[str]], struct: Struct, path: str) -> None:
    names.setdefault(path, set()).update(field.name for field in struct.fields)
    for field in struct.fields:
        if field.struct is not None:
            _add_names(names, field.struct, f"{path}.{field.name}")


def _struct(entity: Any, message: str) -> Struct:
    fields = tuple(_field(field, message) for field in dataclasses.fields(entity))
    return Struct(entity.__name__, bool(entity.__flexible__), fields)


def _field(field: dataclasses.Field[Any], message: str) -> Field:
    inner, nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_none(get_args(inner)[0])
    kafka_type = field.metadata.get("kafka_type")
    struct = None
    if kafka_type is None:
        kind, struct = "struct", _struct(inner, message)
    elif kafka_type == "records":
        kind = "bytes"
    else:
        kind = FIXED.get(kafka_type, kafka_type)
    if not is_array and (kind == "uuid" or kind in LETTER_SIZE):
        nullable = False  # None in kio stands for the zero UUID or the time -1
    name = field.name.rstrip("_")
    if kafka_type is not None and kafka_type.startswith(("timedelta", "datetime")):
        name += "_ms"
    if (message, name) in NULL_BY_DEFAULT:
        default = None
    else:
        default = _default(field.default, kind, is_array)
    return Field(name, kind, is_array, nullable, field.metadata.get("tag"), default, struct)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    options = get_args(annotation)
    if get_origin(annotation) is tuple or NoneType not in options:
        return annotation, False
    (inner,) = (option for option in options if option is not NoneType)
    return inner, True


_IMPLICIT: dict[str, Any] = {"string": "", "bytes": b"", "uuid": ZERO_UUID, "?": False, "d": 0.0}


def _default(given: Any, kind: str, is_array: bool) -> Any:
    if is_array:
        return None if given is None else ()
    if kind == "struct":
        return None if given is None else ()  # () means a struct with the defaults of its fields
    if given is dataclasses.MISSING:
        return _IMPLICIT.get(kind, 0)
    if given is None:
        return {"uuid": ZERO_UUID, "q": -1}.get(kind)
    if isinstance(given, timedelta):
        return given // timedelta(milliseconds=1)
    if kind == "string":
        return str(given)
    if kind == "bytes" or kind == "uuid":
        return given
    if kind == "?":
        return bool(given)
    return float(given) if kind == "d" else int(given)
