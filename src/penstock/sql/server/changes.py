"""Statements that change the catalog: relations, functions and queries are created, replaced and dropped.

Only on the server that leads, one after the other. First what can fail and changes nothing if it does; then
the record in the log; then what follows from it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.pipelines.plans.changes import Action, Change
from penstock.sql.catalog import catalog as plans
from penstock.sql.catalog.catalog import Catalog, Function, QueryDef, Record, Relation
from penstock.sql.catalog.cluster_admin import KEY, VALUE, ClusterAdmin
from penstock.sql.catalog.declare import Options, check_target, declared
from penstock.sql.catalog.target_topic import ignored
from penstock.sql.continuous import functions as python_functions
from penstock.sql.continuous import replacing
from penstock.sql.continuous.define import Maker
from penstock.sql.continuous.queries import QuerySupervisor
from penstock.sql.continuous.running import Launcher, group_of
from penstock.sql.errors import Clash, Exists, Place, SqlError, Unknown, did_you_mean
from penstock.sql.language.statements import (
    Column,
    ControlQuery,
    CreateFunction,
    CreateRelation,
    Drop,
    InsertQuery,
    Statement,
)
from penstock.sql.pull.tables import FollowedTables
from penstock.sql.results import Done, Result
from penstock.sql.settings import WritableCatalog
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

CHANGING = (CreateRelation, InsertQuery, CreateFunction, ControlQuery, Drop)
"""Statements that only the server that leads carries out."""


class CatalogChanges:
    def __init__(
        self,
        spark: SparkSession,
        log: WritableCatalog,
        admin: ClusterAdmin,
        tables: FollowedTables,
        maker: Maker,
        launcher: Launcher,
        queries: QuerySupervisor,
    ) -> None:
        self._spark = spark
        self._log = log
        self._admin = admin
        self._tables = tables
        self._maker = maker
        self._launcher = launcher
        self._queries = queries

    @property
    def catalog(self) -> Catalog:
        return self._log.catalog

    def carry_out(self, statement: Statement, properties: Mapping[str, str]) -> Result:
        if isinstance(statement, CreateRelation):
            return self._create(statement, properties)
        if isinstance(statement, InsertQuery):
            return self._insert_query(statement, properties)
        if isinstance(statement, CreateFunction):
            return self._create_function(statement)
        if isinstance(statement, ControlQuery):
            return self._control(statement)
        if isinstance(statement, Drop):
            return self._drop(statement)
        raise SqlError(f"{type(statement).__name__} is not supported")

    # CREATE

    def _create(self, statement: CreateRelation, properties: Mapping[str, str]) -> Result:
        place = Place.of(statement.text, statement.name_span[0])
        old = self.catalog.relation(statement.name)
        if old is not None and statement.if_not_exists:
            return Done(f"{old.kind} {old.name} already exists")
        if old is not None and not statement.or_replace:
            raise Exists(f"{old.kind} `{old.name}` already exists", place)
        if statement.query is not None:
            return self._create_as(statement, old, properties, place)
        text = str(statement.text[statement.span[0] : statement.span[1]])
        options = Options(statement)
        plans.plan_relation(self.catalog, _placeholder(statement), statement.or_replace, place)
        relation = declared(statement, options, self._admin, self._spark, text)
        self._log.write(plans.plan_relation(self.catalog, relation, statement.or_replace, place))
        self._tables.forget(relation.name)
        return Done(
            f"{relation.kind} {relation.name} created", {"name": relation.name, "topic": relation.topic}
        )

    def _create_as(
        self, statement: CreateRelation, old: Relation | None, properties: Mapping[str, str], place: Place
    ) -> Result:
        kind = "csas" if statement.kind == "stream" else "ctas"
        if old is not None:
            if old.kind != statement.kind:
                raise Clash(f"`{old.name}` is already a {old.kind}. Drop it, or choose another name.", place)
            if old.made_by is not None and old.made_by in self.catalog.queries:
                return self._replace(statement, self.catalog.queries[old.made_by], properties, place)
        query_id, number = plans.next_query_id(self.catalog, kind, statement.name)
        found, definition, options = self._maker.created(statement, self.catalog, properties, query_id)
        self._maker.check_topic(definition, options, place)
        definition, notes = self._maker.settle(found, definition, options)
        records = [number, plans.relation_record(definition.target), plans.query_record(definition)]
        self._log.write(records)
        self._tables.forget(statement.name)
        self._queries.start(definition, found)
        return _with_notes(
            Done(f"{statement.kind} {statement.name} created; query {query_id}", _details(definition)), notes
        )

    def _replace(
        self, statement: CreateRelation, old: QueryDef, properties: Mapping[str, str], place: Place
    ) -> Result:
        found, fresh, options = self._maker.created(statement, self.catalog, properties, old.id)
        replacing.check_format(old, fresh, options.place("format") or place)
        wanted, then = options.given.get("state"), self._maker.print_of(old)
        change = replacing.plan(old, fresh, then, keep=wanted == "keep")
        replacing.check(change, fresh, then, allowed=wanted == "rebuild", place=place)
        notes = self._check_appends(change, old, fresh, options, place)
        if change.action is Action.KEEP:
            done = Done(f"query {old.id} is unchanged", {**_details(old), "action": "keep"})
            note = None if old.target.topic is None else ignored(old.target.topic, options.given)
            return _with_notes(done, [note] if note is not None else [])
        notes += replacing.notes(change, old, fresh)
        if fresh.target.topic != old.target.topic:
            self._maker.check_topic(fresh, options, place)
        definition, more = self._maker.settle(found, replacing.replaced(old, fresh, change), options)
        # First what can fail and changes nothing if it does: until it is written, the old query is untouched.
        self._log.write([plans.relation_record(definition.target), plans.query_record(definition)])
        self._queries.stop(old.id)
        if change.action is Action.REBUILD:
            self._empty(definition)
            self._launcher.forget_generation(old)
        if replacing.topics_left(old, definition):
            # Their offsets would stay, with a lag that grows. Those of the others are committed again.
            self._admin.delete_group(group_of(old))
        self._tables.forget(statement.name)
        if definition.state == "RUNNING":
            self._queries.start(definition, found)
        why = "; ".join(change.reasons)
        done = Done(
            f"query {old.id} replaced ({change.action}: {why})",
            {**_details(definition), "action": str(change.action)},
        )
        return _with_notes(done, [*notes, *more])

    def _check_appends(
        self, change: Change, old: QueryDef, fresh: QueryDef, options: Options, place: Place
    ) -> list[str]:
        """StateLost if a topic would get records a second time and nobody has said so; else what to note."""
        topic = replacing.appends_again(change, old, fresh)
        if topic is None or not self._admin.has_records(topic):
            return []
        downstream = [each for each in self.catalog.downstream(topic) if each != old.id]
        if "existing" not in options.given:
            replacing.check_again(topic, downstream, place=place)
        return (
            [f"all records are in `{topic}` again; {', '.join(downstream)} read them"] if downstream else []
        )

    def _empty(self, definition: QueryDef) -> None:
        """Now, so that nobody reads rows of before; what fails is done again when the query is started."""
        try:
            self._launcher.empty(definition)
        except Exception as error:  # noqa: BLE001 - Spark and clients may raise anything
            log.warning("Rows of %s will be deleted at start: %s", definition.id, error)

    def _create_function(self, statement: CreateFunction) -> Result:
        place = Place.of(statement.text, statement.name_span[0])
        old = self.catalog.function(statement.name)
        if old is not None and statement.if_not_exists:
            return Done(f"function {old.name} already exists")
        if statement.language.upper() != "PYTHON":
            raise Clash(f"LANGUAGE {statement.language} is not supported: use PYTHON", place)
        if self._maker.spark.catalog.functionExists(quoted(statement.name)):
            raise Exists(f"`{statement.name}` is a function of Spark: choose another name", place)
        text = str(statement.text[statement.span[0] : statement.span[1]])
        parameters = tuple(Column(each.name, each.type) for each in statement.parameters)
        function = Function(statement.name, parameters, statement.returns, statement.body, text)
        python_functions.compiled(function, lambda line: _line_of_body(statement, line))
        self._log.write(plans.plan_function(self.catalog, function, statement.or_replace, place))
        if old is None:
            return Done(f"function {function.name} created")
        users = plans.users_of_function(self.catalog, function.name)
        kept = f"; until they are replaced too, {', '.join(users)} use what it was" if users else ""
        return Done(f"function {function.name} replaced{kept}", {"queries": users} if users else {})

    # INSERT

    def _insert_query(self, statement: InsertQuery, properties: Mapping[str, str]) -> Result:
        query_id, number = plans.next_query_id(self.catalog, "insert", statement.target)
        found, definition = self._maker.inserted(statement, self.catalog, properties, query_id)
        self._log.write([number, plans.query_record(definition)])
        self._queries.start(definition, found)
        return Done(f"query {query_id} writes to {definition.target.name}", _details(definition))

    # Queries

    def _control(self, statement: ControlQuery) -> Result:
        place = Place.of(statement.text, statement.id_span[0]) if statement.query_id is not None else None
        if statement.action == "terminate":
            ended, records = plans.plan_terminate(self.catalog, statement.query_id, place)
            self._end(ended, records)
            return Done(_summary("terminated", ended), {"queries": [each.id for each in ended]})
        state: plans.State = "PAUSED" if statement.action == "pause" else "RUNNING"
        changed, records = plans.plan_state(self.catalog, statement.query_id, state, place)
        if changed:
            self._log.write(records)
        for query in changed:
            if state == "PAUSED":
                self._queries.stop(query.id)
            else:
                self._queries.start(query)
        verb = "paused" if state == "PAUSED" else "resumed"
        return Done(_summary(verb, changed), {"queries": [each.id for each in changed]})

    def _end(self, ended: list[QueryDef], records: list[Record]) -> None:
        if records:
            self._log.write(records)
        for query in ended:
            self._queries.stop(query.id)
        for query in ended:
            self._launcher.forget(query)
            if query.mode != "refresh":
                self._admin.delete_group(group_of(query))

    # DROP

    def _drop(self, statement: Drop) -> Result:
        place = Place.of(statement.text, statement.name_span[0])
        if statement.kind == "function":
            records = plans.plan_drop_function(self.catalog, statement.name, statement.if_exists, place)
            if records:
                self._log.write(list(records))
            return Done(
                f"function {statement.name} dropped"
                if records
                else f"function {statement.name} does not exist"
            )
        relation, ended, gone = plans.plan_drop(self.catalog, statement.name, statement.kind, place)
        if relation is None:
            if statement.if_exists:
                return Done(f"{statement.kind} {statement.name} does not exist")
            known = [each.name for each in self.catalog.relations.values()]
            raise Unknown(
                f"no {statement.kind} `{statement.name}`{did_you_mean(statement.name, known)}", place
            )
        if statement.delete_topic:
            self._check_delete(relation, place)
        self._end(ended, gone)
        self._tables.forget(relation.name)
        details: dict[str, Any] = {"queries": [each.id for each in ended]}
        if statement.delete_topic:
            details["deleted"] = self._delete(relation)
        return Done(f"{relation.kind} {relation.name} dropped", details)

    def _check_delete(self, relation: Relation, place: Place) -> None:
        """Before anything is dropped: whether what it is kept in may go, too."""
        if relation.topic is not None:
            check_target(relation.topic, place)
        elif relation.made_by is None or relation.path != self._maker.path(relation.made_by):
            raise Clash(
                f"`{relation.name}` is an external table: its data in {relation.path} stays. "
                f"Run `DROP TABLE {relation.name}` without deleting.",
                place,
            )

    def _delete(self, relation: Relation) -> list[str]:
        """The topic and its schemas, or the files."""
        if relation.topic is None:
            assert relation.path is not None
            self._launcher.delete(relation.path)
            return [relation.path]
        deleted = [relation.topic] if self._admin.delete_topic(relation.topic) else []
        if self._admin.has_registry:
            for subject in (f"{relation.topic}{VALUE}", f"{relation.topic}{KEY}"):
                with contextlib.suppress(SqlError):
                    deleted += [subject] if self._admin.delete_subject(subject) else []
        return deleted


def _placeholder(statement: CreateRelation) -> Relation:
    """Enough of the relation to say whether its name is free, before anything is made."""
    return Relation(statement.name, statement.kind, None, ())


def _details(definition: QueryDef) -> dict[str, Any]:
    return {"query": definition.id, "target": definition.target.name, "topic": definition.target.topic}


def _with_notes(done: Done, notes: list[str]) -> Done:
    """What has been done, and what whoever asked for it may not expect."""
    if not notes:
        return done
    return Done(f"{done.message}. {'. '.join(notes)}", {**done.details, "notes": notes})


def _summary(verb: str, queries: list[QueryDef]) -> str:
    if not queries:
        return f"nothing to be {verb}"
    return f"{', '.join(each.id for each in queries)} {verb}"


def _line_of_body(statement: CreateFunction, line: int) -> Place:
    """Where a line of the body is in the text."""
    start = statement.text.find(statement.body, statement.body_span[0])
    if start < 0:
        return Place.of(statement.text, statement.body_span[0])
    lead = len(statement.body) - len(statement.body.lstrip("\n"))
    lines = statement.body.lstrip("\n").split("\n")
    return Place.of(statement.text, start + lead + sum(len(each) + 1 for each in lines[: line - 1]))
