"""The OpenAPI description and a page that shows it, generated from the table of routes. Nothing is loaded
from elsewhere.
"""

from __future__ import annotations

from html import escape
from typing import Any

from penstock import __version__
from penstock.registry.http.call import V1_JSON
from penstock.registry.http.routes import ROUTES, Route

Json = dict[str, Any]

_SCHEMAS: Json = {
    "schema": {
        "type": "object",
        "properties": {
            "schema": {"type": "string"},
            "schemaType": {"type": "string", "enum": ["AVRO", "JSON", "PROTOBUF"], "default": "AVRO"},
            "references": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name", "subject", "version"],
                    "properties": {
                        "name": {"type": "string"},
                        "subject": {"type": "string"},
                        "version": {"type": "integer"},
                    },
                },
            },
            "metadata": {"type": "object"},
            "ruleSet": {"type": "object"},
            "version": {"type": "integer"},
            "id": {"type": "integer"},
        },
    },
    "config": {
        "type": "object",
        "properties": {
            "compatibility": {"type": "string"},
            "compatibilityGroup": {"type": "string"},
            "alias": {"type": "string"},
            "normalize": {"type": "boolean"},
            "validateFields": {"type": "boolean"},
            "defaultMetadata": {"type": "object"},
            "overrideMetadata": {"type": "object"},
            "defaultRuleSet": {"type": "object"},
            "overrideRuleSet": {"type": "object"},
        },
    },
    "mode": {"type": "object", "properties": {"mode": {"type": "string"}}},
    "error": {
        "type": "object",
        "required": ["error_code", "message"],
        "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
    },
}
_FLAGS = {
    "deleted", "deletedOnly", "deletedAsNegative", "permanent", "normalize", "force", "verbose", "aliases",
    "latestOnly", "fetchMaxId", "defaultToGlobal", "recursive",
}  # fmt: skip


def openapi() -> Json:
    paths: Json = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock schema registry", "version": __version__},
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }


def _operation(route: Route) -> Json:
    parameters: list[Json] = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in route.segments
        if part.startswith("{")
    ]
    for name in route.query:
        kind = "integer" if name.endswith("#") else "boolean" if name in _FLAGS else "string"
        parameters.append({"name": name.rstrip("#"), "in": "query", "schema": {"type": kind}})
    error = {"content": {V1_JSON: {"schema": {"$ref": "#/components/schemas/error"}}}}
    operation: Json = {
        "operationId": f"{route.handler.__module__.rpartition('.')[2]}_{route.handler.__name__}_"
        + ("subject" if "{subject}" in route.path else "all")
        + f"_{route.method.lower()}",
        "summary": route.summary,
        "tags": [route.segments[0] if route.segments else "root"],
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done."},
            "default": {"description": "An error_code and a message.", **error},
        },
    }
    if route.body:
        reference = {"$ref": f"#/components/schemas/{route.body}"}
        operation["requestBody"] = {"required": True, "content": {V1_JSON: {"schema": reference}}}
    return operation


def page() -> str:
    rows = "\n".join(
        f"<tr><td><b>{route.method}</b></td><td><code>{escape(route.path)}</code></td>"
        f"<td>{escape(route.summary)}</td>"
        f"<td>{_parameters(route)}</td></tr>"
        for route in ROUTES
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Penstock schema registry</title>"
        "<style>body{font:15px/1.5 system-ui;margin:2em auto;max-width:75em;padding:0 1em}"
        "table{border-collapse:collapse}td,th{border-bottom:1px solid #ccc;padding:.3em .7em;"
        "text-align:left;vertical-align:top}</style>"
        f"<h1>Penstock schema registry {escape(__version__)}</h1>"
        "<p>The REST API of Confluent's schema registry. For programs: "
        "<a href=openapi.json>openapi.json</a>; for Prometheus: <a href=metrics>metrics</a>.</p>"
        f"<table><tr><th>Method<th>Path<th>What it does<th>Parameters</tr>{rows}</table></html>"
    )


def _parameters(route: Route) -> str:
    return " ".join(f"<code>{escape(name.rstrip('#'))}</code>" for name in route.query)
