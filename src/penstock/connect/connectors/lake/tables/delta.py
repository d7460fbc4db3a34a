"""A Delta table: the offset of a partition is the version of an application transaction of the Delta
protocol.

A commit contains the offsets of its rows. If two tasks commit the same partition at once, the protocol lets
only one succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

from penstock.connect.api import ConnectError, RetriableError, TopicPartition
from penstock.connect.connectors.lake.tables.columns import TypeRules
from penstock.connect.connectors.lake.tables.table import TRIES, Span, check_spans


class DeltaLakeTable:
    rules = TypeRules(small_integers=True, times=False, widens=False)

    def __init__(self, uri: str, connector: str, settings: Mapping[str, Any]) -> None:
        self._uri, self._connector = uri, connector
        self._options = _storage_options(settings) if uri.startswith("s3://") else None

    def schema(self) -> Any:
        table = self._load()
        return None if table is None else self.rules.stored_schema(pa.schema(table.schema().to_arrow()))

    def offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(self._load(), places)

    def append(self, rows: Any, spans: Mapping[TopicPartition, Span]) -> None:
        properties = CommitProperties(
            app_transactions=[Transaction(self._app_id(place), span.next) for place, span in spans.items()]
        )
        for attempt in range(TRIES):
            table = self._load()
            # Also after a commit whose response was lost: then the table has the offsets already.
            found = self._offsets(table, spans)
            if attempt and all(found.get(place) == span.next for place, span in spans.items()):
                return
            check_spans(found, spans)
            try:
                write_deltalake(
                    self._uri if table is None else table,
                    rows,
                    mode="append",
                    schema_mode=None if table is None else "merge",
                    storage_options=self._options if table is None else None,
                    commit_properties=properties,
                )
                return
            except CommitFailedError:
                continue  # another writer was first: read what it wrote
            except (DeltaProtocolError, SchemaMismatchError) as error:
                raise ConnectError(f"{self._uri} cannot take these rows: {error}") from error
            except (DeltaError, OSError) as error:
                if table is None and self._load() is not None:
                    continue  # another task created the table
                raise RetriableError(f"{self._uri} cannot be written: {error}") from error
        raise RetriableError(f"{self._uri} cannot be written: other writers were first {TRIES} times")

    def _load(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise RetriableError(f"{self._uri} cannot be read: {error}") from error

    def _offsets(
        self, table: DeltaTable | None, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        if table is None:
            return {}
        found = {place: table.transaction_version(self._app_id(place)) for place in places}
        return {place: version for place, version in found.items() if version is not None}

    def _app_id(self, place: TopicPartition) -> str:
        return f"penstock-connect/{self._connector}/{place[0]}/{place[1]}"


def _storage_options(settings: Mapping[str, Any]) -> dict[str, str]:
    options = {
        name: str(settings[setting])
        for name, setting in (
            ("AWS_ENDPOINT_URL", "s3.endpoint"),
            ("AWS_REGION", "s3.region"),
            ("AWS_ACCESS_KEY_ID", "aws.access.key.id"),
            ("AWS_SECRET_ACCESS_KEY", "aws.secret.access.key"),
        )
        if settings.get(setting)
    }
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options
