"""`penstock schemas export`: a registry as JSON lines, in an order in which it can be read in again.

    {"kind": "export", "format": 1, "prefix": ""}
    {"kind": "schema", "subject", "version", "id", "schemaType", "schema", "references", …, "deleted"}
    {"kind": "config" | "mode", "subject": null or a name, …}
    {"kind": "end", "schemas": 17}

In a directory the lines are in `schemas.jsonl`, and name a file for each text: `orders-value/1.avsc`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.cli.failure import CommandFailed
from penstock.cli.output import progress
from penstock.cli.schemas.files import ENDING_OF

if TYPE_CHECKING:
    from penstock.registry.client import RegisteredSchema, RegistryClient

FORMAT = 1
INDEX = "schemas.jsonl"
Json = dict[str, Any]
Place = tuple[str, int]


def export_to(client: RegistryClient, prefix: str, output: str) -> dict[str, int]:
    """Writes the export; how many schemas and subjects it has."""
    schemas, deleted = _all(client, prefix)
    ordered = dependencies_first(schemas)
    subjects = sorted({schema.subject for schema in ordered})
    settings = _settings(client, subjects, whole=not prefix)
    lines: list[Json] = [{"kind": "export", "format": FORMAT, "prefix": prefix}]
    lines += [_line(schema, (schema.subject, schema.version) in deleted) for schema in ordered]
    lines += settings
    lines.append({"kind": "end", "schemas": len(ordered)})
    if output == "-":
        _write_lines(sys.stdout, lines)
    elif output.endswith("/") or os.path.isdir(output):
        _write_directory(Path(output), lines)
    else:
        _replace(Path(output), lines)
    return {"schemas": len(ordered), "subjects": len(subjects)}


def _all(client: RegistryClient, prefix: str) -> tuple[dict[Place, RegisteredSchema], set[Place]]:
    """The schemas of the prefix and those that they refer to; and which of them are deleted softly."""
    found = {(each.subject, each.version): each for each in client.schemas(prefix, deleted=True)}
    live = {(each.subject, each.version) for each in client.schemas(prefix)}
    deleted = found.keys() - live
    open_ = list(found.values())
    with progress("references", None, unit="schemas", show=bool(prefix)):
        while open_:
            for place in _referred(open_.pop()):
                if place not in found:
                    schema = client.version(*place, deleted=True)
                    found[place] = schema
                    open_.append(schema)
                    if place[1] not in _live_versions(client, place[0]):
                        deleted.add(place)
    return found, deleted


def _live_versions(client: RegistryClient, subject: str) -> list[int]:
    from penstock.registry.client import RequestRefused

    try:
        return client.versions(subject)
    except RequestRefused:
        return []


def _referred(schema: RegisteredSchema) -> Iterator[Place]:
    from penstock.registry.subjects import qualify_with

    for each in schema.references:
        yield qualify_with(schema.subject, each.subject), each.version


def dependencies_first(schemas: dict[Place, RegisteredSchema]) -> list[RegisteredSchema]:
    """By id, which is the order in which most were registered, but each after those that it refers to."""
    ordered: list[RegisteredSchema] = []
    done: set[Place] = set()
    for start in sorted(schemas.values(), key=lambda each: (each.id, each.subject, each.version)):
        stack: list[tuple[RegisteredSchema, bool]] = [(start, False)]
        entered: set[Place] = set()
        while stack:
            schema, ready = stack.pop()
            place = (schema.subject, schema.version)
            if ready and place not in done:
                done.add(place)
                ordered.append(schema)
            elif not ready and place not in done and place not in entered:
                entered.add(place)
                stack.append((schema, True))
                stack += [(schemas[need], False) for need in _referred(schema) if need in schemas]
    return ordered


def _line(schema: RegisteredSchema, deleted: bool) -> Json:
    line: Json = {"kind": "schema", "subject": schema.subject, "version": schema.version, "id": schema.id}
    line |= schema.body
    return {**line, "deleted": True} if deleted else line


def _settings(client: RegistryClient, subjects: Iterable[str], *, whole: bool) -> list[Json]:
    from penstock.registry.client import RequestRefused

    scopes: list[str | None] = [*subjects]
    if whole:
        try:
            contexts = [name for name in client.request("GET", "contexts") if name != "."]
        except RequestRefused:
            contexts = []  # a registry without contexts
        scopes += [None, *(f":{name}:" for name in contexts)]
    lines: list[Json] = []
    with progress("settings", len(scopes), unit="subjects") as bar:
        for count, subject in enumerate(scopes, 1):
            found, mode = client.config(subject), client.mode(subject)
            if found is not None:
                lines.append({"kind": "config", "subject": subject, "config": found})
            if mode is not None:
                lines.append({"kind": "mode", "subject": subject, "mode": mode})
            bar.update(count)
    return lines


def _write_lines(stream: IO[str], lines: Iterable[Json]) -> None:
    for line in lines:
        stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def _replace(path: Path, lines: Iterable[Json]) -> None:
    """Whole or not at all: an export that was cut off must not pass for one."""
    new = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with new.open("w", encoding="utf-8") as stream:
            _write_lines(stream, lines)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise CommandFailed(f"cannot write {path}: {error.strerror}") from error


def _write_directory(root: Path, lines: Iterable[Json]) -> None:
    index = []
    try:
        for line in lines:
            if line["kind"] == "schema":
                folder = quote(line["subject"], safe=" +@=,").replace(".", "%2E", line["subject"][:1] == ".")
                name = f"{folder}/{line['version']}{ENDING_OF.get(line['schemaType'], '.txt')}"
                (root / folder).mkdir(parents=True, exist_ok=True)
                (root / name).write_text(line["schema"], encoding="utf-8", newline="")
                line = {key: value for key, value in line.items() if key != "schema"} | {"file": name}
            index.append(line)
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"cannot write {error.filename or root}: {error.strerror}") from error
    _replace(root / INDEX, index)
