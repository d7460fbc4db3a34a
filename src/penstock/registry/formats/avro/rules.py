"""Whether a reader's Avro schema can read what a writer's schema wrote: Avro's rules of schema resolution.

The rules, their names and the paths (JSON pointers into the reader's schema) are those of Avro's Java
`SchemaCompatibility`; the sentences are those of Confluent's registry, which tools show and parse. The
checker of Avro's Python package keeps reasons and places in separate sets, so that it is unknown which reason
belongs to which place; this one keeps them together.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from penstock.registry.formats.avro.model import (
    MISSING,
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Named,
    Record,
    Union,
    same,
)
from penstock.registry.formats.pairs import MAX_COMPARISONS, PairChecker, TooComplex
from penstock.registry.formats.schema import Words

_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}


class Incompatibility(NamedTuple):
    kind: str
    path: tuple[str, ...]
    detail: str

    def sentence(self, words: Words) -> str:
        path = "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in self.path)
        description = _SENTENCES[self.kind].format(
            path=path, detail=self.detail, reader=words.reader, writer=words.writer
        )
        return f"{{errorType:'{self.kind}', description:'{description}', additionalInfo:'{self.detail}'}}"


_SENTENCES = {
    "FIXED_SIZE_MISMATCH": "The size of FIXED type field at path '{path}' in the {reader} schema "
    "does not match with the {writer} schema",
    "TYPE_MISMATCH": "The type (path '{path}') of a field in the {reader} schema does not match "
    "with the {writer} schema",
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "MISSING_ENUM_SYMBOLS": "The {reader} schema is missing enum symbols '{detail}' at path '{path}' "
    "in the {writer} schema",
    "MISSING_UNION_BRANCH": "The {reader} schema is missing a type inside a union field at path '{path}' "
    "in the {writer} schema",
    "TOO_COMPLEX": "The {reader} and the {writer} schema are too large to be compared ({detail})",
    "AMBIGUOUS_FIELD_ALIAS": "The field '{detail}' at path '{path}' in the {reader} schema matches several "
    "fields of the {writer} schema by its name and aliases",
    "READER_FIELD_MISSING_DEFAULT_VALUE": "The field '{detail}' at path '{path}' in the {reader} schema "
    "has no default value and is missing in the {writer} schema",
}


def incompatibilities(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    """Every incompatibility between reader and writer; empty if the reader can read the writer's data."""
    if same(reader, writer):
        return []
    try:
        return _Checker().run(reader, writer)
    except TooComplex:
        return [Incompatibility("TOO_COMPLEX", (), f"more than {MAX_COMPARISONS} pairs of types")]


Rule = Generator[tuple[AvroType, AvroType], list[Incompatibility], list[Incompatibility]]


class _Checker(PairChecker[AvroType, Incompatibility]):
    def __init__(self) -> None:
        super().__init__()
        self._branches: dict[int, dict[str, list[AvroType]]] = {}

    def compare(self, reader: AvroType, writer: AvroType, *path: str) -> Rule:
        found = yield reader, writer
        return [item._replace(path=(*path, *item.path)) for item in found] if path else found

    def rule(self, reader: AvroType, writer: AvroType) -> Rule:
        if isinstance(writer, Union):
            return (yield from self._writer_union(reader, writer))
        if isinstance(reader, Union):
            for branch in self._candidates(reader, writer):
                if not (yield from self.compare(branch, writer)):
                    return []
            return [_missing_branch(writer, ())]
        if reader.type != writer.type:
            if writer.type in _PROMOTIONS.get(reader.type, ()):
                return []
            types = reader.type.upper(), writer.type.upper()
            detail = "reader type: {} not compatible with writer type: {}".format(*types)
            return [Incompatibility("TYPE_MISMATCH", (), detail)]
        if isinstance(reader, Array) and isinstance(writer, Array):
            return (yield from self.compare(reader.items, writer.items, "items"))
        if isinstance(reader, Map) and isinstance(writer, Map):
            return (yield from self.compare(reader.values, writer.values, "values"))
        if isinstance(reader, Record) and isinstance(writer, Record):
            return _names(reader, writer) + (yield from self._fields(reader, writer))
        if isinstance(reader, Named) and isinstance(writer, Named):
            return _names(reader, writer) + _contents(reader, writer)
        return []

    def _candidates(self, union: Union, writer: AvroType) -> list[AvroType]:
        """The branches that may read the writer's type: for a named type, only those whose name matches."""
        index = self._branches.get(id(union))
        if index is None:
            index = self._branches[id(union)] = {}
            for branch in union.branches:
                keys = {"type"} if not isinstance(branch, Named) else {f"name {branch.name.short}"}
                if isinstance(branch, Named):
                    keys |= {f"alias {alias.full}" for alias in branch.aliases}
                for key in keys:
                    index.setdefault(key, []).append(branch)
        if not isinstance(writer, Named):
            return index.get("type", [])
        by_name = index.get(f"name {writer.name.short}", [])
        exact = [b for b in by_name if isinstance(b, Named) and b.name.full == writer.name.full]
        return [*exact, *by_name, *index.get(f"alias {writer.name.full}", [])]

    def _writer_union(self, reader: AvroType, writer: Union) -> Rule:
        found: list[Incompatibility] = []
        for i, branch in enumerate(writer.branches):
            below = yield from self.compare(reader, branch, str(i))
            if not isinstance(reader, Union):
                found += below
            elif below:
                found.append(_missing_branch(branch, (str(i),)))
        return found

    def _fields(self, reader: Record, writer: Record) -> Rule:
        found: list[Incompatibility] = []
        written = {field.name: field for field in writer.fields or ()}
        for i, field in enumerate(reader.fields or ()):
            here = ("fields", str(i))
            sources = [
                written[name] for name in dict.fromkeys((field.name, *field.aliases)) if name in written
            ]
            if len(sources) > 1:
                found.append(Incompatibility("AMBIGUOUS_FIELD_ALIAS", here, field.name))
            elif sources:
                found += yield from self.compare(field.type, sources[0].type, *here, "type")
            elif field.default is MISSING:
                found.append(Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", here, field.name))
        return found


def _contents(reader: Named, writer: Named) -> list[Incompatibility]:
    if isinstance(reader, Fixed) and isinstance(writer, Fixed) and reader.size != writer.size:
        detail = f"expected: {writer.size}, found: {reader.size}"
        return [Incompatibility("FIXED_SIZE_MISMATCH", ("size",), detail)]
    if isinstance(reader, Enum) and isinstance(writer, Enum) and reader.default is None:
        missing = sorted(set(writer.symbols) - set(reader.symbols))
        if missing:
            return [Incompatibility("MISSING_ENUM_SYMBOLS", ("symbols",), f"[{', '.join(missing)}]")]
    return []


def _names(reader: Named, writer: Named) -> list[Incompatibility]:
    """Names match ignoring their namespaces, or if an alias of the reader is the writer's full name."""
    if reader.name.short == writer.name.short:
        return []
    if any(alias.full == writer.name.full for alias in reader.aliases):
        return []
    return [Incompatibility("NAME_MISMATCH", ("name",), f"expected: {writer.name.full}")]


def _missing_branch(writer: AvroType, path: tuple[str, ...]) -> Incompatibility:
    detail = f"reader union lacking writer type: {writer.type.upper()}"
    return Incompatibility("MISSING_UNION_BRANCH", path, detail)
