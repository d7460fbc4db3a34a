"""Schemas in files: their type by the ending of the name, and the references that the command line gives."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.failure import CommandFailed

if TYPE_CHECKING:
    from penstock.registry.formats import Reference

TYPES = ("avro", "json", "protobuf")
ENDINGS = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
ENDING_OF = {schema_type: ending for ending, schema_type in ENDINGS.items()}


def read_schema(path: str) -> str:
    """The text of a file, or of stdin for `-`."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CommandFailed(f"{path} is not text in UTF-8.") from None
    if not text.strip():
        raise CommandFailed(f"{'stdin' if path == '-' else path} is empty: no schema found.")
    return text


def type_of(path: str, given: str | None) -> str:
    """What --type says, or the ending of the file."""
    if given is not None:
        return given.upper()
    found = ENDINGS.get(Path(path).suffix.lower())
    if found is None:
        raise click.UsageError(
            f"Cannot infer the schema type of '{path}': its name ends in none of {', '.join(ENDINGS)}. "
            "Pass --type avro, json or protobuf."
        )
    return found


def references_of(words: Iterable[str]) -> tuple[Reference, ...]:
    """`NAME=SUBJECT:VERSION` words; the version may be `latest`."""
    from penstock.registry.formats import Reference

    found = []
    for word in words:
        name, _, place = word.partition("=")
        subject, _, version = place.rpartition(":")
        if not name or not subject or not (version.isdecimal() or version == "latest"):
            raise click.BadParameter(
                f"'{word}' is not of the form NAME=SUBJECT:VERSION", param_hint="'--reference'"
            )
        found.append(Reference(name, subject, -1 if version == "latest" else int(version)))
    return tuple(found)
