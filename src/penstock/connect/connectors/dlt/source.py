"""Reads the items of a dlt resource as records, in repeated runs.

A run reads all items of the resource. Its state (with the cursor of `dlt.sources.incremental`) is the source
offset, and is valid only after the run, because a resource need not yield in the order of its cursor: an
interrupted run is repeated, so delivery is at least once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    Field,
    Importance,
    OffsetsReader,
    Range,
    SourceBatch,
    SourceConnector,
    SourceRecord,
    SourceTask,
    parse,
)
from penstock.connect.connectors.dlt.library import arguments, load_dlt, referenced, translated

_WAIT_SECONDS = 0.5
_MOST_STATE = 900_000
"""In characters: an offset is one record of the offsets topic."""

_FIELDS = (
    Field(
        "resource",
        doc="The resource as module:name: a function with @dlt.resource, or one that returns a resource.",
        importance=Importance.HIGH,
    ),
    Field("arguments", default="{}", doc="The named arguments of the function, as a JSON object."),
    Field("topic", doc="The topic for the items.", importance=Importance.HIGH),
    Field(
        "key.fields",
        ConfigType.LIST,
        (),
        "The fields of the record's key; by default those of the resource's primary key.",
    ),
    Field("poll.interval.ms", ConfigType.LONG, 60_000, "The pause between two runs.", Range(0)),
    Field("batch.size", ConfigType.INT, 1000, "The most items of one poll.", Range(1), Importance.LOW),
)


class DltSourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        load_dlt()
        settings = parse(_FIELDS, config)
        self._reference: str = settings["resource"]
        self._function: Callable[..., Any] = referenced(self._reference)
        self._arguments = arguments(settings["arguments"])
        self._topic: str = settings["topic"]
        self._key: tuple[str, ...] = tuple(settings["key.fields"])
        self._pause: float = settings["poll.interval.ms"] / 1000
        self._size: int = settings["batch.size"]
        self._partition = {"resource": self._reference}
        self._offset: dict[str, Any] = dict(offsets_reader.offset(self._partition) or {})
        self._items: Iterator[Any] | None = None
        self._state: dict[str, Any] = {}
        self._held: list[Any] = []
        """The records of this run; the last ones have its state as their offset."""
        self._due = 0.0

    def poll(self) -> list[SourceRecord] | SourceBatch:
        if self._items is None:
            left = self._due - time.monotonic()
            if left > 0:
                time.sleep(min(left, _WAIT_SECONDS))
                return []
        try:
            if self._items is None:
                self._items = self._run()
            found = [self._plain(each) for each in islice(self._items, self._size)]
        except Exception as error:
            self._end_run()
            raise translated(f"the resource {self._reference} failed", error) from error
        held, self._held = self._held, found
        if not found:
            offset = self._state_text()
            self._end_run()
            if held:
                self._offset = {"state": offset}
        return self._batch(held) if held else []

    def _run(self) -> Iterator[Any]:
        """A resource is created for each run: a generator runs only once."""
        from dlt.common import json
        from dlt.common.configuration.container import Container
        from dlt.common.pipeline import StateInjectableContext
        from dlt.extract.resource import DltResource

        made = self._function
        if not isinstance(made, DltResource) or self._arguments:
            made = made(**self._arguments)
        if not isinstance(made, DltResource):
            raise ConnectError(f"{self._reference} returns {type(made).__name__}, not a dlt resource")
        columns = made.compute_table_schema().get("columns") or {}
        self._keys = self._key or tuple(name for name, each in columns.items() if each.get("primary_key"))
        text = self._offset.get("state")
        self._state = {} if text is None else json.typed_loads(text)
        with Container().injectable_context(StateInjectableContext(state=self._state)):
            items = iter(made)
        return _rows(items)

    def _state_text(self) -> str:
        from dlt.common import json

        text: str = json.typed_dumps(self._state)
        if len(text) > _MOST_STATE:
            raise ConnectError(
                f"the state of {self._reference} has {len(text)} characters, of {_MOST_STATE} that an offset "
                "may have: keep less in dlt.current.resource_state()"
            )
        return text

    def _end_run(self) -> None:
        self._items, self._held = None, []
        self._due = time.monotonic() + self._pause

    def _plain(self, item: Any) -> Any:
        """As in JSON: dlt writes times, decimals and similar types as text."""
        from dlt.common import json

        return json.loads(json.dumps(item))

    def _batch(self, values: list[Any]) -> SourceBatch:
        keys = [self._key_of(value) for value in values] if self._keys else None
        return SourceBatch(
            self._topic,
            values,
            keys=keys,
            source_partition=self._partition,
            source_offset=self._offset,
        )

    def _key_of(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return None
        if len(self._keys) == 1:
            return value.get(self._keys[0])
        return {name: value.get(name) for name in self._keys}


def _rows(items: Iterator[Any]) -> Iterator[Any]:
    """The rows, also of Arrow tables and data frames."""
    for item in items:
        if hasattr(item, "to_batches"):
            for batch in item.to_batches(1000):
                yield from batch.to_pylist()
        elif hasattr(item, "to_pylist"):
            yield from item.to_pylist()
        elif hasattr(item, "iloc"):
            yield from item.to_dict("records")
        else:
            yield item


class DltSource(SourceConnector):
    """The items of a dlt resource, read in repeated runs."""

    task_class = DltSourceTask
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        found = {}
        for name, check in (("resource", referenced), ("arguments", arguments)):
            try:
                check(config.get(name) or "")
            except ConnectError as error:
                if name in config:
                    found[name] = [f"Invalid value {config[name]} for configuration {name}: {error}"]
        return found
