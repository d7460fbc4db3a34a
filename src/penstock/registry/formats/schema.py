"""Shared by the three formats: a parsed schema, its references, and the one error that they raise.

Nothing here reads a topic or a socket. The service resolves references before it parses, so a format only
gets text and the texts of its references.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from penstock.errors import PenstockError

MAX_CHARS = 1_048_576
"""The maximum length of a new schema. A record of `_schemas` holds no more in a cluster with Kafka's default
`message.max.bytes`, and parsing what cannot be stored would be a waste.
"""

MAX_DEPTH = 100
"""The maximum nesting depth of types. Real schemas stay under twenty. Every walk over a schema recurses."""


class Words(NamedTuple):
    """The names of the reading and the writing schema in reasons: new and old, or old and new."""

    reader: str
    writer: str


class InvalidSchema(PenstockError):
    """The text is not a schema of its type, or does not match its references."""


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """A reference of a schema: a name that it uses, and the subject and version that define it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """A reference with its text, and the references of that text."""

    name: str
    subject: str
    version: int
    schema: str
    references: tuple[ResolvedReference, ...] = field(default=())

    @property
    def reference(self) -> Reference:
        return Reference(self.name, self.subject, self.version)


def dependencies_first(references: Sequence[ResolvedReference]) -> Iterator[ResolvedReference]:
    """Every reference once by name, each after its own references.

    Circular references are rejected: the service cannot store them, but a topic written by others may contain
    them.
    """
    done: set[str] = set()
    open_: list[Reference] = []

    def visit(reference: ResolvedReference) -> Iterator[ResolvedReference]:
        if reference.name in done:
            return
        if reference.reference in open_:
            names = " -> ".join([above.name for above in open_] + [reference.name])
            raise InvalidSchema(f"References form a circle: {names}")
        if len(open_) >= MAX_DEPTH:
            raise InvalidSchema(f"References are nested more than {MAX_DEPTH} deep")
        open_.append(reference.reference)
        for needed in reference.references:
            yield from visit(needed)
        open_.pop()
        done.add(reference.name)
        yield reference

    for reference in references:
        yield from visit(reference)


class ParsedSchema(abc.ABC):
    """A parsed schema. Two are the same if their canonical text and references are."""

    schema_type: ClassVar[str]
    references: tuple[Reference, ...]
    raw: Any
    """The format's own model: Avro types, a JSON value, or a FileDescriptorProto."""

    @abc.abstractmethod
    def canonical(self) -> str:
        """The text that is stored and returned: the user's schema in canonical form."""

    @abc.abstractmethod
    def normalized(self) -> str:
        """`normalize=true`: like canonical, with parts sorted whose order has no meaning, such as
        properties.
        """

    @abc.abstractmethod
    def differences(self, writer: Any, words: Words, policy: str) -> list[str]:
        """Why data written with `writer`, a schema of the same type, cannot be read with this one."""

    @abc.abstractmethod
    def has_top_level_field(self, name: str) -> bool:
        """Whether the schema has this top-level field (for Confluent's `confluent:reserved` metadata)."""

    @property
    def name(self) -> str | None:
        """The name of the top-level type, if the format has one."""
        return None

    def normalized_references(self) -> tuple[Reference, ...]:
        return tuple(sorted(set(self.references)))

    def formatted(self, style: str) -> str:
        """The text in one of the styles of `?format=`; unknown styles mean canonical, as in Confluent's
        registry.
        """
        return self.canonical()
