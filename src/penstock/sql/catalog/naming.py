"""Resolves names in a statement to relations: those of the catalog, and topics with a schema in the
registry.
"""

from __future__ import annotations

from typing import Any

from penstock.registry.client import RegisteredSchema
from penstock.sql.catalog.catalog import Catalog, Relation
from penstock.sql.catalog.cluster_admin import KEY, VALUE, ClusterAdmin
from penstock.sql.catalog.relations import SCHEMA_TYPES
from penstock.sql.errors import Clash, Place, Unknown, did_you_mean
from penstock.sql.language.statements import Column
from penstock.sqltext.spark_types import words


class Names:
    """Looks names up in an image of the catalog, and in the current registry."""

    def __init__(self, catalog: Catalog, admin: ClusterAdmin) -> None:
        self._catalog = catalog
        self._admin = admin

    def relation(self, name: str, place: Place | None = None) -> Relation:
        """Raises Unknown with the most similar name if it does not exist."""
        found = self.find(name, place)
        if found is None:
            raise Unknown(self._missing(name), place)
        return found

    def find(self, name: str, place: Place | None = None) -> Relation | None:
        created = self._catalog.relation(name)
        if created is not None:
            return created
        topic = self._topic_with_schema(name)
        return None if topic is None else implicit(topic, self._admin, place)

    def _topic_with_schema(self, name: str) -> str | None:
        if not self._admin.has_registry or name.startswith("__"):
            return None
        if self._admin.schema(f"{name}{VALUE}") is not None and self._admin.partitions(name) is not None:
            return name
        folded = f"{name}{VALUE}".casefold()
        alike = [each for each in self._admin.subjects() if each.casefold() == folded]
        topics = self._admin.topics() if alike else frozenset()
        alike = [each.removesuffix(VALUE) for each in alike if each.removesuffix(VALUE) in topics]
        if len(alike) > 1:
            raise Clash(
                f"`{name}` may be {' or '.join(f'`{each}`' for each in alike)}: write it in its own case"
            )
        return alike[0] if alike else None

    def _missing(self, name: str) -> str:
        topics = self._admin.topics()
        if name in topics:
            return (
                f"the topic `{name}` has no schema in the registry: say what it holds with "
                f"CREATE STREAM {name} (…) WITH (topic='{name}', format='…')"
            )
        return f"no stream, table or topic `{name}`{did_you_mean(name, self.known(topics))}"

    def known(self, topics: frozenset[str] | None = None) -> list[str]:
        """All names that a query can read."""
        created = [each.name for each in self._catalog.relations.values()]
        return [*created, *self.implicit_topics(topics)]

    def implicit_topics(self, topics: frozenset[str] | None = None) -> list[str]:
        there = self._admin.topics() if topics is None else topics
        with_schema = {each.removesuffix(VALUE) for each in self._admin.subjects() if each.endswith(VALUE)}
        return sorted(
            each
            for each in with_schema & there
            if not each.startswith("__") and self._catalog.relation(each) is None
        )


def implicit(topic: str, admin: ClusterAdmin, place: Place | None = None) -> Relation:
    """A topic as a stream, with the newest version of its schema."""
    schema = admin.schema(f"{topic}{VALUE}")
    assert schema is not None
    key_format, schemas = "string", {"value": schema.version}
    key = admin.schema(f"{topic}{KEY}")
    if key is not None:
        key_format = SCHEMA_TYPES[key.schema_type]
        schemas["key"] = key.version
    return Relation(
        name=topic,
        kind="stream",
        topic=topic,
        columns=registered_columns(schema, admin, place),
        format=SCHEMA_TYPES[schema.schema_type],
        key_format=key_format,
        schemas=schemas,
        implicit=True,
    )


def registered_columns(
    schema: RegisteredSchema, admin: ClusterAdmin, place: Place | None = None, message: str | None = None
) -> tuple[Column, ...]:
    """The columns of a value with this schema; one called `value` if it is not a record."""
    from pyspark.sql.types import StructType

    kind = registered_type(schema, admin, place, message)
    if isinstance(kind, StructType):
        return tuple(Column(each.name, words(each.dataType)) for each in kind.fields)
    return (Column("value", words(kind)),)


def registered_type(
    schema: RegisteredSchema, admin: ClusterAdmin, place: Place | None = None, message: str | None = None
) -> Any:
    """The Spark type for values of a schema."""
    from penstock.registry.client import RegistrySettings
    from penstock.spark.errors import SparkError
    from penstock.spark.typed.columns import TypedColumns, TypedPart, source_schema
    from penstock.spark.typed.options import PartOptions, TypedOptions

    options = PartOptions("value", schema.schema_type, schema.subject, None, "latest", message, "fail")
    part = TypedPart(options, schema.schema, admin.references(schema))
    try:
        columns = TypedColumns(TypedOptions(RegistrySettings(), (part.options,), None), (part,))
        return source_schema(columns, False)["value"].dataType
    except SparkError as error:
        raise Clash(
            f"{schema.subject} version {schema.version} cannot be read as columns: {error}", place
        ) from error
