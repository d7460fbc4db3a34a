"""An Iceberg table: the offsets of all partitions are in the summary of the snapshot that adds their rows.

A commit names the snapshot that it is based on, so that only one of two tasks can commit at once; the other
one carries over the offsets of the first and commits after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    SignError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationError,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from penstock.connect.api import ConnectError, DataError, RetriableError, TopicPartition
from penstock.connect.connectors.lake.tables.columns import TypeRules, merge
from penstock.connect.connectors.lake.tables.table import TRIES, Span, check_spans


class IcebergLakeTable:
    rules = TypeRules(small_integers=False, times=True, widens=True)

    def __init__(self, catalog: Catalog, namespace: str, name: str, connector: str) -> None:
        self._catalog, self._namespace, self._name = catalog, namespace, name
        self._key = f"penstock.offsets.{connector}"

    def schema(self) -> Any:
        table = self._load()
        return None if table is None else self._arrow_schema(table)

    def _arrow_schema(self, table: Table) -> pa.Schema:
        return self.rules.stored_schema(schema_to_pyarrow(table.schema()))

    def offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = self._all_offsets(self._load())
        return {place: found[place] for place in places if place in found}

    def append(self, rows: Any, spans: Mapping[TopicPartition, Span]) -> None:
        for attempt in range(TRIES):
            table = self._load() or self._create(rows.schema)
            found = self._all_offsets(table)
            if attempt and all(found.get(place) == span.next for place, span in spans.items()):
                return  # the response to a commit was lost
            check_spans(found, spans)
            offsets = {**found, **{place: span.next for place, span in spans.items()}}
            try:
                with table.transaction() as transaction:
                    there = self._arrow_schema(table)
                    if merge(there, rows.schema, self.rules) != there:
                        with transaction.update_schema() as update:
                            update.union_by_name(rows.schema)
                    transaction.append(rows, snapshot_properties={self._key: _dump(offsets)})
                return
            except (CommitFailedException, CommitStateUnknownException):
                continue  # another writer was first, or the outcome is unknown: read what the table has
            except DataError as error:
                # Not an error of these records: a task that restarts reads the columns of the table again.
                raise ConnectError(f"{self._where} has other columns than before: {error}") from error
            except Exception as error:
                raise _error(self._where, "written", error) from error
        raise RetriableError(f"{self._where} cannot be written: other writers were first {TRIES} times")

    @property
    def _where(self) -> str:
        return f"the Iceberg table {self._namespace}.{self._name}"

    def _load(self) -> Table | None:
        try:
            return self._catalog.load_table((self._namespace, self._name))
        except NoSuchTableError:
            return None
        except Exception as error:
            raise _error(self._where, "read", error) from error

    def _create(self, schema: pa.Schema) -> Table:
        identifier = (self._namespace, self._name)
        try:
            self._catalog.create_namespace_if_not_exists(self._namespace)
            return self._catalog.create_table(identifier, schema)
        except TableAlreadyExistsError:
            return self._catalog.load_table(identifier)
        except Exception as error:
            raise _error(self._where, "created", error) from error

    def _all_offsets(self, table: Table | None) -> dict[TopicPartition, int]:
        """From the newest snapshot that has them: others, such as compaction, commit in between."""
        snapshot = None if table is None else table.current_snapshot()
        while snapshot is not None:
            text = None if snapshot.summary is None else snapshot.summary.additional_properties.get(self._key)
            if text is not None:
                return {
                    (topic, int(partition)): offset
                    for topic, partitions in json.loads(text).items()
                    for partition, offset in partitions.items()
                }
            parent = snapshot.parent_snapshot_id
            snapshot = None if table is None or parent is None else table.snapshot_by_id(parent)
        return {}


def open_catalog(properties: Mapping[str, str]) -> Catalog:
    try:
        others = {name: value for name, value in properties.items() if name != "name"}
        return load_catalog(properties.get("name", "penstock"), **others)
    except Exception as error:
        raise _error("the Iceberg catalog", "reached", error) from error


_LOGIN = (UnauthorizedError, ForbiddenError, OAuthError, SignError, PermissionError)
_UNFIT = (
    BadRequestError,
    NotInstalledError,
    ValidationError,
    NotImplementedError,
    ValueError,  # including Arrow's, for values that a column cannot store
    TypeError,
    OverflowError,
)
_STORE_REFUSES = re.compile(
    "ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH"
)
"""The text of pyarrow's S3 client in an OSError."""


def _error(what: str, done: str, error: Exception) -> ConnectError:
    """Catalogs raise their clients' errors. An error is retriable unless it is known to be permanent."""
    text = f"{what} cannot be {done}: {type(error).__name__}: {error}"
    if isinstance(error, _LOGIN) or (isinstance(error, OSError) and _STORE_REFUSES.search(str(error))):
        return ConnectError(f"{text}. Check the login")
    # A response that is not JSON, or lacks the expected fields, comes from a failing server.
    answer = isinstance(error, (json.JSONDecodeError, OSError)) or "pydantic" in type(error).__module__
    return ConnectError(text) if isinstance(error, _UNFIT) and not answer else RetriableError(text)


def _dump(offsets: Mapping[TopicPartition, int]) -> str:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic, separators=(",", ":"))
