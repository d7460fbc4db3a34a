"""An Iceberg catalog that is away is waited for; a login or rows that it will never take fail the task."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import ServiceUnavailableError

from penstock.connect.api import ConnectError, RetriableError
from penstock.connect.connectors.lake.tables.iceberg import IcebergLakeTable, open_catalog
from penstock.connect.connectors.lake.tables.table import Span


class Answering(ThreadingHTTPServer):
    """A REST catalog that answers all calls but the first one with this status and body."""

    status, body = 200, b"{}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        first = self.path.startswith("/v1/config")
        body = json.dumps({"defaults": {}, "overrides": {}}).encode() if first else server.body
        self.send_response(200 if first else server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Answering]:
    with Answering(("127.0.0.1", 0), _Handler) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.mark.promise(
    "connect",
    "Tables: an unreachable catalog is retried; a rejected login and rows that the table cannot store "
    "fail the task",
)
@pytest.mark.parametrize(
    ("status", "body", "retried"),
    [
        (401, "", False),
        (403, "", False),
        (503, "", True),
        (500, "", True),
        (200, "<html>", True),
        (200, "{}", True),
    ],
)
def test_a_rest_catalog(server: Answering, status: int, body: str, retried: bool) -> None:
    catalog = open_catalog({"type": "rest", "uri": f"http://127.0.0.1:{server.server_port}"})
    server.status = status
    server.body = (
        body.encode()
        or json.dumps({"error": {"message": "on purpose", "type": "Problem", "code": status}}).encode()
    )
    with pytest.raises(ConnectError) as caught:
        IcebergLakeTable(catalog, "default", "items", "sink").schema()
    assert isinstance(caught.value, RetriableError) is retried


@pytest.mark.promise(
    "connect",
    "Tables: an unreachable catalog is retried; a rejected login and rows that the table cannot store "
    "fail the task",
)
def test_rows_that_the_table_cannot_take(tmp_path: Path) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    catalog = load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog.create_namespace("default")
    catalog.create_table(("default", "items"), Schema(NestedField(1, "id", LongType(), required=True)))
    table = IcebergLakeTable(catalog, "default", "items", "sink")
    for rows in (pa.table({"id": pa.array([None], pa.int64())}), pa.table({"id": ["text"]})):
        with pytest.raises(ConnectError) as caught:
            table.append(rows, {("items", 0): Span(None, 1)})
        assert type(caught.value) is ConnectError


@pytest.mark.promise(
    "connect",
    "Tables: an unreachable catalog is retried; a rejected login and rows that the table cannot store "
    "fail the task",
)
def test_errors_of_the_store() -> None:
    denied = "When reading information for key 'x': AWS Error ACCESS_DENIED during HeadObject operation"
    slow = "When reading information for key 'x': AWS Error SLOW_DOWN during HeadObject operation"
    for error, retried in (
        (OSError(denied), False),
        (PermissionError(13, "Permission denied"), False),
        (OSError(slow), True),
        (FileNotFoundError(2, "No such file"), True),
        (ServiceUnavailableError("x"), True),
    ):

        class Catalog:
            def load_table(self, name: Any, error: Exception = error) -> Any:
                raise error

        table = IcebergLakeTable(Catalog(), "default", "items", "sink")  # type: ignore[arg-type]
        with pytest.raises(ConnectError) as caught:
            table.schema()
        assert isinstance(caught.value, RetriableError) is retried
