"""Parses schemas: resolves references from the state, calls the parsers of the formats, and caches the
results.

Parsed schemas are cached by their text and references, so that each is parsed once. Schemas that are never
compared are never parsed: loading the topic stays cheap.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from penstock.registry import subjects
from penstock.registry.errors import RestError, invalid_schema
from penstock.registry.formats import InvalidSchema, ParsedSchema, Reference, ResolvedReference, parse
from penstock.registry.records import StoredSchema
from penstock.registry.state import State

_MAX_DEPTH = 100
_MAX_RESOLVED = 10_000

_Cached = tuple[str, str, tuple[ResolvedReference, ...], bool, bool]


class Schemas:
    """The parser of one registry. Used from several threads."""

    def __init__(self, state: State, *, size: int = 1000) -> None:
        self._state = state
        self._size = size
        self._parsed: OrderedDict[_Cached, ParsedSchema] = OrderedDict()
        self._lock = threading.Lock()

    def new(
        self,
        subject: str,
        schema_type: str,
        text: str,
        references: Sequence[Reference],
        *,
        strict: bool = True,
        validate_new: bool = True,
    ) -> ParsedSchema:
        """A schema from a client. Error 42201 if it is invalid, or does not match its references.

        A new schema (`strict`) cannot refer to deleted schemas, unless the configuration's
        `validateNewSchemas` is false; an existing one may.
        """
        try:
            deleted = not (strict and validate_new)
            resolved = self._resolve(subject, references, [], [_MAX_RESOLVED], deleted=deleted)
            return self._parse(schema_type, text, resolved, strict, validate_new)
        except InvalidSchema as error:
            raise _invalid(schema_type, references, error) from error

    def stored(self, entry: StoredSchema) -> ParsedSchema:
        """A schema of the topic: it was accepted once, so it is not validated again where possible."""
        return self.new(entry.subject, entry.schema_type, entry.schema, entry.references, strict=False)

    def _parse(
        self,
        schema_type: str,
        text: str,
        resolved: tuple[ResolvedReference, ...],
        strict: bool,
        validate_new: bool,
    ) -> ParsedSchema:
        key = (schema_type, text, resolved, strict, validate_new)
        with self._lock:
            found = self._parsed.get(key)
            if found is not None:
                self._parsed.move_to_end(key)
                return found
        parsed = parse(schema_type, text, resolved, strict=strict, validate_new=validate_new)
        with self._lock:
            self._parsed[key] = parsed
            while len(self._parsed) > self._size:
                self._parsed.popitem(last=False)
        return parsed

    def pin(self, subject: str, references: Iterable[Reference]) -> tuple[Reference, ...]:
        """Replaces -1 by the current latest version: a stored reference must not change its meaning later."""
        pinned = []
        for reference in references:
            if reference.version == -1:
                latest = self._state.latest(subjects.qualify_with(subject, reference.subject))
                if latest is not None:
                    reference = Reference(reference.name, reference.subject, latest.version)
            pinned.append(reference)
        return tuple(pinned)

    def _resolve(
        self,
        parent: str,
        references: Sequence[Reference],
        above: list[tuple[str, int]],
        budget: list[int],
        *,
        deleted: bool,
    ) -> tuple[ResolvedReference, ...]:
        resolved = []
        for reference in references:
            budget[0] -= 1
            if budget[0] < 0:
                raise InvalidSchema(f"The references lead to more than {_MAX_RESOLVED} schemas")
            subject = subjects.qualify_with(parent, reference.subject)
            entry = self._state.find(subject, reference.version, deleted=deleted)
            if entry is None:
                raise InvalidSchema(
                    f'No schema reference found for subject "{reference.subject}" '
                    f"and version {reference.version}"
                )
            place = (entry.subject, entry.version)
            if place in above:
                way = " -> ".join(f"{name} {version}" for name, version in [*above, place])
                raise InvalidSchema(f"The references lead back to themselves: {way}")
            if len(above) >= _MAX_DEPTH:
                raise InvalidSchema(f"The references are nested more than {_MAX_DEPTH} deep")
            below = self._resolve(entry.subject, entry.references, [*above, place], budget, deleted=deleted)
            resolved.append(
                ResolvedReference(reference.name, reference.subject, reference.version, entry.schema, below)
            )
        return tuple(resolved)


def _invalid(schema_type: str, references: Sequence[Reference], error: InvalidSchema) -> RestError:
    refs = ", ".join(
        f"{{name='{ref.name}', subject='{ref.subject}', version={ref.version}}}" for ref in references[:20]
    )
    with_references = f" with refs [{refs}]" if refs else ""
    return invalid_schema(f"Invalid schema of type {schema_type}{with_references}, details: {error}")
