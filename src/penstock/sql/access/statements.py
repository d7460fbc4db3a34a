"""What each statement needs at the cluster, by the ACLs that its user has there.

| statement | needs |
| --- | --- |
| SELECT | Read on the topic of each relation. A table in files: Read on what its query reads |
| INSERT … VALUES | Write on the topic |
| CREATE … AS, INSERT … SELECT | Read on what is read, Write on the target; Create if it is missing |
| CREATE STREAM, TABLE | Describe on the topic, or Create; Write on `dead_letter_topic` |
| PAUSE, RESUME, TERMINATE, DROP of a query's output | Read on what the query reads, Write on its target |
| DROP | Describe on the topic; Delete with DELETE TOPIC |
| SHOW, DESCRIBE | Describe; what may not be described is not shown, and unknown by its name |
| EXPLAIN | as the statement |
| CREATE and DROP FUNCTION, what brings code, tables over files, restricted settings | Alter on the cluster |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.sql.access.rights import Operation, UserRights
from penstock.sql.catalog.catalog import Catalog, QueryDef, Relation
from penstock.sql.catalog.cluster_admin import KEY, VALUE
from penstock.sql.catalog.naming import Names
from penstock.sql.continuous.sender_code import check_text
from penstock.sql.errors import NotAllowed, Place, Unknown
from penstock.sql.language.properties import restricted
from penstock.sql.language.statements import (
    ControlQuery,
    CreateFunction,
    CreateRelation,
    Describe,
    Drop,
    Explain,
    InsertQuery,
    InsertValues,
    Query,
    Select,
    Statement,
)

_VERBS = {
    Operation.READ: "read",
    Operation.WRITE: "write to",
    Operation.CREATE: "create",
    Operation.DELETE: "delete",
    Operation.DESCRIBE: "see",
}


def names_files(statement: Statement) -> bool:
    """Whether the statement defines a table by files on the server's machine."""
    if not isinstance(statement, CreateRelation):
        return False
    storage = statement.options.get("storage", "topic").lower()
    return "path" in statement.options or (storage != "topic" and statement.query is None)


class Checks:
    """The checks of one statement: NotAllowed, or Unknown for objects whose existence the user may not
    know.
    """

    def __init__(self, rights: UserRights, catalog: Catalog, names: Names) -> None:
        self._rights = rights
        self._catalog = catalog
        self._names = names

    def check(self, statement: Statement, properties: Iterable[str] = ()) -> None:
        """`properties`: the names of the properties with which the statements are executed."""
        for name in restricted(properties):
            self._administers(f"set '{name}'", statement)
        if isinstance(statement, Explain) and statement.statement is not None:
            return self.check(statement.statement)
        self._code(statement)
        if isinstance(statement, Select):
            self.reads(statement.query)
        elif isinstance(statement, InsertValues):
            self._target(statement.target, Place.of(statement.text, statement.target_span[0]))
        elif isinstance(statement, InsertQuery):
            self.reads(statement.query)
            self._target(statement.target, Place.of(statement.text, statement.target_span[0]))
        elif isinstance(statement, CreateRelation):
            self._create(statement)
        elif isinstance(statement, Describe):
            self._describe(statement)
        elif isinstance(statement, Explain):
            place = Place.of(statement.text, statement.id_span[0])
            self._sees_query(self._catalog.query(statement.query_id or "", place), place)
        elif isinstance(statement, ControlQuery):
            self._control(statement)
        elif isinstance(statement, Drop):
            self._drop(statement)
        return None

    def visible(self) -> tuple[Catalog, frozenset[str]]:
        """The catalog without the objects that the user may not describe, and the visible topics."""
        topics = self._rights.visible()

        def sees(relation: Relation) -> bool:
            needed = self._topics_of(relation)
            return needed is not None and needed <= topics

        relations = {name: each for name, each in self._catalog.relations.items() if sees(each)}
        queries = {
            name: each
            for name, each in self._catalog.queries.items()
            if sees(each.target) and all(map(sees, each.sources.values()))
        }
        return replace(self._catalog, relations=relations, queries=queries), topics

    # Statements

    def reads(self, query: Query) -> None:
        for source in query.sources:
            place = Place.of(query.text, source.span[0])
            relation = self._names.find(source.name, place)
            if relation is not None:
                self._reads(relation, place)

    def _code(self, statement: Statement) -> None:
        if isinstance(statement, CreateFunction) or (
            isinstance(statement, Drop) and statement.kind == "function"
        ):
            return self._administers("change functions", statement)
        try:
            check_text(statement.text, *statement.span)
        except NotAllowed:
            self._administers("run code", statement)

    def _create(self, statement: CreateRelation) -> None:
        place = Place.of(statement.text, statement.name_span[0])
        options = statement.options
        old = self._catalog.relation(statement.name)
        if old is not None and statement.or_replace:
            if old.made_by is not None and old.made_by in self._catalog.queries:
                self._steers(self._catalog.queries[old.made_by], place)
            else:
                self._sees(old, place)
        if statement.query is not None:
            self.reads(statement.query)
        if names_files(statement):
            return self._administers("read and write files of the server's machine", statement)
        if options.get("storage", "topic").lower() == "topic":
            topic = options.get("topic", statement.name)
            if statement.query is not None:
                self._writes(topic, place)
            else:
                self._declares(topic, place)
        if "dead_letter_topic" in options:
            self._writes(options["dead_letter_topic"], place)
        for name in ("value_subject", "key_subject"):
            if name in options:
                of = options[name].removesuffix(VALUE).removesuffix(KEY)
                self._needs({of}, Operation.DESCRIBE, options[name], place)
        return None

    def _describe(self, statement: Describe) -> None:
        place = Place.of(statement.text, statement.name_span[0])
        if statement.function:
            return
        name = statement.name
        query = self._catalog.queries.get(name) or self._catalog.queries.get(name.casefold())
        if query is not None:
            return self._sees_query(query, place)
        relation = self._names.find(name, place)
        if relation is not None:
            self._sees(relation, place)

    def _control(self, statement: ControlQuery) -> None:
        place = Place.of(statement.text, statement.id_span[0] if statement.query_id else statement.span[0])
        if statement.query_id is not None:
            queries = [self._catalog.query(statement.query_id, place)]
        else:
            queries = list(self._catalog.queries.values())
        for query in queries:
            self._steers(query, place)

    def _drop(self, statement: Drop) -> None:
        place = Place.of(statement.text, statement.name_span[0])
        relation = self._catalog.relation(statement.name)
        if relation is None or statement.kind == "function":
            return
        query = self._catalog.queries.get(relation.made_by or "")
        if query is not None:
            self._steers(query, place)
        else:
            self._sees(relation, place)
        if statement.delete_topic and relation.topic is not None:
            self._needs({relation.topic}, Operation.DELETE, relation.name, place)

    # What is needed

    def _topics_of(self, relation: Relation, seen: frozenset[str] = frozenset()) -> frozenset[str] | None:
        """The topics whose records the table shows; None if unknown: files that no query here wrote."""
        if relation.topic is not None:
            return frozenset((relation.topic,))
        query = self._catalog.queries.get(relation.made_by or "")
        if query is None or query.id in seen:
            return None
        found: frozenset[str] = frozenset()
        for source in query.sources.values():
            topics = self._topics_of(source, seen | {query.id})
            if topics is None:
                return None
            found |= topics
        return found

    def _reads(self, relation: Relation, place: Place) -> None:
        self._of_relation(relation, Operation.READ, place)

    def _sees(self, relation: Relation, place: Place) -> None:
        self._of_relation(relation, Operation.DESCRIBE, place)

    def _of_relation(self, relation: Relation, operation: Operation, place: Place) -> None:
        topics = self._topics_of(relation)
        if topics is not None:
            return self._needs(topics, operation, relation.name, place)
        if not self._rights.may_alter_cluster():
            raise Unknown(_unknown(relation.name), place)
        return None

    def _sees_query(self, query: QueryDef, place: Place) -> None:
        try:
            for relation in (query.target, *query.sources.values()):
                self._sees(relation, place)
        except Unknown:
            raise Unknown(f"no query `{query.id}`", place) from None

    def _steers(self, query: QueryDef, place: Place) -> None:
        self._sees_query(query, place)
        for relation in query.sources.values():
            self._reads(relation, place)
        if query.target.topic is not None:
            self._needs({query.target.topic}, Operation.WRITE, query.target.name, place)

    def _target(self, name: str, place: Place) -> None:
        relation = self._names.find(name, place)
        if relation is not None and relation.topic is not None:
            self._needs({relation.topic}, Operation.WRITE, relation.name, place)
        elif relation is not None:
            self._reads(relation, place)

    def _writes(self, topic: str, place: Place) -> None:
        """Write to a topic that may not exist yet."""
        found = self._rights.topics([topic])[topic]
        if found.missing:
            if not self._rights.may_create(topic):
                raise self._denied(Operation.CREATE, topic, place)
            if not self._rights.may_write_missing(topic):
                raise self._denied(Operation.WRITE, topic, place)
        elif not found.allows(Operation.WRITE):
            raise self._denied(Operation.WRITE, topic, place)

    def _declares(self, topic: str, place: Place) -> None:
        found = self._rights.topics([topic])[topic]
        if found.missing and not self._rights.may_create(topic):
            raise self._denied(Operation.CREATE, topic, place)
        if not found.missing and not found.allows(Operation.DESCRIBE):
            raise self._denied(Operation.DESCRIBE, topic, place)

    def _needs(self, topics: Iterable[str], operation: Operation, name: str, place: Place) -> None:
        for topic, found in sorted(self._rights.topics(topics).items()):
            if found.missing or found.allows(operation):
                continue  # the statement itself reports a missing object
            if not found.allows(Operation.DESCRIBE):
                raise Unknown(_unknown(name), place)
            raise self._denied(operation, topic, place)

    def _administers(self, what: str, statement: Statement) -> None:
        if not self._rights.may_alter_cluster():
            raise NotAllowed(
                f"User:{self._rights.name} may not {what}: it needs Alter on the cluster",
                Place.of(statement.text, statement.span[0]),
            )

    def _denied(self, operation: Operation, topic: str, place: Place) -> NotAllowed:
        word = operation.name.title()
        return NotAllowed(
            f"User:{self._rights.name} may not {_VERBS[operation]} the topic `{topic}`: it needs {word}",
            place,
        )


def _unknown(name: str) -> str:
    """As for a name that does not exist, without similar names."""
    return f"no stream, table or topic `{name}`"
