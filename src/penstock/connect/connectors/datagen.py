"""Datagen: generated records at a given rate, from an Avro schema or one of the built-in ones.

Like Confluent's connector of that name: values are generated for the type of a field, or as `arg.properties`
says (`options`, `range` with min and max, `iteration` with start and step; and `kind`, for values as in
`datagen_values`). A record depends only on the seed and its number, so that a restarted task continues with
the same records.
"""

from __future__ import annotations

import json
import random
import string
import time
from collections.abc import Mapping
from typing import Any

from penstock.connect.api import (
    ConfigType,
    Field,
    Importance,
    OffsetsReader,
    OneOf,
    Range,
    SourceConnector,
    SourceRecord,
    SourceTask,
)
from penstock.connect.connectors.datagen_values import KINDS, Facts
from penstock.connect.converters.avro_data import schema_of
from penstock.connect.errors import DataError

_MOST_BATCH = 2000


def _field(name: str, avro: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "type": {"type": avro, "arg.properties": properties}}


QUICKSTARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "users": ("userid", {"type": "record", "name": "users", "namespace": "penstock", "fields": [
        _field("registertime", "long", range={"min": 1487715775521, "max": 1519273364600}),
        _field("userid", "string", options=[f"User_{number}" for number in range(1, 10)]),
        _field("regionid", "string", options=[f"Region_{number}" for number in range(1, 10)]),
        _field("gender", "string", options=["MALE", "FEMALE", "OTHER"]),
    ]}),
    "pageviews": ("viewtime", {"type": "record", "name": "pageviews", "namespace": "penstock", "fields": [
        _field("viewtime", "long", iteration={"start": 1, "step": 10}),
        _field("userid", "string", options=[f"User_{number}" for number in range(1, 10)]),
        _field("pageid", "string", options=[f"Page_{number}" for number in range(10, 100)]),
    ]}),
    "orders": ("orderid", {"type": "record", "name": "orders", "namespace": "penstock", "fields": [
        _field("ordertime", "long", range={"min": 1487715775521, "max": 1519273364600}),
        _field("orderid", "int", iteration={"start": 0, "step": 1}),
        _field("itemid", "string", options=[f"Item_{number}" for number in range(1, 1000)]),
        _field("orderunits", "double", range={"min": 0.1, "max": 10.0}),
        {"name": "address", "type": {"type": "record", "name": "address", "fields": [
            _field("city", "string", options=[f"City_{number}" for number in range(1, 100)]),
            _field("state", "string", options=[f"State_{number}" for number in range(1, 100)]),
            _field("zipcode", "long", range={"min": 10000, "max": 99999}),
        ]}},
    ]}),
    "customers": ("id", {"type": "record", "name": "customers", "namespace": "penstock", "fields": [
        _field("id", "int", iteration={"start": 1, "step": 1}),
        _field("name", "string", kind="name"),
        _field("email", "string", kind="email"),
        _field("phone", "string", kind="phone"),
        {"name": "address", "type": {"type": "record", "name": "customer_address", "fields": [
            _field("street", "string", kind="street"),
            _field("postcode", "string", kind="postcode"),
            _field("city", "string", kind="city"),
            _field("country", "string", kind="country_code"),
        ]}},
    ]}),
    "purchases": ("id", {"type": "record", "name": "purchases", "namespace": "penstock", "fields": [
        _field("id", "int", iteration={"start": 1, "step": 1}),
        _field("customer_id", "int", range={"min": 1, "max": 1000}),
        _field("product", "string", kind="product"),
        _field("category", "string", kind="category"),
        _field("price", "double", kind="price"),
        _field("quantity", "int", range={"min": 1, "max": 6}),
        _field("seller", "string", kind="company"),
        _field("country", "string", kind="country_code"),
    ]}),
}  # fmt: skip


def make(avro: Any, number: int, chance: random.Random, facts: Facts | None = None) -> Any:
    """A value of the schema. Raises DataError for a type that cannot be generated."""
    facts = facts or Facts(chance)
    if isinstance(avro, list):
        return make(chance.choice(avro), number, chance, facts)
    if isinstance(avro, dict):
        given = avro.get("arg.properties") or {}
        if "kind" in given:
            return _of_kind(avro["type"], given, facts)
        if "options" in given:
            return chance.choice(given["options"])
        if "iteration" in given:
            return int(given["iteration"].get("start", 0)) + number * int(given["iteration"].get("step", 1))
        kind = avro["type"]
        if isinstance(kind, (dict, list)):
            return make(kind, number, chance, facts)
        if kind == "record":
            return {each["name"]: make(each["type"], number, chance, facts) for each in avro["fields"]}
        if kind == "enum":
            return chance.choice(avro["symbols"])
        if kind == "array":
            return [make(avro["items"], number, chance, facts) for _ in range(int(given.get("length", 3)))]
        if kind == "map":
            length = int(given.get("length", 3))
            return {f"key_{each}": make(avro["values"], number, chance, facts) for each in range(length)}
        if kind == "fixed":
            return chance.randbytes(int(avro["size"]))
        return _primitive(kind, given, chance)
    return _primitive(avro, {}, chance)


def _of_kind(avro: Any, given: Mapping[str, Any], facts: Facts) -> Any:
    kind = given["kind"]
    if kind not in KINDS:
        raise DataError(f"Datagen has no values of kind {kind}: use one of {', '.join(KINDS)}")
    value = facts.value(kind, str(given.get("of", "")))
    wanted = ("float", "double") if isinstance(value, float) else ("string",)
    if avro not in wanted:
        raise DataError(f"values of kind {kind} are of type {wanted[-1]}, not {avro}")
    return value


def _primitive(kind: str, given: Mapping[str, Any], chance: random.Random) -> Any:
    between = given.get("range") or {}
    match kind:
        case "null":
            return None
        case "boolean":
            return chance.random() < 0.5
        case "int" | "long":
            return chance.randint(int(between.get("min", 0)), int(between.get("max", 1 << 31)) - 1)
        case "float" | "double":
            return chance.uniform(float(between.get("min", 0.0)), float(between.get("max", 1.0)))
        case "string":
            return "".join(chance.choices(string.ascii_lowercase, k=int(given.get("length", 10))))
        case "bytes":
            return chance.randbytes(int(given.get("length", 10)))
    raise DataError(f"Datagen cannot make values of type {kind}: define a named type where it is used")


class DatagenTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        self._topic = config["kafka.topic"]
        key, self._avro = _chosen(config)
        self._key = config.get("schema.keyfield") or key
        self._schema = schema_of(self._avro)
        self._task = int(config["task.number"])
        self._seed = int(config.get("random.seed") or 0)
        self._most = int(config.get("iterations") or -1)
        rate = float(config.get("rate") or 0) / int(config["task.count"])
        self._pause = 1 / rate if rate else int(config.get("max.interval") or 500) / 1000
        self._partition = {"task.id": self._task}
        found = offsets_reader.offset(self._partition) or {}
        self._number = int(found.get("count", 0))
        self._due = time.monotonic()

    def poll(self) -> list[SourceRecord]:
        now = time.monotonic()
        if now < self._due:
            time.sleep(min(0.5, self._due - now))
            now = time.monotonic()
        count = min(_MOST_BATCH, int((now - self._due) / self._pause) + 1 if now >= self._due else 0)
        if self._most >= 0:
            count = min(count, self._most - self._number)
        if count <= 0:
            time.sleep(0.1 if self._most >= 0 else 0)
            return []
        self._due += count * self._pause
        return [self._record() for _ in range(count)]

    def _record(self) -> SourceRecord:
        chance = random.Random((self._seed << 80) + (self._task << 64) + self._number)
        value = make(self._avro, self._number, chance)
        self._number += 1
        key = value.get(self._key) if self._key and isinstance(value, dict) else None
        return SourceRecord(
            self._topic,
            value,
            key,
            self._schema,
            self._schema.field(self._key) if key is not None else None,
            source_partition=self._partition,
            source_offset={"count": self._number},
        )


def _chosen(config: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    text = config.get("schema.string")
    if text:
        avro: dict[str, Any] = json.loads(text)
        return "", avro
    return QUICKSTARTS[config.get("quickstart") or "users"]


class Datagen(SourceConnector):
    """Generated records at a given rate."""

    aliases = ("io.confluent.kafka.connect.datagen.DatagenConnector",)
    task_class = DatagenTask
    exactly_once = True
    fields = (
        Field("kafka.topic", doc="The topic for the records.", importance=Importance.HIGH),
        Field("quickstart", ConfigType.STRING, None, "A ready schema.", OneOf(*QUICKSTARTS), Importance.HIGH),
        Field(
            "schema.string", ConfigType.STRING, None, "An Avro schema, as JSON.", importance=Importance.HIGH
        ),
        Field("schema.keyfield", default="", doc="The field that is the key."),
        Field(
            "rate", ConfigType.DOUBLE, None, "Records a second, of all tasks.", Range(0.001), Importance.HIGH
        ),
        Field("max.interval", ConfigType.LONG, 500, "Milliseconds between records, without rate.", Range(1)),
        Field("iterations", ConfigType.LONG, -1, "How many records each task makes; -1 for no end."),
        Field("random.seed", ConfigType.LONG, 0, "Another seed makes other records."),
    )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        text = config.get("schema.string")
        if not text:
            return {}
        try:
            avro = json.loads(text)
            schema_of(avro)
            make(avro, 0, random.Random(0))
        except (ValueError, KeyError, TypeError, DataError) as error:
            return {"schema.string": [f"Invalid value for configuration schema.string: {error}"]}
        return {}

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [
            {**self.config, "task.number": str(number), "task.count": str(max_tasks)}
            for number in range(max_tasks)
        ]
