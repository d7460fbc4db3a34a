"""SQL databases as source and sink, through SQLAlchemy: PostgreSQL, MySQL, MariaDB, SQLite and DuckDB."""

from penstock.connect.connectors.sql.sink import SqlSink
from penstock.connect.connectors.sql.source import SqlSource

__all__ = ["SqlSink", "SqlSource"]
