"""Polls a JSON API: its items become the records of a topic.

Settings have the names of Confluent's HTTP source. The position to continue from is kept in Kafka, as the
offset of the last item; an offset is written after the records before it, so that no item is skipped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    Field,
    Importance,
    NonEmpty,
    OffsetsReader,
    OneOf,
    Range,
    RetriableError,
    SourceConnector,
    SourceRecord,
    SourceTask,
    parse,
)
from penstock.connect.connectors.http.client import (
    CLIENT,
    Client,
    address,
    client_problems,
    headers_of,
    json_of,
    pointed,
)
from penstock.connect.connectors.payloads import placeholders

_MODES = ("SIMPLE_INCREMENTING", "CHAINING", "CURSOR_PAGINATION")
_FIELDS = (
    Field(
        "url",
        doc="The address; ${offset} is replaced by the offset.",
        validator=NonEmpty(),
        importance=Importance.HIGH,
    ),
    Field(
        "topic.name.pattern",
        doc="The topic of the records.",
        validator=NonEmpty(),
        importance=Importance.HIGH,
    ),
    Field("http.request.method", default="GET", doc="GET or POST.", validator=OneOf("GET", "POST")),
    Field("http.request.headers", default="", doc="Headers of each request: Name:value|Name:value."),
    Field("http.request.headers.separator", default="|", doc="Between two headers.", validator=NonEmpty()),
    Field("http.request.parameters", default="", doc="The query, such as since=${offset}&limit=100."),
    Field("http.request.body", default="", doc="The body of a POST; ${offset} is replaced by the offset."),
    Field(
        "http.offset.mode",
        default="SIMPLE_INCREMENTING",
        doc="What an offset is: SIMPLE_INCREMENTING counts items, CHAINING is a part of the last item, and "
        "CURSOR_PAGINATION a part of the response.",
        validator=OneOf(*_MODES),
        importance=Importance.HIGH,
    ),
    Field(
        "http.initial.offset", default="", doc="The offset of the first request.", importance=Importance.HIGH
    ),
    Field(
        "http.response.data.json.pointer",
        default="",
        doc="Where in the response the items are (/data/items); default: the response itself.",
        importance=Importance.HIGH,
    ),
    Field("http.offset.json.pointer", default="", doc="Where in an item its offset is, for CHAINING (/id)."),
    Field(
        "http.next.page.json.pointer",
        default="",
        doc="Where in the response the next offset is, for CURSOR_PAGINATION (/next).",
    ),
    Field("request.interval.ms", ConfigType.LONG, 15_000, "How long to wait between two requests.", Range(0)),
    *CLIENT,
)
_WAIT_SECONDS = 0.5
_PASSING = {408, 425, 429}


class HttpSourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        self._settings = settings = parse(_FIELDS, config)
        self._client = Client(config)
        self._headers = headers_of(
            settings["http.request.headers"], settings["http.request.headers.separator"]
        )
        self._mode: str = settings["http.offset.mode"]
        self._pointer: str = settings["http.response.data.json.pointer"]
        self._topic: str = settings["topic.name.pattern"]
        self._partition = {"url": address(settings["url"])}
        found = offsets_reader.offset(self._partition) or {}
        self._initial = _initial(settings)
        self._offset: Any = found.get("offset", self._initial)
        self._due = 0.0

    def poll(self) -> list[SourceRecord]:
        left = self._due - time.monotonic()
        if left > 0:
            time.sleep(min(left, _WAIT_SECONDS))
            return []
        answer = self._ask()
        self._due = time.monotonic() + self._settings["request.interval.ms"] / 1000
        items = self._items(answer)
        offsets, following = self._offsets(answer, items)
        records = [
            SourceRecord(
                self._topic, item, source_partition=self._partition, source_offset={"offset": offset}
            )
            for item, offset in zip(items, offsets)
        ]
        self._offset = following
        return records

    def _ask(self) -> Any:
        settings = self._settings
        url = self._filled(settings["url"])
        if settings["http.request.parameters"]:
            url += ("&" if "?" in url else "?") + self._filled(settings["http.request.parameters"])
        body = settings["http.request.body"].replace("${offset}", str(self._offset)).encode() or None
        response = self._client.request(settings["http.request.method"], url, self._headers, body)
        if response.status == 204:
            return []
        if response.status >= 300:
            problem = f"{address(url)}: status {response.status} {response.start}".rstrip()
            passing = response.status >= 500 or response.status in _PASSING
            raise (RetriableError if passing else ConnectError)(problem)
        return json_of(response, url)

    def _filled(self, template: str) -> str:
        return template.replace("${offset}", quote(str(self._offset), safe=""))

    def _items(self, answer: Any) -> list[Any]:
        try:
            found = pointed(answer, self._pointer)
        except KeyError:
            if not answer:
                return []
            raise ConnectError(
                f"{self._partition['url']}: the response has no {self._pointer} "
                "(http.response.data.json.pointer)"
            ) from None
        if found is None:
            return []
        return found if isinstance(found, list) else [found]

    def _offsets(self, answer: Any, items: list[Any]) -> tuple[Sequence[Any], Any]:
        """The offset of each item, from which the next start continues, and that of the next request."""
        if self._mode == "SIMPLE_INCREMENTING":
            first = self._offset + 1
            return range(first, first + len(items)), self._offset + len(items)
        if self._mode == "CHAINING":
            found = [self._chained(item) for item in items]
            return found, found[-1] if found else self._offset
        try:
            following = pointed(answer, self._settings["http.next.page.json.pointer"])
        except KeyError:
            following = None
        if following is None or following == "":
            following = self._initial  # after the last page comes the first one
        # Until all of a page is in Kafka, a restart requests it again.
        return [self._offset] * (len(items) - 1) + [following] * bool(items), following

    def _chained(self, item: Any) -> Any:
        pointer = self._settings["http.offset.json.pointer"]
        try:
            found = pointed(item, pointer)
        except KeyError:
            found = None
        if found is None or isinstance(found, (dict, list)):
            raise ConnectError(
                f"{self._partition['url']}: an item has no {pointer} (http.offset.json.pointer): "
                f"{str(item)[:200]}"
            )
        return found

    def stop(self) -> None:
        self._client.close()


def _initial(settings: Mapping[str, Any]) -> Any:
    given = settings["http.initial.offset"]
    return int(given or 0) if settings["http.offset.mode"] == "SIMPLE_INCREMENTING" else given


class HttpSource(SourceConnector):
    """Items of a JSON API. One task: each request depends on the previous response."""

    task_class = HttpSourceTask
    aliases = ("io.confluent.connect.http.HttpSourceConnector",)
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings = parse(cls.fields, config)
        for name in ("url", "http.request.parameters", "http.request.body"):
            unknown = placeholders(settings[name]) - {"offset"}
            if unknown:
                return {name: [f"Configuration {name}: ${{{min(unknown)}}} is unknown; use ${{offset}}"]}
        mode = settings["http.offset.mode"]
        for needed, name in (
            ("CHAINING", "http.offset.json.pointer"),
            ("CURSOR_PAGINATION", "http.next.page.json.pointer"),
        ):
            if mode == needed and not settings[name]:
                return {name: [f"http.offset.mode={mode} needs {name}"]}
        for name in (
            "http.response.data.json.pointer",
            "http.offset.json.pointer",
            "http.next.page.json.pointer",
        ):
            if settings[name] and not settings[name].startswith("/"):
                return {
                    name: [f"Invalid value {settings[name]} for configuration {name}: it must begin with /"]
                }
        if mode == "SIMPLE_INCREMENTING" and not (settings["http.initial.offset"] or "0").isdigit():
            return {"http.initial.offset": [f"http.offset.mode={mode} needs a number as http.initial.offset"]}
        try:
            headers_of(settings["http.request.headers"], settings["http.request.headers.separator"])
        except ValueError as error:
            return {
                "http.request.headers": [f"Invalid value for configuration http.request.headers: {error}"]
            }
        return client_problems(settings, "url")
