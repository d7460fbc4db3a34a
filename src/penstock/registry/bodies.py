"""Validates request bodies field by field: schemas with references, metadata and rules; settings; modes.

Unknown fields are ignored, as in Confluent's registry. A field with a wrong type is a `BadRequest` that names
it. Metadata and rule sets are normalised (sorted, empty parts omitted, defaults filled in), so that equal
ones compare equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.registry.errors import (
    BadRequest,
    Unprocessable,
    invalid_compatibility,
    invalid_mode,
    invalid_rule_set,
    invalid_schema,
)
from penstock.registry.formats import Reference

Json = dict[str, Any]

MAX_VERSION = 2**31 - 1
MAX_REFERENCES = 1000
LEVELS = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE",
)  # fmt: skip
POLICIES = ("STRICT", "LENIENT")
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
IMPORTING = ("IMPORT", "FORWARD")
CONFLUENT_VERSION = "confluent:version"

_RULE_LISTS = {
    "migrationRules": ("Migration", ("UPGRADE", "DOWNGRADE", "UPDOWN")),
    "domainRules": ("Domain", ("WRITE", "READ", "WRITEREAD")),
    "encodingRules": ("Encoding", ("WRITE", "READ", "WRITEREAD")),
}


@dataclass(frozen=True, slots=True)
class SchemaBody:
    """A schema in a request. `version` 0 and `id` -1 mean none; without `schema` it means the latest
    one's.
    """

    schema: str | None
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: Json | None = None
    rule_set: Json | None = None
    version: int = 0
    id: int = -1

    @property
    def empty(self) -> bool:
        return self.schema is None or not self.schema.strip()

    def with_(self, **changes: Any) -> SchemaBody:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The settings in a PUT /config, with the names of the stored record; None removes one."""

    values: Json = field(default_factory=dict)


def parse_json(data: bytes) -> Any:
    """The body as JSON; BadRequest has the position of a syntax error."""
    if not data:
        raise Unprocessable("The request body must not be null")
    try:
        return json.loads(data)
    except UnicodeDecodeError:
        raise BadRequest("The request body is not in UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"The request body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise BadRequest("The request body is nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise BadRequest(f"The request body is not JSON: {error}") from None


def _object(data: bytes) -> Json:
    body = parse_json(data)
    if body is None:
        raise Unprocessable("The request body must not be null")
    if not isinstance(body, dict):
        raise BadRequest("The request body must be a JSON object")
    return body


def schema_body(data: bytes) -> SchemaBody:
    body = _object(data)
    schema = _text(body, "schema")
    version = _integer(body, "version", 0)
    if version < -1:
        raise Unprocessable(f"The version {version} is not valid", 42202)
    return SchemaBody(
        schema=schema,
        schema_type=_text(body, "schemaType") or "AVRO",
        references=_references(body.get("references")),
        metadata=metadata_of(body.get("metadata"), "metadata"),
        rule_set=rule_set_of(body.get("ruleSet"), "ruleSet"),
        version=version,
        id=_integer(body, "id", -1),
    )


def config_change(data: bytes) -> ConfigChange:
    """PUT /config: `compatibility` in the request is `compatibilityLevel` in the record."""
    body = _object(data)
    values: Json = {}
    readers: dict[str, Callable[[Json, str], Any]] = {
        "alias": _text,
        "aliasForDeks": _text,
        "normalize": _flag,
        "validateFields": _flag,
        "validateNewSchemas": _flag,
        "validateRules": _flag,
        "compatibilityGroup": _text,
        "defaultMetadata": lambda source, name: metadata_of(source[name], name),
        "overrideMetadata": lambda source, name: metadata_of(source[name], name),
        "defaultRuleSet": lambda source, name: rule_set_of(source[name], name),
        "overrideRuleSet": lambda source, name: rule_set_of(source[name], name),
    }
    for name, read in readers.items():
        if name in body:
            values[name] = read(body, name)
    if "compatibility" in body:
        values["compatibilityLevel"] = _one_of(body, "compatibility", LEVELS, invalid_compatibility)
    if "compatibilityPolicy" in body:
        values["compatibilityPolicy"] = _one_of(
            body,
            "compatibilityPolicy",
            POLICIES,
            lambda: Unprocessable("Invalid compatibility policy. Valid values are STRICT and LENIENT", 42203),
        )
    return ConfigChange(values)


def mode_of(data: bytes) -> str | None:
    """PUT /mode; `null` removes the mode."""
    body = _object(data)
    if "mode" not in body:
        raise invalid_mode()
    value: str | None = _one_of(body, "mode", MODES, invalid_mode)
    return value


def _one_of(body: Json, name: str, known: tuple[str, ...], error: Callable[[], Exception]) -> Any:
    value = _text(body, name)
    if value is None:
        return None
    if value.upper() not in known:
        raise error()
    return value.upper()


def _text(body: Json, name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{name} must be a string")
    if value is not None:
        _encodable(value, name)
    return value


def _encodable(value: str, name: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{name} holds a lone surrogate, which is not text") from None


def _flag(body: Json, name: str) -> bool | None:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false")
    return value


def _integer(body: Json, name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value <= MAX_VERSION:
        raise BadRequest(f"{name} must be a whole number of 32 bits")
    return value


def _references(value: Any) -> tuple[Reference, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadRequest("references must be a list of objects")
    if len(value) > MAX_REFERENCES:
        raise invalid_schema(f"A schema may have {MAX_REFERENCES} references, this one has {len(value)}")
    references = []
    for item in value:
        name, subject = _text(item, "name"), _text(item, "subject")
        version = _integer(item, "version", 0)
        if not name or not subject or (version < 1 and version != -1):
            raise invalid_schema(
                "Every reference must have a name, a subject and a version of 1 or more "
                f"(or -1 for the latest); one is {json.dumps(item)[:200]}"
            )
        references.append(Reference(name, subject, version))
    return tuple(references)


def metadata_of(value: Any, where: str) -> Json | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadRequest(f"{where} must be an object")
    result: Json = {}
    if tags := _mapping(value.get("tags"), f"{where}.tags"):
        result["tags"] = {
            name: _names(members, f"{where}.tags.{name}") for name, members in sorted(tags.items())
        }
    if properties := _texts(value.get("properties"), f"{where}.properties"):
        result["properties"] = properties
    if sensitive := _names(value.get("sensitive"), f"{where}.sensitive"):
        result["sensitive"] = sensitive
    return result


def rule_set_of(value: Any, where: str) -> Json | None:
    """A rule set, with the checks that Confluent's makes: names, modes, no name twice."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadRequest(f"{where} must be an object")
    result: Json = {}
    seen: set[str] = set()
    for list_name, (kind, modes) in _RULE_LISTS.items():
        rules = value.get(list_name)
        if rules is None:
            continue
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise BadRequest(f"{where}.{list_name} must be a list of objects")
        read = [_rule(rule, f"{where}.{list_name}") for rule in rules]
        for rule in read:
            if rule["name"] in seen:
                raise invalid_rule_set(f"Found rule with duplicate name '{rule['name']}'")
            seen.add(rule["name"])
            if rule["mode"] not in modes:
                raise invalid_rule_set(
                    f"{kind} rules can only be {', '.join(modes)}; {rule['name']} is {rule['mode']}"
                )
        if read:
            result[list_name] = read
    if enable_at := _text(value, "enableAt"):
        result["enableAt"] = enable_at
    return result


def _rule(rule: Json, where: str) -> Json:
    name = _text(rule, "name")
    _check_rule_name(name)
    mode = (_text(rule, "mode") or "WRITEREAD").upper()
    kind = (_text(rule, "kind") or "TRANSFORM").upper()
    if kind not in ("TRANSFORM", "CONDITION"):
        raise invalid_rule_set(f"Rule {name}: the kind must be TRANSFORM or CONDITION")
    rule_type = _text(rule, "type")
    if rule_type is None:
        raise invalid_rule_set(f"Rule {name}: missing rule type")
    result: Json = {"name": name}
    if doc := _text(rule, "doc"):
        result["doc"] = doc
    result |= {"kind": kind, "mode": mode}
    if rule_type:
        result["type"] = rule_type
    if tags := _names(rule.get("tags"), f"{where}.tags"):
        result["tags"] = tags
    if params := _texts(rule.get("params"), f"{where}.params"):
        result["params"] = params
    for text in ("expr", "onSuccess", "onFailure"):
        value = _text(rule, text)
        if value and text != "expr" and "," in value and mode not in ("WRITEREAD", "UPDOWN"):
            raise invalid_rule_set(f"Rule {name}: multiple actions only valid with WRITEREAD and UPDOWN")
        if value:
            result[text] = value
    result["disabled"] = bool(_flag(rule, "disabled"))
    return result


def _check_rule_name(name: str | None) -> None:
    if not name:
        raise invalid_rule_set("Missing rule name" if name is None else "Empty rule name")
    if len(name) > 256:
        raise invalid_rule_set("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        raise invalid_rule_set(f"Illegal initial character in rule name: {name}")
    if not all(character.isalnum() or character in "_-" for character in name):
        raise invalid_rule_set(f"Illegal character in rule name: {name}")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest(f"{where} must be an object")
    for name in value:
        _encodable(name, where)
    return value


def _texts(value: Any, where: str) -> dict[str, str]:
    pairs = _mapping(value, where)
    for name, text in pairs.items():
        if not isinstance(text, str):
            raise BadRequest(f"{where}.{name} must be a string")
        _encodable(text, where)
    return dict(sorted(pairs.items()))


def _names(value: Any, where: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRequest(f"{where} must be a list of strings")
    for item in value:
        _encodable(item, where)
    return sorted(set(value))


def merge_metadata(below: Json | None, above: Json | None) -> Json | None:
    """Merges both; if both have a name, the one of `above` counts."""
    if below is None or above is None:
        return above if below is None else below
    merged: Json = {}
    for name in ("tags", "properties"):
        if both := {**below.get(name, {}), **above.get(name, {})}:
            merged[name] = dict(sorted(both.items()))
    if sensitive := sorted({*below.get("sensitive", ()), *above.get("sensitive", ())}):
        merged["sensitive"] = sensitive
    return merged


def merge_rule_sets(below: Json | None, above: Json | None) -> Json | None:
    if below is None or above is None:
        return above if below is None else below
    merged: Json = {}
    for name in _RULE_LISTS:
        names = {rule["name"] for rule in above.get(name, ())}
        rules = [rule for rule in below.get(name, ()) if rule["name"] not in names] + above.get(name, [])
        if rules:
            merged[name] = rules
    if enable_at := above.get("enableAt") or below.get("enableAt"):
        merged["enableAt"] = enable_at
    return merged


def with_version_property(metadata: Json | None, version: int) -> Json:
    """Sets `confluent:version`, which makes the schema of each version distinct."""
    properties = {**(metadata or {}).get("properties", {}), CONFLUENT_VERSION: str(version)}
    result = {**(metadata or {}), "properties": dict(sorted(properties.items()))}
    return {name: result[name] for name in ("tags", "properties", "sensitive") if name in result}


def version_property(metadata: Json | None) -> int | None:
    """The number in `confluent:version`; None if it is not a number."""
    text = (metadata or {}).get("properties", {}).get(CONFLUENT_VERSION)
    try:
        return int(text) if isinstance(text, str) else None
    except ValueError:
        return None


def without_version_property(metadata: Json | None) -> Json | None:
    if metadata is None or CONFLUENT_VERSION not in metadata.get("properties", {}):
        return metadata
    properties = {name: value for name, value in metadata["properties"].items() if name != CONFLUENT_VERSION}
    result = {**metadata, "properties": properties}
    return {name: value for name, value in result.items() if value} or None
