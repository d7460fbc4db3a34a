"""The catalog of relations, functions and continuous queries, built from the records of `__penstock_sql`.

Pure. An image is immutable; `fold` returns the next one. The `plan_*` functions return the records that a
statement writes, or raise an error; the engine carries statements out.

A query's definition has everything needed to run it again unchanged: its text, and its sources and functions
as of its creation. Objects created, replaced or dropped later do not change it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from penstock.elected.membership import named_leader
from penstock.sql.errors import Clash, Exists, Place, Unknown, did_you_mean
from penstock.sql.language.statements import Column

TOPIC = "__penstock_sql"

Kind = Literal["stream", "table"]
State = Literal["RUNNING", "PAUSED"]
Mode = Literal["append", "update", "complete", "refresh"]
"""How a query writes its rows: each once; the changed ones; all of them after each micro-batch; or all of
them when a source has changed. For the last two, only the difference to the previous rows is written.
"""


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream or table: where its records are, and how to read them."""

    name: str
    kind: Kind
    topic: str | None
    """None for a table in files: `path`."""
    columns: tuple[Column, ...]
    """All columns except those with `__`. `Column.key`: read from the record's key instead of its value."""
    key_columns: tuple[str, ...] = ()
    """The columns that identify a row of the table."""
    format: str = "json"
    key_format: str = "string"
    options: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, int] = field(default_factory=dict)
    """The versions of the value and key subjects with which it is read."""
    statement: str = ""
    made_by: str | None = None
    """The query that writes it."""
    path: str | None = None
    implicit: bool = False
    """A topic with a schema that nobody has declared as a relation."""

    @property
    def folded(self) -> str:
        return self.name.casefold()

    def column(self, name: str) -> Column | None:
        exact = next((each for each in self.columns if each.name == name), None)
        folded = name.casefold()
        return exact or next((each for each in self.columns if each.name.casefold() == folded), None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Relation:
        columns = tuple(Column(each["name"], each["type"], bool(each["key"])) for each in data["columns"])
        known = {name: value for name, value in data.items() if name in cls.__slots__}
        return cls(**{**known, "columns": columns, "key_columns": tuple(data.get("key_columns", ()))})


@dataclass(frozen=True, slots=True)
class Function:
    """A SQL function written in Python."""

    name: str
    parameters: tuple[Column, ...]
    returns: str
    body: str
    statement: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Function:
        parameters = tuple(Column(each["name"], each["type"]) for each in data["parameters"])
        known = {name: value for name, value in data.items() if name in cls.__slots__}
        return cls(**{**known, "parameters": parameters})


@dataclass(frozen=True, slots=True)
class QueryDef:
    """A continuous query. It runs, or is paused, until it is terminated."""

    id: str
    kind: Literal["csas", "ctas", "insert"]
    statement: str
    target: Relation
    sources: Mapping[str, Relation]
    """By the names that the statement uses."""
    functions: tuple[Function, ...] = ()
    state: State = "RUNNING"
    mode: Mode = "append"
    generation: int = 0
    """Incremented when it starts over with empty state."""
    uid: str = ""
    """Id of the generation: part of the names of its checkpoint and writes, so that they never match older
    ones.
    """
    properties: Mapping[str, str] = field(default_factory=dict)
    starting: Mapping[str, str] = field(default_factory=dict)
    """The start position in each topic: `earliest`, or offsets in JSON."""
    shuffle_partitions: int = 2
    """Cannot change while the state is kept."""
    fingerprint: Mapping[str, Any] | None = None
    empties: Mapping[str, Any] | None = None
    """The previous definition in JSON, if its rows must be deleted before this one first runs."""

    def reads(self, relation: str) -> bool:
        return any(each.folded == relation.casefold() for each in self.sources.values())

    def writes(self, relation: str) -> bool:
        return self.target.folded == relation.casefold()

    @property
    def topics(self) -> frozenset[str]:
        """All topics that it reads and writes."""
        both = (*self.sources.values(), self.target)
        return frozenset(each.topic for each in both if each.topic is not None)

    @property
    def directory(self) -> str:
        """The directory of its checkpoint, below the storage."""
        return f"queries/{self.id}/{self.generation}-{self.uid}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QueryDef:
        known = {name: value for name, value in data.items() if name in cls.__slots__}
        return cls(
            **{
                **known,
                "target": Relation.from_json(data["target"]),
                "sources": {name: Relation.from_json(each) for name, each in data["sources"].items()},
                "functions": tuple(Function.from_json(each) for each in data.get("functions", ())),
            }
        )


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the topic; a value of None deletes the key."""

    key: str
    value: Mapping[str, Any] | None

    def encode(self) -> tuple[bytes, bytes | None]:
        value = None if self.value is None else json.dumps(self.value, separators=(",", ":")).encode()
        return self.key.encode(), value

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Record | None:
        """None for an unknown record; it is skipped."""
        try:
            data = None if value is None else json.loads(value)
            if key is None or not (data is None or isinstance(data, dict)):
                return None
            return cls(key.decode(), data)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Catalog:
    """The whole catalog, by casefolded name; queries by id."""

    relations: Mapping[str, Relation] = field(default_factory=dict)
    functions: Mapping[str, Function] = field(default_factory=dict)
    queries: Mapping[str, QueryDef] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    """The number of the next query, by kind and name."""
    epoch: int = 0
    """The epoch of the latest leader: higher than all before."""
    leader: str | None = None
    """The URL of the latest leader."""

    def fold(self, records: Iterable[Record]) -> Catalog:
        """The image after these records. Unknown keys come from a newer Penstock and are skipped."""
        relations, functions, queries = dict(self.relations), dict(self.functions), dict(self.queries)
        numbers, epoch, leader = dict(self.numbers), self.epoch, self.leader
        for record in records:
            what, _, name = record.key.partition("/")
            value = record.value
            if what == "relation":
                _put(relations, name, None if value is None else Relation.from_json(value))
            elif what == "function":
                _put(functions, name, None if value is None else Function.from_json(value))
            elif what == "query":
                _put(queries, name, None if value is None else QueryDef.from_json(value))
            elif what == "number" and value is not None:
                numbers[name] = int(value["next"])
            elif what == "leader" and value is not None:
                epoch, leader = int(value["epoch"]), named_leader(value)
            elif what == "server":
                leader = named_leader(value)
        return Catalog(relations, functions, queries, numbers, epoch, leader)

    def apply(self, record: Record) -> Catalog:
        return self.fold((record,))

    def relation(self, name: str) -> Relation | None:
        return self.relations.get(name.casefold())

    def function(self, name: str) -> Function | None:
        return self.functions.get(name.casefold())

    def function_names(self) -> list[str]:
        return [each.name for each in self.functions.values()]

    def query(self, query_id: str, place: Place | None = None) -> QueryDef:
        found = self.queries.get(query_id) or self.queries.get(query_id.casefold())
        if found is None:
            raise Unknown(f"no query `{query_id}`{did_you_mean(query_id, self.queries)}", place)
        return found

    def readers(self, relation: str) -> list[str]:
        return sorted(each.id for each in self.queries.values() if each.reads(relation))

    def downstream(self, topic: str) -> list[str]:
        """The queries that read a topic as a stream, and transitively those that read their outputs."""
        found: list[str] = []
        topics = [topic]
        for each in topics:
            for query in self.queries.values():
                reads = any(one.topic == each and one.kind == "stream" for one in query.sources.values())
                if reads and query.id not in found:
                    found.append(query.id)
                    topics += [query.target.topic] if query.target.topic is not None else []
        return sorted(found)

    def writers(self, relation: str) -> list[str]:
        return sorted(each.id for each in self.queries.values() if each.writes(relation))


def _put(into: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        into.pop(name, None)
    else:
        into[name] = value


# Records


def relation_record(relation: Relation) -> Record:
    return Record(f"relation/{relation.folded}", relation.to_json())


def query_record(query: QueryDef) -> Record:
    return Record(f"query/{query.id}", query.to_json())


def leader_record(catalog: Catalog) -> Record:
    """The record that a new leader writes."""
    return Record("leader/epoch", {"epoch": catalog.epoch + 1, "leader": catalog.leader})


def server_record(url: str) -> Record:
    """The first record of a new leader: it tells other servers where to send statements."""
    return Record("server/leader", {"leader": url})


def gone(what: Literal["relation", "function", "query"], name: str) -> Record:
    return Record(f"{what}/{name if what == 'query' else name.casefold()}", None)


# Plans


def plan_relation(
    catalog: Catalog, relation: Relation, or_replace: bool, place: Place | None
) -> list[Record]:
    """The records that create a relation which no query here writes."""
    old = catalog.relation(relation.name)
    if old is not None:
        if not or_replace:
            raise Exists(f"{old.kind} `{old.name}` already exists", place)
        if old.kind != relation.kind:
            raise Clash(f"`{old.name}` is already a {old.kind}. Drop it, or choose another name.", place)
        if old.made_by is not None:
            raise Clash(
                f"`{old.name}` is written by query {old.made_by}. Use CREATE OR REPLACE … AS SELECT.", place
            )
    return [relation_record(relation)]


def next_query_id(catalog: Catalog, kind: str, name: str) -> tuple[str, Record]:
    """A new, unique query id, and the record that reserves its number."""
    clean = "".join(char if char.isalnum() or char == "_" else "_" for char in name.casefold())
    base = f"{kind}_{clean}"
    number = catalog.numbers.get(base, 1)
    return f"{base}_{number}", Record(f"number/{base}", {"next": number + 1})


def plan_function(
    catalog: Catalog, function: Function, or_replace: bool, place: Place | None
) -> list[Record]:
    old = catalog.function(function.name)
    if old is not None and not or_replace:
        raise Exists(
            f"function `{old.name}` already exists; use CREATE OR REPLACE FUNCTION to change it", place
        )
    return [Record(f"function/{function.name.casefold()}", function.to_json())]


def plan_state(
    catalog: Catalog, query_id: str | None, state: State, place: Place | None = None
) -> tuple[list[QueryDef], list[Record]]:
    """PAUSE and RESUME: the queries that change, and their records. None means all queries."""
    chosen = list(catalog.queries.values()) if query_id is None else [catalog.query(query_id, place)]
    changed = [replace(each, state=state) for each in chosen if each.state != state]
    return changed, [query_record(each) for each in changed]


def plan_terminate(
    catalog: Catalog, query_id: str | None, place: Place | None = None
) -> tuple[list[QueryDef], list[Record]]:
    """The queries that end, and their records. Their outputs stay, as independent relations."""
    chosen = list(catalog.queries.values()) if query_id is None else [catalog.query(query_id, place)]
    records = []
    for each in chosen:
        records.append(gone("query", each.id))
        made = catalog.relation(each.target.name)
        if made is not None and made.made_by == each.id:
            records.append(relation_record(replace(made, made_by=None)))
    return chosen, records


def plan_drop(
    catalog: Catalog, name: str, kind: str, place: Place | None
) -> tuple[Relation | None, list[QueryDef], list[Record]]:
    """DROP: the relation (None: it does not exist), its own queries, which end, and the records."""
    relation = catalog.relation(name)
    if relation is None:
        return None, [], []
    if relation.kind != kind:
        raise Clash(
            f"`{relation.name}` is a {relation.kind}: DROP {relation.kind.upper()} {relation.name}", place
        )
    own = [each for each in catalog.queries.values() if each.id == relation.made_by]
    ends = {each.id for each in own}
    readers = [each for each in catalog.readers(name) if each not in ends]
    writers = [each for each in catalog.writers(name) if each not in ends]
    if readers or writers:
        said = [_using(readers, "read", "it")] if readers else []
        said += [_using(writers, "write", "to it")] if writers else []
        raise Clash(_cannot_drop(relation.name, said, [*readers, *writers]), place)
    return relation, own, [gone("relation", name), *(gone("query", each.id) for each in own)]


def _using(queries: Sequence[str], verb: str, what: str) -> str:
    names = " and ".join(f"`{each}`" for each in queries)
    return f"query {names} {verb}s {what}" if len(queries) == 1 else f"queries {names} {verb} {what}"


def _cannot_drop(name: str, said: Sequence[str], queries: Sequence[str]) -> str:
    first = (
        " ".join(f"TERMINATE {each};" for each in queries) if len(queries) > 1 else f"TERMINATE {queries[0]}"
    )
    return f"Cannot drop `{name}`: {', '.join(said)}. Run `{first}` first."


def users_of_function(catalog: Catalog, name: str) -> list[str]:
    """The queries that call the function."""
    folded = name.casefold()
    return sorted(
        each.id
        for each in catalog.queries.values()
        if any(function.name.casefold() == folded for function in each.functions)
    )


def plan_drop_function(catalog: Catalog, name: str, if_exists: bool, place: Place | None) -> Sequence[Record]:
    found = catalog.function(name)
    if found is None:
        if if_exists:
            return []
        known = [each.name for each in catalog.functions.values()]
        raise Unknown(f"no function `{name}`{did_you_mean(name, known)}", place)
    users = users_of_function(catalog, name)
    if users:
        raise Clash(_cannot_drop(found.name, [_using(users, "call", "it")], users), place)
    return [gone("function", name)]
