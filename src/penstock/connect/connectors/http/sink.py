"""Sends records of topics to an HTTP API: one request per record, or per batch of records.

Settings have the names of Confluent's HTTP sink. A request without a response is sent again with the same
idempotency key, so that a server that supports it does nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    DataError,
    Field,
    Importance,
    NonEmpty,
    OneOf,
    Range,
    RetriableError,
    SinkConnector,
    SinkRecord,
    SinkTask,
    parse,
)
from penstock.connect.connectors.http.client import (
    CLIENT,
    Client,
    Response,
    address,
    client_problems,
    headers_of,
)
from penstock.connect.connectors.payloads import filled, payload, placeholder_problem
from penstock.connect.converters.json import JsonConverter

log = logging.getLogger(__name__)

_FIELDS = (
    Field(
        "http.api.url",
        doc="The address; ${topic}, ${key}, ${partition} and ${offset} are those of the record.",
        validator=NonEmpty(),
        importance=Importance.HIGH,
    ),
    Field(
        "request.method", default="POST", doc="POST, PUT or PATCH.", validator=OneOf("POST", "PUT", "PATCH")
    ),
    Field(
        "headers",
        default="",
        doc="Headers of each request: Name:value|Name:value.",
        importance=Importance.HIGH,
    ),
    Field("header.separator", default="|", doc="Between two headers.", validator=NonEmpty()),
    Field(
        "request.body.format",
        default="string",
        doc="string sends text and bytes as they are and other values as JSON; json sends all as JSON.",
        validator=OneOf("string", "json"),
    ),
    Field("batch.max.size", ConfigType.INT, 1, "The most records of one request.", Range(1)),
    Field("batch.prefix", default="", doc="Before the records of a request."),
    Field("batch.suffix", default="", doc="After the records of a request."),
    Field("batch.separator", default=",", doc="Between two records of a request; \\n is a new line."),
    Field(
        "batch.json.as.array", ConfigType.BOOLEAN, False, "Send a JSON array, with request.body.format=json."
    ),
    Field(
        "behavior.on.null.values",
        default="ignore",
        doc="For a record without a value: ignore it, delete (a DELETE request), fail it, or log it.",
        validator=OneOf("ignore", "delete", "fail", "log"),
        importance=Importance.LOW,
    ),
    Field(
        "retry.on.status.codes",
        default="408,425,429,500-",
        doc="Codes and ranges (500-599, 500-) that are tried again; with others the record is bad.",
    ),
    Field("max.retries", ConfigType.INT, 10, "How often such a request is tried again.", Range(0)),
    Field(
        "idempotency.key.header",
        default="Idempotency-Key",
        doc="The header with TOPIC-PARTITION-OFFSET of the first and last record. Empty: none.",
        importance=Importance.LOW,
    ),
    *CLIENT,
)
_JSON = JsonConverter({"schemas.enable": "false"})
_REFUSED = {401, 403, 407}  # errors of the login, not of the record

Place = tuple[str, int, int]


class StatusCodes:
    """`400,429,500-`; ValueError names a part that is not a code or a range."""

    def __init__(self, text: str) -> None:
        self._ranges: list[tuple[int, int]] = []
        for part in filter(None, (each.strip() for each in text.split(","))):
            low, dash, high = part.partition("-")
            if not low.isdigit() or (high and not high.isdigit()):
                raise ValueError(f"{part} is not a status code or a range such as 500-599")
            self._ranges.append((int(low), int(high) if high else 999 if dash else int(low)))

    def __contains__(self, code: int) -> bool:
        return any(low <= code <= high for low, high in self._ranges)


class HttpSinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        self._settings = settings = parse(_FIELDS, config)
        self._client = Client(config)
        self._url: str = settings["http.api.url"]
        self._most: int = settings["batch.max.size"]
        self._json = settings["request.body.format"] == "json"
        self._retried = StatusCodes(settings["retry.on.status.codes"])
        self._headers = headers_of(settings["headers"], settings["header.separator"])
        kind = "application/json" if self._json else "text/plain; charset=utf-8"
        if "content-type" not in {name.lower() for name in self._headers}:
            self._headers["Content-Type"] = kind
        # For a batch that is put again: what is done already, and how often the next request has failed.
        self._done: set[Place] = set()
        self._failures = 0

    def put(self, records: list[SinkRecord]) -> None:
        for url, group in self._requests([each for each in records if _place(each) not in self._done]):
            self._request(url, group)
            self._done |= {_place(each) for each in group}
            self._failures = 0
        self._done.clear()

    def _requests(self, records: list[SinkRecord]) -> Iterator[tuple[str, list[SinkRecord]]]:
        """Consecutive records of one partition with the same URL are sent in one request."""
        group: list[SinkRecord] = []
        group_url = ""
        for record in records:
            try:
                url = filled(self._url, record, lambda text: quote(text, safe=""))
                if record.value is None and not self._wants_null(record):
                    continue
            except DataError as error:
                if group:
                    yield group_url, group
                    group = []
                self.report(record, error)
                self._done.add(_place(record))
                continue
            if group and not self._fits(group, group_url, record, url):
                yield group_url, group
                group = []
            group_url = url
            group.append(record)
        if group:
            yield group_url, group

    def _fits(self, group: list[SinkRecord], group_url: str, record: SinkRecord, url: str) -> bool:
        last = group[-1]
        return (
            len(group) < self._most
            and url == group_url
            and _place(last)[:2] == _place(record)[:2]
            and record.value is not None
            and last.value is not None
        )

    def _wants_null(self, record: SinkRecord) -> bool:
        how = self._settings["behavior.on.null.values"]
        if how == "fail":
            raise DataError("The record has no value (behavior.on.null.values=fail)")
        if how == "log":
            log.warning("%s-%d-%d has no value and is not sent", *_place(record))
        return bool(how == "delete")

    def _request(self, url: str, group: list[SinkRecord]) -> None:
        headers = dict(self._headers)
        name = self._settings["idempotency.key.header"]
        if name:
            headers[name] = _key(group)
        if group[0].value is None:
            method, body = "DELETE", None
        else:
            method = self._settings["request.method"]
            try:
                body = self._body(group)
            except DataError as error:
                return self._refuse(url, group, error)
        response = self._client.request(method, url, headers, body)
        if response.status < 300:
            return None
        return self._answered(url, group, response)

    def _answered(self, url: str, group: list[SinkRecord], response: Response) -> None:
        problem = f"{address(url)}: status {response.status} {response.start}".rstrip()
        if response.status < 400 or response.status in _REFUSED:
            why = (
                "a redirect is not followed: set the address it leads to"
                if response.status < 400
                else "login"
            )
            raise ConnectError(f"{problem} ({why})")
        if response.status in self._retried:
            self._failures += 1
            if self._failures <= self._settings["max.retries"]:
                raise RetriableError(f"{problem}; attempt {self._failures}")
            self._failures = 0
        self._refuse(url, group, DataError(problem))

    def _refuse(self, url: str, group: list[SinkRecord], error: DataError) -> None:
        """After a batch is rejected, each of its records is sent alone, so that only the bad ones are
        reported.
        """
        if len(group) == 1:
            self.report(group[0], error)
            return
        for record in group:
            if _place(record) not in self._done:
                self._request(url, [record])
                self._done.add(_place(record))

    def _body(self, group: list[SinkRecord]) -> bytes:
        settings = self._settings
        parts = [self._part(record) for record in group]
        if settings["batch.json.as.array"]:
            return b"[" + b",".join(parts) + b"]"
        if self._most == 1:
            return parts[0]
        prefix, separator, suffix = (
            settings[name].replace("\\n", "\n").encode()
            for name in ("batch.prefix", "batch.separator", "batch.suffix")
        )
        return bytes(prefix + separator.join(parts) + suffix)

    def _part(self, record: SinkRecord) -> bytes:
        if not self._json:
            return payload(record.value_schema, record.value)
        return _JSON.to_bytes("", record.value_schema, record.value) or b"null"

    def stop(self) -> None:
        self._client.close()


def _place(record: SinkRecord) -> Place:
    return record.original_topic, record.original_partition, record.original_offset


def _key(group: list[SinkRecord]) -> str:
    topic, partition, first = _place(group[0])
    last = group[-1].original_offset
    return f"{topic}-{partition}-{first}" if first == last else f"{topic}-{partition}-{first}-{last}"


class HttpSink(SinkConnector):
    """Requests to an HTTP API."""

    task_class = HttpSinkTask
    aliases = ("io.confluent.connect.http.HttpSinkConnector",)
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings: dict[str, Any] = parse(cls.fields, config)
        problem = placeholder_problem("http.api.url", settings["http.api.url"])
        if problem:
            return {"http.api.url": problem}
        for name, check in (
            ("headers", lambda value: headers_of(value, settings["header.separator"])),
            ("retry.on.status.codes", StatusCodes),
        ):
            try:
                check(settings[name])
            except ValueError as error:
                return {name: [f"Invalid value for configuration {name}: {error}"]}
        if settings["batch.json.as.array"] and settings["request.body.format"] != "json":
            return {"batch.json.as.array": ["batch.json.as.array needs request.body.format=json"]}
        return client_problems(settings, "http.api.url")

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self.config) for _ in range(max_tasks)]
