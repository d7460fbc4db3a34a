"""The engine: carries statements out, and runs the continuous queries of the catalog while this server leads.

One Spark application serves all; every statement and every query has a session of its own in it. What is
changed goes through the log, which only the leader can write; what runs follows from what the catalog says.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.pipelines.run.engine import quiet
from penstock.sql.access.rights import ClusterRights
from penstock.sql.access.statements import Checks
from penstock.sql.access.watching import while_allowed
from penstock.sql.catalog import catalog as plans
from penstock.sql.catalog.catalog import Catalog
from penstock.sql.catalog.cluster_admin import ClusterAdmin
from penstock.sql.catalog.naming import Names
from penstock.sql.continuous import inserting
from penstock.sql.continuous.define import Maker
from penstock.sql.continuous.queries import QuerySupervisor
from penstock.sql.continuous.running import Launcher
from penstock.sql.continuous.sender_code import check_statement
from penstock.sql.continuous.table_versions import Versions
from penstock.sql.errors import Place, SqlError, Unavailable, Unknown
from penstock.sql.language.statements import (
    Describe,
    Explain,
    InsertValues,
    Select,
    SetProperty,
    SetVariable,
    Show,
    Statement,
)
from penstock.sql.pull.answering import answer
from penstock.sql.pull.tables import FollowedTables
from penstock.sql.results import Done, Result, Rows
from penstock.sql.server import explaining
from penstock.sql.server.changes import CHANGING, CatalogChanges
from penstock.sql.server.cluster_health import ClusterHealth
from penstock.sql.server.selecting import Selects
from penstock.sql.server.showing import Shows
from penstock.sql.settings import EngineSettings, WritableCatalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.progress import Watch

log = logging.getLogger(__name__)


class Engine:
    """Calls may come from any thread; those that change something are carried out one after the other."""

    def __init__(
        self,
        settings: EngineSettings,
        log: WritableCatalog,
        tables: FollowedTables | None = None,
        *,
        spark: SparkSession | None = None,
    ) -> None:
        self.settings = settings
        self._log = log
        self._given = spark
        self._tables = tables if tables is not None else FollowedTables(settings)
        self._own_tables = tables is None
        self._admin = ClusterAdmin(settings)
        self._rights = ClusterRights(settings.client())
        self._health = ClusterHealth(settings, self._topics_of_queries)
        self._tables.away = self.away
        self._change = threading.RLock()
        self._leads = False
        self._spark: SparkSession | None = None
        self._watch: Watch | None = None

    @property
    def catalog(self) -> Catalog:
        return self._log.catalog

    # Its life

    def start(self) -> None:
        """Starts Spark. Queries run from `take_over` on."""
        from penstock.spark import session
        from penstock.spark.progress import watch

        quiet()
        spark = self._given or session(
            "penstock sql", self.settings.master, {"spark.scheduler.mode": "FAIR", **self.settings.conf}
        )
        self._spark = spark
        self._watch = watch(
            spark, bootstrap=self.settings.bootstrap, kafka=self._librdkafka(), pipeline="sql"
        )
        self._launcher = Launcher(spark, self.settings, self._admin, self._watch)
        self._maker = Maker(spark, self.settings, self._admin)
        self._queries = QuerySupervisor(self._launcher.launch)
        self._selects = Selects(spark, self.settings, self._admin, self._maker, self._launcher.delete)
        self._shows = Shows(self._admin, self._queries, self._watch.latest, self._health.away)
        self._changes = CatalogChanges(
            spark, self._log, self._admin, self._tables, self._maker, self._launcher, self._queries
        )
        self._health.start()

    def _librdkafka(self) -> dict[str, str]:
        from penstock.client.librdkafka_names import translate

        return translate(dict(self.settings.kafka))

    def take_over(self) -> None:
        """This server leads now: all queries that are to run are started."""
        with self._change:
            self._log.write([plans.leader_record(self.catalog)])
            self._launcher.versions = Versions(self.catalog.epoch)
            self._selects.clean_up()
            self._leads = True
            for query in self.catalog.queries.values():
                if query.state == "RUNNING":
                    self._queries.start(query)

    def away(self) -> str | None:
        """Why the cluster is taken to be away; None while it answers."""
        return self._health.away()

    def _topics_of_queries(self) -> set[str]:
        running = [each for each in self.catalog.queries.values() if each.state == "RUNNING"]
        return {topic for each in running for topic in each.topics}

    def give_up(self, *, deposed: bool = False) -> None:
        """Stops all queries, which another server runs then, or (`deposed`) may run already."""
        # A statement that holds the lock may be waiting for a cluster that is away.
        with self._change if self.away() is None else contextlib.nullcontext():
            self._leads = False
            self._selects.close()
            self._queries.stop_all(settle=not deposed and self.away() is None)

    def stop(self) -> None:
        if self._spark is None:
            return
        self._leads = False
        self._selects.close()
        self._queries.close(settle=self.away() is None)
        assert self._watch is not None
        self._watch.stop()
        self._health.stop()
        if self._own_tables:
            self._tables.stop()
        self._admin.close()
        self._rights.close()
        if self._given is None:
            self._spark.stop()
        self._spark = None

    # Statements

    def execute(
        self, statement: Statement, properties: Mapping[str, str], *, user: str | None = None
    ) -> Result:
        """SqlError says what is wrong, and where. What a `user` may do, the cluster's ACLs say."""
        if self._spark is None:
            raise Unavailable("Spark has not started yet")
        if (why := self.away()) is not None and not self._needs_no_cluster(statement):
            raise Unavailable(f"{why}. Run SHOW QUERIES to see affected queries.")
        check_statement(statement, python_functions=self.settings.python_functions)
        catalog = self.catalog
        checks = self._checks(user, catalog)
        if checks is None:
            return self._execute(statement, properties, catalog, None, None)
        try:
            return self._execute(statement, properties, catalog, checks, user)
        except Unknown as error:
            # A name that is near may be one that the user must not know.
            raise Unknown(error.message.partition("; did you mean ")[0], error.place) from None

    def _checks(self, user: str | None, catalog: Catalog) -> Checks | None:
        """None: all that the server's own user may do is allowed."""
        rights = self._rights.of(user) if self.settings.as_user else None
        return None if rights is None else Checks(rights, catalog, Names(catalog, self._admin))

    def _execute(
        self,
        statement: Statement,
        properties: Mapping[str, str],
        catalog: Catalog,
        checks: Checks | None,
        user: str | None,
    ) -> Result:
        if isinstance(statement, SetProperty | SetVariable):
            return Done(f"{statement.name} = {statement.value}")
        if isinstance(statement, CHANGING):
            with self._change:
                if not self._leads:
                    raise Unavailable("This server is not the leader. Send the statement to the leader.")
                if (now := self._checks(user, self.catalog)) is not None:
                    now.check(statement, properties)
                return self._changes.carry_out(statement, properties)
        topics = None
        if checks is not None:
            checks.check(statement, properties)
            if isinstance(statement, Show | Describe | Explain):
                catalog, topics = checks.visible()
        if isinstance(statement, Select):
            found = self._select(statement, properties, catalog)
            if checks is not None and isinstance(found, Rows) and found.live:
                return while_allowed(found, partial(self._check_again, statement, user))
            return found
        if isinstance(statement, Show):
            return self._shows.show(statement, catalog, topics)
        if isinstance(statement, Describe):
            return self._shows.describe(statement, catalog)
        if isinstance(statement, Explain):
            return explaining.explain(statement, catalog, properties, self._maker, self._shows)
        if isinstance(statement, InsertValues):
            return self._insert_values(statement, properties, catalog)
        raise SqlError(f"{type(statement).__name__} is not known here")

    def _check_again(self, statement: Statement, user: str | None) -> None:
        checks = self._checks(user, self.catalog)
        if checks is not None:
            checks.check(statement)

    def _needs_no_cluster(self, statement: Statement) -> bool:
        """Whether it is answered from the catalog alone."""
        if isinstance(statement, Show):
            return statement.what in ("queries", "tables", "functions")
        if isinstance(statement, Describe):
            return statement.function or statement.name.casefold() in self.catalog.queries
        return isinstance(statement, SetProperty | SetVariable)

    # SELECT

    def _select(self, statement: Select, properties: Mapping[str, str], catalog: Catalog) -> Result:
        query = statement.query
        sources = self._maker.sources(query, catalog)
        if query.emit is not None:
            return self._selects.push(query, sources, catalog, properties)
        if len(query.sources) == 1:
            relation = sources[query.sources[0].name]
            found = answer(
                query,
                relation,
                self._tables,
                lambda relation, rows, query: self._selects.over_rows(relation, rows, query, catalog),
            )
            if found is not None:
                return found
        return self._selects.batch(query, sources, catalog, properties)

    def _insert_values(
        self, statement: InsertValues, properties: Mapping[str, str], catalog: Catalog
    ) -> Result:
        assert self._spark is not None
        place = Place.of(statement.text, statement.target_span[0])
        target = Names(catalog, self._admin).relation(statement.target, place)
        count = inserting.insert_values(self._spark, statement, target, self.settings, properties)
        return Done(f"{count} row{'' if count == 1 else 's'} inserted", {"rows": count})

    # For programs

    def _visible(self, user: str | None) -> tuple[Catalog, frozenset[str] | None]:
        catalog = self.catalog
        checks = self._checks(user, catalog)
        return (catalog, None) if checks is None else checks.visible()

    def describe_queries(self, user: str | None = None) -> list[dict[str, Any]]:
        catalog, _ = self._visible(user)
        return [self._shows.query(each) for each in catalog.queries.values()] if self._spark else []

    def describe_query(self, query_id: str, user: str | None = None) -> dict[str, Any] | None:
        catalog, _ = self._visible(user)
        found = catalog.queries.get(query_id)
        return self._shows.query(found) if found is not None and self._spark else None

    def describe_relations(self, user: str | None = None) -> list[dict[str, Any]]:
        if self._spark is None:
            return []
        catalog, topics = self._visible(user)
        created = list(catalog.relations.values())
        names = Names(catalog, self._admin)
        for topic in names.implicit_topics(topics):
            with contextlib.suppress(SqlError):
                created.append(names.relation(topic))
        return [self._shows.relation(each) for each in created]

    def topics(self, user: str | None = None) -> list[str]:
        _, topics = self._visible(user)
        found = self._admin.topics() if topics is None else topics
        return sorted(each for each in found if not each.startswith("__"))
