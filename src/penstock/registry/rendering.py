"""Entries as responses to clients, with exactly the fields of Confluent's responses.

Newer fields (guid, ts, deleted, the type of Avro schemas, what a registration stored) are sent to clients
with the header `Confluent-Accept-Unknown-Properties: true`, as by Confluent Cloud: older Java clients fail on
unknown fields.
"""

from __future__ import annotations

from typing import Any

from penstock.registry.records import StoredSchema, reference_json

Json = dict[str, Any]

_REQUEST_NAMES = {"compatibilityLevel": "compatibility"}


def _type(entry: StoredSchema, full: bool) -> Json:
    return {"schemaType": entry.schema_type} if full or entry.schema_type != "AVRO" else {}


def _body(entry: StoredSchema) -> Json:
    fields: Json = {}
    if entry.references:
        fields["references"] = [reference_json(reference) for reference in entry.references]
    if entry.metadata is not None:
        fields["metadata"] = entry.metadata
    if entry.rule_set is not None:
        fields["ruleSet"] = entry.rule_set
    return fields


def _later(entry: StoredSchema, full: bool) -> Json:
    if not full:
        return {}
    fields: Json = {} if entry.timestamp is None else {"ts": entry.timestamp}
    return fields | {"deleted": entry.deleted}


def version(entry: StoredSchema, full: bool, *, text: str | None = None) -> Json:
    """A version of a subject."""
    return {
        "subject": entry.subject,
        "version": entry.version,
        "id": entry.id,
        **({"guid": entry.guid} if full else {}),
        **_type(entry, full),
        **_body(entry),
        "schema": entry.schema if text is None else text,
        **_later(entry, full),
    }


def by_id(entry: StoredSchema, full: bool, *, named: bool = False, text: str | None = None) -> Json:
    """The schema of an id; its subject and version only if the client named a subject."""
    whose = {"subject": entry.subject, "version": entry.version} if full and named else {}
    return {
        **whose,
        **({"guid": entry.guid} if full else {}),
        **_type(entry, full),
        "schema": entry.schema if text is None else text,
        **_body(entry),
        **_later(entry, full),
    }


def registered(entry: StoredSchema, full: bool, *, completed: bool, text: str | None = None) -> Json:
    """The response to a registration; has the schema only if the registry `completed` the sent one.

    confluent-kafka's client caches the schema of the response instead of the one it sent. For Protobuf that
    would be text, but its deserializer expects the form that its serializer sends.
    """
    settings = {} if entry.metadata is None else {"metadata": entry.metadata}
    if entry.rule_set is not None:
        settings["ruleSet"] = entry.rule_set
    if not full:
        return {"id": entry.id, **settings}
    answer: Json = {"id": entry.id, "version": entry.version, "guid": entry.guid}
    if completed or text is not None:
        answer |= {"schemaType": entry.schema_type, **_body(entry)}
        answer["schema"] = entry.schema if text is None else text
    else:
        answer |= settings
    return answer | _later(entry, full)


def config(value: Json) -> Json:
    """GET /config."""
    return {name: item for name, item in value.items() if item not in (None, "", [])}


def config_update(value: Json) -> Json:
    """The response of PUT /config uses the names of the request: `compatibility`."""
    renamed = {
        "compatibility" if name == "compatibilityLevel" else name: item for name, item in value.items()
    }
    return config(renamed)
