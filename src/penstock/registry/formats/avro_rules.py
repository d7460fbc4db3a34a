"""Whether a reader's Avro schema can read what a writer's schema wrote: Avro's rules of schema resolution.

The rules, their names and the paths (JSON pointers into the reader's schema) are those of Avro's Java
`SchemaCompatibility`; the sentences are those of Confluent's registry, which tools show and parse. The
checker of Avro's Python package keeps reasons and places in separate sets, so that one cannot be told
which belongs to which; hence this one.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.registry.formats.avro_model import (
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
from penstock.registry.formats.schema import Words

MAX_COMPARISONS = 300_000
"""Pairs of types looked at before a check gives up: beyond any real schema, and a few seconds of work."""

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
    """Every place where the reader cannot take what the writer writes; none when it can."""
    if same(reader, writer):
        return []
    return list(dict.fromkeys(_Checker().compare(reader, writer, ())))


class _Checker:
    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Incompatibility] | None] = {}
        self._order: list[tuple[int, int]] = []
        self._branches: dict[int, dict[str, list[AvroType]]] = {}

    def compare(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Incompatibility]:
        pair = (id(reader), id(writer))
        if pair in self._known:
            # A pair that is being compared further up counts as compatible here: the answer is found there.
            return self._known[pair] or []
        if len(self._order) >= MAX_COMPARISONS:
            return [Incompatibility("TOO_COMPLEX", path, f"more than {MAX_COMPARISONS} pairs of types")]
        self._known[pair] = None
        mark = len(self._order)
        self._order.append(pair)
        found = self._compare(reader, writer, path)
        if found:
            # What was compatible on the belief that this pair is may not be: forget it, so that another
            # branch of a union finds out for itself.
            for later in self._order[mark + 1 :]:
                if later in self._known and not self._known[later]:
                    del self._known[later]
        self._known[pair] = found
        return found

    def _compare(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Incompatibility]:
        if isinstance(writer, Union):
            return self._writer_union(reader, writer, path)
        if isinstance(reader, Union):
            if any(not self.compare(branch, writer, path) for branch in self._candidates(reader, writer)):
                return []
            return [_missing_branch(writer, path)]
        if reader.type != writer.type:
            if writer.type in _PROMOTIONS.get(reader.type, ()):
                return []
            detail = (
                f"reader type: {reader.type.upper()} not compatible with writer type: {writer.type.upper()}"
            )
            return [Incompatibility("TYPE_MISMATCH", path, detail)]
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self.compare(reader.items, writer.items, (*path, "items"))
        if isinstance(reader, Map) and isinstance(writer, Map):
            return self.compare(reader.values, writer.values, (*path, "values"))
        if isinstance(reader, Named) and isinstance(writer, Named):
            return _names(reader, writer, path) + self._named(reader, writer, path)
        return []

    def _candidates(self, union: Union, writer: AvroType) -> list[AvroType]:
        """The branches that may read the writer's type: with a name, only those that match it by name."""
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

    def _writer_union(self, reader: AvroType, writer: Union, path: tuple[str, ...]) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        for i, branch in enumerate(writer.branches):
            here = (*path, str(i))
            below = self.compare(reader, branch, here)
            if not isinstance(reader, Union):
                found += below
            elif below:
                found.append(_missing_branch(branch, here))
        return found

    def _named(self, reader: Named, writer: Named, path: tuple[str, ...]) -> list[Incompatibility]:
        if isinstance(reader, Fixed) and isinstance(writer, Fixed):
            if reader.size == writer.size:
                return []
            detail = f"expected: {writer.size}, found: {reader.size}"
            return [Incompatibility("FIXED_SIZE_MISMATCH", (*path, "size"), detail)]
        if isinstance(reader, Enum) and isinstance(writer, Enum):
            missing = sorted(set(writer.symbols) - set(reader.symbols))
            if not missing or reader.default is not None:
                return []
            return [Incompatibility("MISSING_ENUM_SYMBOLS", (*path, "symbols"), f"[{', '.join(missing)}]")]
        if isinstance(reader, Record) and isinstance(writer, Record):
            return self._fields(reader, writer, path)
        return []

    def _fields(self, reader: Record, writer: Record, path: tuple[str, ...]) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        written = {field.name: field for field in writer.fields or ()}
        for i, field in enumerate(reader.fields or ()):
            here = (*path, "fields", str(i))
            sources = [written[name] for name in (field.name, *field.aliases) if name in written]
            if len(sources) > 1 and len({source.name for source in sources}) > 1:
                found.append(Incompatibility("AMBIGUOUS_FIELD_ALIAS", here, field.name))
            elif sources:
                found += self.compare(field.type, sources[0].type, (*here, "type"))
            elif field.default is MISSING:
                found.append(Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", here, field.name))
        return found


def _names(reader: Named, writer: Named, path: tuple[str, ...]) -> list[Incompatibility]:
    """Names match without their namespaces, or where an alias of the reader is the writer's full name."""
    if reader.name.short == writer.name.short:
        return []
    if any(alias.full == writer.name.full for alias in reader.aliases):
        return []
    return [Incompatibility("NAME_MISMATCH", (*path, "name"), f"expected: {writer.name.full}")]


def _missing_branch(writer: AvroType, path: tuple[str, ...]) -> Incompatibility:
    return Incompatibility(
        "MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {writer.type.upper()}"
    )
