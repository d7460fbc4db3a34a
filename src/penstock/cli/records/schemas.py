"""Keys and values with a schema registry, for `produce` and `consume`: options, encoding, decoding."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import click

from penstock.admin.reader import IncomingRecord
from penstock.admin.records.encoding import encoded, latest_schema
from penstock.admin.records.outgoing import JsonText, OutgoingRecord
from penstock.cli.failure import CommandFailed
from penstock.cli.output import note
from penstock.cli.schemas.files import read_schema, references_of
from penstock.cli.schemas.reasons import incompatible
from penstock.cli.schemas.registry_options import RegistryAt, registry_options_of_clients

if TYPE_CHECKING:
    from penstock.registry.client import RegisteredSchema, RegistryClient
    from penstock.registry.serdes import Decoder, Encoder

SCHEMA_FORMATS = ("avro", "json-schema", "protobuf")
PARTS: tuple[Literal["key", "value"], ...] = ("key", "value")
_FILE = click.Path(exists=True, dir_okay=False)


@dataclass(frozen=True, slots=True)
class PartSchema:
    """What the options say of the key or of the value; `form` is None for bytes as they are."""

    part: Literal["key", "value"]
    form: str | None
    subject: str | None
    file: str | None = None
    schema_id: int | None = None
    message: str | None = None
    references: tuple[str, ...] = ()

    def subject_of(self, topic: str) -> str:
        return self.subject or f"{topic}-{self.part}"


def read_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command gets `parts`, two PartSchema, and `registry`."""

    @functools.wraps(command)
    def with_parts(*args: Any, **kwargs: Any) -> None:
        parts = [
            PartSchema(part, kwargs.pop(f"{part}_format"), kwargs.pop(f"{part}_subject")) for part in PARTS
        ]
        command(*args, parts=parts, **kwargs)

    decorated = registry_options_of_clients(with_parts)
    for part in reversed(PARTS):
        decorated = click.option(
            f"--{part}-subject",
            metavar="SUBJECT",
            help=f"The subject whose context has the ids of {part}s. Default: the default context.",
        )(decorated)
    return _formats(decorated, "Decode {}s by the schema ids in them, and print JSON.")


def write_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command gets `parts`, two PartSchema, `register` and `registry`."""

    @functools.wraps(command)
    def with_parts(*args: Any, no_register: bool, **kwargs: Any) -> None:
        parts = [
            PartSchema(
                part,
                kwargs.pop(f"{part}_format"),
                kwargs.pop(f"{part}_subject"),
                kwargs.pop(f"{part}_schema"),
                kwargs.pop(f"{part}_schema_id"),
                kwargs.pop(f"{part}_message"),
                kwargs.pop(f"{part}_references"),
            )
            for part in PARTS
        ]
        for part in parts:
            _check(part)
        command(*args, parts=parts, register=not no_register, **kwargs)

    decorated = registry_options_of_clients(with_parts)
    decorated = click.option(
        "--no-register",
        is_flag=True,
        help="Do not register the schema of the file: it must already be in the registry.",
    )(decorated)
    for part in reversed(PARTS):
        for option in (
            click.option(
                f"--{part}-message", metavar="NAME", help="Of a Protobuf schema. Default: its first message."
            ),
            click.option(
                f"--{part}-reference",
                f"{part}_references",
                metavar="NAME=SUBJECT:VERSION",
                multiple=True,
                help="A schema that the file imports, and the name it uses for it.",
            ),
            click.option(f"--{part}-subject", metavar="SUBJECT", help=f"Default: TOPIC-{part}."),
            click.option(
                f"--{part}-schema-id", metavar="N", type=click.IntRange(0), help="The schema of this id."
            ),
            click.option(
                f"--{part}-schema",
                metavar="FILE",
                type=_FILE,
                help=f"The schema of {part}s, which is registered. Default: the latest of the subject.",
            ),
        ):
            decorated = option(decorated)
    return _formats(decorated, "Lines give {}s as JSON; encode them with a schema of the registry.")


def _formats(command: Callable[..., None], text: str) -> Callable[..., None]:
    for part in reversed(PARTS):
        command = click.option(f"--{part}-format", type=click.Choice(SCHEMA_FORMATS), help=text.format(part))(
            command
        )
    return command


def _check(part: PartSchema) -> None:
    given = part.file is not None or part.schema_id is not None or part.message or part.references
    if part.form is None and given:
        raise click.UsageError(f"--{part.part}-format must say what kind of schema that is")
    if part.file is not None and part.schema_id is not None:
        raise click.UsageError(f"--{part.part}-schema and --{part.part}-schema-id exclude each other")
    if part.message is not None and part.form != "protobuf":
        raise click.UsageError(f"--{part.part}-message requires --{part.part}-format protobuf")
    if part.references and part.file is None:
        raise click.UsageError(f"--{part.part}-reference requires --{part.part}-schema")


# Writing


def record_encoder(
    stack: ExitStack,
    registry: RegistryAt,
    topic: str,
    parts: list[PartSchema],
    decode: Callable[[bytes], OutgoingRecord],
    *,
    register: bool,
) -> Callable[[bytes], OutgoingRecord]:
    """`decode` with the JSON in keys and values encoded by their schemas; BadRecord names the wrong field."""
    used = [part for part in parts if part.form is not None]
    if not used:
        return decode
    client = stack.enter_context(registry.client())
    encoders = {part.part: _encoder(client, topic, part, register) for part in used}

    def encode(line: bytes) -> OutgoingRecord:
        record = decode(line)
        changes: dict[str, Any] = {}
        for name, encoder in encoders.items():
            data = record.key if name == "key" else record.value
            if data is not None:
                changes[name] = encoded(encoder, name, data)
        return replace(record, **changes)

    return encode


def _encoder(client: RegistryClient, topic: str, part: PartSchema, register: bool) -> Encoder:
    from penstock.registry.serdes import SCHEMA_TYPES, Encoder

    assert part.form is not None
    schema = _schema(client, topic, part, register)
    wanted = SCHEMA_TYPES[part.form]
    if schema.schema_type != wanted:
        raise CommandFailed(
            f"the schema {schema.id} for {part.part}s is of type {schema.schema_type}, not {part.form}."
        )
    return Encoder(client, schema, part.message)


def _schema(client: RegistryClient, topic: str, part: PartSchema, register: bool) -> RegisteredSchema:
    from penstock.registry.client import RegisteredSchema, RequestRefused, schema_body
    from penstock.registry.serdes import SCHEMA_TYPES

    subject = part.subject_of(topic)
    if part.schema_id is not None:
        return client.by_id(part.schema_id, subject)
    if part.file is None:
        hint = f"Give a schema with --{part.part}-schema FILE."
        return latest_schema(client, subject, part.part, hint)
    assert part.form is not None
    body = schema_body(read_schema(part.file), SCHEMA_TYPES[part.form], references_of(part.references))
    try:
        if register:
            schema_id = client.register(subject, body)
        else:
            schema_id = client.look_up(subject, body).id
    except RequestRefused as error:
        if error.status == 409:
            raise incompatible(client, subject, body, error, part.file) from error
        if error.status == 404 and not register:
            raise CommandFailed(
                f"the schema in {part.file} is not registered for '{subject}': "
                "register it with `penstock schemas register`, or leave out --no-register."
            ) from error
        raise
    return RegisteredSchema(
        schema_id, body["schemaType"], body["schema"], references_of(part.references), subject
    )


# Reading


class DecodedRecord:
    """A record whose key or value is JSON text now."""

    __slots__ = ("_message", "_key", "_value")

    def __init__(self, message: IncomingRecord, key: bytes | None, value: bytes | None) -> None:
        self._message = message
        self._key = key
        self._value = value

    def topic(self) -> str | None:
        return self._message.topic()

    def partition(self) -> int | None:
        return self._message.partition()

    def offset(self) -> int | None:
        return self._message.offset()

    def timestamp(self) -> tuple[int, int]:
        return self._message.timestamp()

    def headers(self) -> Any:
        return self._message.headers()

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


class RecordDecoder:
    """Keys and values by the schema ids in them. What does not decode is left out, or ends the command."""

    def __init__(self, client: RegistryClient, parts: list[PartSchema], *, skip: bool) -> None:
        from penstock.registry.serdes import SCHEMA_TYPES, Decoder

        self._decoders: dict[str, Decoder] = {
            part.part: Decoder(client, SCHEMA_TYPES[part.form], part.part, part.subject or "")
            for part in parts
            if part.form is not None
        }
        self._skip = skip
        self.skipped = 0

    def decode(self, records: list[Any]) -> Iterator[IncomingRecord]:
        for record in records:
            try:
                yield DecodedRecord(
                    record,
                    self._part("key", record, record.key()),
                    self._part("value", record, record.value()),
                )
            except CommandFailed as error:
                if not self._skip:
                    raise
                self.skipped += 1
                note(f"skipped: {error.message}")

    def _part(self, name: str, record: IncomingRecord, data: bytes | None) -> bytes | None:
        from penstock.registry.serdes import Undecodable

        decoder = self._decoders.get(name)
        if decoder is None or data is None:
            return data
        try:
            value, schema_id = decoder.decode(data, record.headers() or ())
        except Undecodable as error:
            where = f"{record.topic()}-{record.partition()}, offset {record.offset()}"
            raise CommandFailed(f"{where}: the {name} does not decode: {error}.") from error
        return JsonText.of(value, schema_id)


def record_decoder(
    stack: ExitStack, registry: RegistryAt, parts: list[PartSchema], on_error: str
) -> RecordDecoder | None:
    if not any(part.form for part in parts):
        return None
    return RecordDecoder(stack.enter_context(registry.client()), parts, skip=on_error == "skip")
