"""The connector that keeps a table of a topic, with the converter that its registered schema asks for."""

from __future__ import annotations

import os

from penstock.cli.failure import CommandFailed
from penstock.cli.schemas.registry_options import RegistryAt

FORMATS = ("delta", "iceberg")
VALUES = ("registry", "json", "text")
_CONVERTERS = {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}
_NOT_FOUND = 404


def table_config(
    topic: str, table_format: str, place: str, values: str, registry: RegistryAt
) -> dict[str, str]:
    """The settings of the connector, without its name. CommandFailed if the topic has no schema."""
    config = {
        "connector.class": "TableSink",
        "topics": topic,
        "format": table_format,
        "url": place if "://" in place else os.path.abspath(place),
        "record.columns": "key,partition,offset,timestamp",
        "behavior.on.null.values": "ignore",
        "key.converter": "bytes",
        # What a producer aborted is no row.
        "consumer.override.isolation.level": "read_committed",
    }
    if values == "text":
        return {**config, "value.converter": "string"}
    if values == "json":
        return {**config, "value.converter": "json", "value.converter.schemas.enable": "false"}
    config["value.converter"] = _CONVERTERS[_schema_type(topic, registry)]
    config["value.converter.schema.registry.url"] = registry.url
    if registry.user:
        config["value.converter.basic.auth.user.info"] = registry.user
    return config


def _schema_type(topic: str, registry: RegistryAt) -> str:
    from penstock.registry.client import RequestRefused

    with registry.client() as client:
        try:
            return client.version(f"{topic}-value", "latest").schema_type
        except RequestRefused as error:
            if error.status != _NOT_FOUND:
                raise
    raise CommandFailed(
        f"No schema is registered for topic {topic} (subject {topic}-value at {registry.url}). "
        "Register one, or use --values json or --values text."
    )
